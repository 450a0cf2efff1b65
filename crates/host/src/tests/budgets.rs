//! Budgets of virtual CPUs, each on any CPU or on the one of its plan.

use super::net::profile;
use super::scenario::{control, directory, paper_host};
use crate::cpu_set::CpuSet;
use crate::fake::FakeHost;
use crate::net::{Profile, VcpuBudget};
use crate::threads::{Policy, RESET_ON_FORK, Scheduling};
use crate::{HostError, Undone};

const THROTTLING: &str = "/proc/sys/kernel/sched_rt_runtime_us";

/// VCPU 1 of VM `rt` (thread 102) has 4 of every 10 ms.
fn budgeted(cpu: Option<u32>) -> Profile {
    let mut profile =
        profile("[class.rt.net]\nvhost = 75\n[[vm]]\nname = \"rt\"\nclass = \"rt\"\n");
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
