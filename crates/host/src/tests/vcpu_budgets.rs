//! Budgets of virtual CPUs by `sched_ext`: one scheduler, as VMs come and go.

use std::collections::BTreeMap;

use steadyvm_sched::config::{Queue, Vm};
use steadyvm_sched::enforcement::{Enforcement, Reserved};

use super::net::profile;
use super::scenario::{control, directory, paper_host};
use crate::cpu_set::CpuSet;
use crate::error::HostError;
use crate::fake::{FakeHost, Fault};
use crate::profile::{Profile, SchedulerProfile, VcpuBudget};
use crate::settings::threads::Policy;
use crate::undone::Undone;

fn host() -> FakeHost {
    let host = paper_host(2);
    host.file("/sys/kernel/sched_ext/state", "disabled\n");
    host
}

/// VCPU 1 of VM `rt` (thread 102) has 4 of every 10 ms.
fn budgeted(cpu: Option<u32>) -> Profile {
    let mut profile =
        profile("[class.rt]\nvhost = 75\nvcpu = 70\n[[vm]]\nname = \"rt\"\nclass = \"rt\"\n");
    let budget = VcpuBudget {
        runtime_ns: 4_000_000,
        deadline_ns: 10_000_000,
        period_ns: 10_000_000,
        cpu,
        rank: 3,
    };
    profile.vms[0].budgets.insert(1, budget);
    profile.vcpu_scheduler = Some(SchedulerProfile {
        queue: if cpu.is_some() {
            Queue::Partitioned
        } else {
            Queue::Global
        },
        server: "cbs".into(),
        ..SchedulerProfile::default()
    });
    profile
}

fn reserved(host: &FakeHost) -> Option<Vec<Reserved>> {
    host.state().vcpu_scheduler.map(|all| all.vcpus)
}

#[test]
fn budgets_follow_the_profile_and_undo_gives_the_kernels_scheduler_back() {
    let (host, directory) = (host(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    control.apply_profile(&budgeted(None)).unwrap();
    let one = Reserved {
        vm: "rt".into(),
        vcpu: 1,
        tid: 102,
        server: "cbs".into(),
        budget_ns: 4_000_000,
        deadline_ns: 10_000_000,
        period_ns: 10_000_000,
        priority: 3,
        cpus: Vec::new(),
    };
    assert_eq!(reserved(&host), Some(vec![one.clone()]));
    // sched_ext has normal threads only: the VCPU keeps its policy.
    let policy = host.state().threads[&102].scheduling.policy;
    assert_eq!(policy, Policy::Normal);
    assert!(control.show().unwrap().settings.iter().all(|it| it.holds));

    // Another plan: its CPU, and a deadline before the period's end, which counts from the wake-up.
    let mut pinned = budgeted(Some(1));
    pinned.vms[0].budgets.get_mut(&1).unwrap().deadline_ns = 5_000_000;
    control.apply_profile(&pinned).unwrap();
    let expected = Reserved {
        server: "sporadic".into(),
        deadline_ns: 5_000_000,
        cpus: vec![1],
        ..one
    };
    assert_eq!(reserved(&host), Some(vec![expected]));
    assert_eq!(host.state().threads[&102].cpus, CpuSet::single(1));
    control.undo().unwrap();
    assert_eq!(host.state(), before);
    assert_eq!(control.undo().unwrap(), Undone::default());
}

/// The kernel idles siblings by force above every class: a budget there would be promised and not kept.
#[test]
fn a_vcpu_with_a_core_scheduling_cookie_is_refused_with_the_reason() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    host.edit(|state| state.core_cookies = [(102, 0x1234)].into());
    let before = host.state();
    let error = control.apply_profile(&budgeted(None)).unwrap_err();
    let said = error.to_string();
    for words in [
        "VCPU 1 of VM \"rt\"",
        "core-scheduling cookie",
        "SMT",
        "sched_core",
    ] {
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(host.state(), before);
    // Threads without a budget may have one.
    host.edit(|state| {
        state.core_cookies = [(101, 1)].into();
    });
    control.apply_profile(&budgeted(None)).unwrap();
    assert_eq!(reserved(&host).map(|all| all.len()), Some(1));
}

#[test]
fn a_scheduler_that_is_gone_is_drift_and_comes_back() {
    let (host, directory) = (host(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    control.apply_profile(&budgeted(None)).unwrap();
    let enforced = host.state();
    // Its loader was killed.
    host.edit(|state| state.vcpu_scheduler = None);
    let status = control.show().unwrap();
    let drifted: Vec<_> = status.settings.iter().filter(|it| !it.holds).collect();
    assert_eq!(drifted.len(), 1);
    assert_eq!(drifted[0].subject, "VCPU budgets by sched_ext");
    control.apply_profile(&budgeted(None)).unwrap();
    assert_eq!(host.state(), enforced);
    // The same, and undone: there is nothing to end.
    host.edit(|state| state.vcpu_scheduler = None);
    control.undo().unwrap();
    assert_eq!(host.state(), before);
}

#[test]
fn a_loader_that_was_only_started_is_ended_by_undo() {
    let (host, directory) = (host(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    control.apply_profile(&budgeted(None)).unwrap();
    // As a crash between its start and the first request leaves it.
    host.edit(|state| state.vcpu_scheduler = Some(Enforcement::default()));
    control.undo().unwrap();
    assert_eq!(host.state(), before);
}

#[test]
fn a_vcpu_that_ends_needs_no_budget() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    control.apply_profile(&budgeted(None)).unwrap();
    host.edit(|state| state.threads.remove(&102));
    let status = control.show().unwrap();
    let budgets = status.settings.iter();
    let mut budgets = budgets.filter(|it| it.subject == "VCPU budgets by sched_ext");
    assert!(budgets.next().unwrap().holds);
    control.undo().unwrap();
    assert_eq!(host.state().vcpu_scheduler, None);
}

#[test]
fn a_vcpu_that_ends_during_apply_is_left_out() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    // The last step is the scheduler's.
    let steps = control.plan_profile(&budgeted(None)).unwrap().steps.len();
    host.fault_at(steps - 1, Fault::End(102));
    let _ = control.apply_profile(&budgeted(None));
    control.apply_profile(&budgeted(None)).unwrap();
    let left = reserved(&host).unwrap_or_default();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_no_host_can_hold_is_refused_and_changes_nothing() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    let before = host.state();
    let refused = |profile: &Profile, says: &str| {
        let error = control.apply_profile(profile).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(host.state(), before);
    };
    let mut much = budgeted(Some(1));
    much.vms[0].budgets.get_mut(&1).unwrap().runtime_ns = 9_600_000;
    refused(&much, "96.0 % on CPU 1");
    let mut coarse = budgeted(None);
    coarse.vcpu_scheduler.as_mut().unwrap().quantum_ns = 10_000_001;
    refused(&coarse, "below the quantum");
    refused(&budgeted(Some(7)), "not online");
    host.edit(|state| state.files.remove("/sys/kernel/sched_ext/state"));
    let error = control.apply_profile(&budgeted(None)).unwrap_err();
    assert!(matches!(error, HostError::Unsupported { .. }), "{error}");
}

#[test]
fn a_vm_without_a_plan_has_the_same_budget_for_every_vcpu() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    let mut profile = budgeted(None);
    profile.vms[0].budgets.clear();
    // Nothing else is asked of it.
    profile.vms[0].class = crate::profile::Class::default();
    let budget = Vm {
        budget_ns: 1_000_000,
        period_ns: 10_000_000,
        deadline_ns: None,
        priority: 0,
        cpus: Vec::new(),
    };
    let scheduler = profile.vcpu_scheduler.as_mut().unwrap();
    scheduler.vms = BTreeMap::from([("rt".to_owned(), budget)]);
    control.apply_profile(&profile).unwrap();
    let found = reserved(&host).unwrap();
    let vcpus: Vec<_> = found.iter().map(|it| (it.vcpu, it.budget_ns)).collect();
    assert_eq!(vcpus, [(0, 1_000_000), (1, 1_000_000)]);
    // None of them has the class's priority.
    for tid in found.iter().map(|it| it.tid) {
        let policy = host.state().threads[&tid].scheduling.policy;
        assert_eq!(policy, Policy::Normal);
    }
    // Nor has its vhost worker the built-in rank, which no budget bounds.
    profile.vms[0].class = crate::profile::Class::built_in("rt").unwrap();
    control.apply_profile(&profile).unwrap();
    let worker = host.state().threads[&109].scheduling.policy;
    assert_eq!(worker, Policy::Normal);
}
