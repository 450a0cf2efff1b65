//! Budgets of virtual CPUs, each on any CPU or on the one of its plan.

use super::net::profile;
use super::scenario::{control, directory, paper_host};
use crate::cpu_set::CpuSet;
use crate::error::HostError;
use crate::fake::FakeHost;
use crate::profile::{Profile, VcpuBudget};
use crate::settings::threads::{Policy, RESET_ON_FORK, Scheduling};
use crate::undone::Undone;

const THROTTLING: &str = "/proc/sys/kernel/sched_rt_runtime_us";

/// VCPU 1 of VM `rt` (thread 102) has 4 of every 10 ms.
fn budgeted(cpu: Option<u32>) -> Profile {
    let mut profile = profile("[class.rt]\nvhost = 75\n[[vm]]\nname = \"rt\"\nclass = \"rt\"\n");
    let budget = VcpuBudget {
        runtime_ns: 4_000_000,
        deadline_ns: 10_000_000,
        period_ns: 10_000_000,
        cpu,
        rank: 0,
    };
    profile.vms[0].budgets.insert(1, budget);
    profile
}

/// The policy and the CPUs of the virtual CPU, and whether the kernel admits.
fn in_force(host: &FakeHost) -> (Policy, CpuSet, String) {
    let state = host.state();
    let thread = &state.threads[&102];
    let admits = state.files[THROTTLING].trim().to_owned();
    (thread.scheduling.policy, thread.cpus.clone(), admits)
}

fn newest() -> FakeHost {
    let host = paper_host(2);
    host.file("/proc/sys/kernel/osrelease", "6.12.117-rt\n");
    host
}

#[test]
fn a_budget_is_kept_on_the_cpu_of_its_plan_and_admission_comes_back_with_undo() {
    let (host, directory) = (newest(), directory());
    let (before, anywhere) = (host.state(), host.state().threads[&102].cpus.clone());
    let control = control(&host, &directory);
    control.apply_profile(&budgeted(Some(1))).unwrap();
    let pinned = (Policy::Deadline, CpuSet::single(1), "-1".to_owned());
    assert_eq!(in_force(&host), pinned);
    let expected = Scheduling::deadline(4_000_000, 10_000_000, 10_000_000, RESET_ON_FORK);
    assert_eq!(host.state().threads[&102].scheduling, expected);

    // The next plan is global: both the CPUs and the kernel's admission come back.
    control.apply_profile(&budgeted(None)).unwrap();
    let global = (Policy::Deadline, anywhere, "950000".to_owned());
    assert_eq!(in_force(&host), global);
    // And back again.
    control.apply_profile(&budgeted(Some(1))).unwrap();
    assert_eq!(in_force(&host), pinned);
    control.undo().unwrap();
    assert_eq!(host.state(), before);
    assert_eq!(control.undo().unwrap(), Undone::default());
}

/// A budget bounds VCPUs: a worker of a FIFO rank would take a CPU for as long as its guest gives it packets.
#[test]
fn a_vhost_worker_of_a_vm_with_a_budget_has_a_rank_only_where_the_file_says_so() {
    let vm = "[[vm]]\nname = \"rt\"\nclass = \"rt\"\n";
    let worker = |text: &str, budget: Option<VcpuBudget>| {
        let (host, directory) = (newest(), directory());
        let mut profile = profile(&format!("{text}{vm}"));
        let budget = budget.map(|budget| (1, budget));
        profile.vms[0].budgets.extend(budget);
        control(&host, &directory).apply_profile(&profile).unwrap();
        host.state().threads[&109].scheduling
    };
    let budget = budgeted(None).vms[0].budgets[&1];
    let (normal, fifo) = (Scheduling::normal(), |rank| Scheduling::fifo(rank, 0));
    assert_eq!(worker("", None), fifo(75));
    assert_eq!(worker("", Some(budget)), normal);
    let cpus = "[class.rt]\npath_cpus = [1]\n";
    assert_eq!(worker(cpus, Some(budget)), normal);
    let own = "[class.rt]\nvhost = 72\n";
    assert_eq!(worker(own, Some(budget)), fifo(72));
}

/// Under PREEMPT_RT a thread that was preempted under a spin lock is refused as one that is pinned.
#[test]
fn a_budget_that_a_busy_thread_is_refused_is_asked_for_again_within_bounds() {
    let (host, directory) = (newest(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    let refuse = |times: u32| host.edit(|state| state.busy.insert(102, times));
    let left = || host.state().busy[&102];
    refuse(7);
    control.apply_profile(&budgeted(None)).unwrap();
    assert_eq!((in_force(&host).0, left()), (Policy::Deadline, 0));
    control.undo().unwrap();

    // One that stays refused is told of, and all is as it was.
    refuse(u32::MAX);
    let error = control.apply_profile(&budgeted(None)).unwrap_err();
    assert!(error.to_string().contains("thread 102"), "{error}");
    assert_eq!(u32::MAX - left(), 100);
    host.edit(|state| state.busy.clear());
    assert_eq!(host.state(), before);

    // Where the thread is pinned, asking again is of no use.
    refuse(u32::MAX);
    host.edit(|state| state.threads.get_mut(&102).unwrap().cpus = CpuSet::single(0));
    control.apply_profile(&budgeted(None)).unwrap_err();
    assert_eq!(u32::MAX - left(), 1);
}

#[test]
fn budgets_on_cpus_of_their_own_are_refused_where_they_would_do_harm_or_cannot_be() {
    let (host, directory) = (newest(), directory());
    let control = control(&host, &directory);
    // Before 6.12 the same sysctl bounds FIFO threads, too.
    host.file("/proc/sys/kernel/osrelease", "6.1.0-rt\n");
    let before = host.state();
    let error = control.apply_profile(&budgeted(Some(1))).unwrap_err();
    assert!(matches!(error, HostError::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("6.12"), "{error}");
    assert_eq!(host.state(), before);
    // One without a CPU of its own is taken there.
    control.apply_profile(&budgeted(None)).unwrap();
    control.undo().unwrap();

    host.file("/proc/sys/kernel/osrelease", "6.12.117-rt\n");
    let before = host.state();
    let error = control.apply_profile(&budgeted(Some(2))).unwrap_err();
    assert!(
        error.to_string().contains("CPU 2, which is not online"),
        "{error}"
    );
    assert_eq!(host.state(), before);
}

/// The kernel admits nobody then: what it would refuse, is refused before anything is changed.
#[test]
fn a_cpu_is_never_promised_more_than_the_kernel_would_admit() {
    let (host, directory) = (newest(), directory());
    let control = control(&host, &directory);
    let before = host.state();
    let with = |shares: &[(u64, Option<u32>)]| {
        let mut profile = budgeted(None);
        profile.vms[0].budgets.clear();
        for (number, &(percent, cpu)) in shares.iter().enumerate() {
            let budget = VcpuBudget {
                runtime_ns: percent * 100_000,
                deadline_ns: 10_000_000,
                period_ns: 10_000_000,
                cpu,
                rank: 0,
            };
            profile.vms[0].budgets.insert(number as u32, budget);
        }
        profile
    };
    for shares in [
        &[(91, Some(0))][..],
        &[(50, Some(1)), (41, Some(1))],
        &[(90, Some(0)), (50, Some(1)), (41, None)],
    ] {
        let error = control.apply_profile(&with(shares)).unwrap_err();
        assert!(error.to_string().contains("fair server"), "{error}");
        assert_eq!(host.state(), before, "{shares:?}");
    }
    control
        .apply_profile(&with(&[(90, Some(0)), (90, Some(1))]))
        .unwrap();
    control.undo().unwrap();
    assert_eq!(host.state(), before);
}
