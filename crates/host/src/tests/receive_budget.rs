//! A budget of what receiving for a VM costs, where a virtual function brings its packets: the function's polls have it.

use super::net::profile;
use super::scenario::{control, directory};
use super::shared_card::{FILE, OTHER, host};
use super::xdp_card::LIMITED;
use crate::CpuSet;
use crate::fake::{FakeHost, Fault};
use crate::parse::PF_USER_WORKER;
use crate::planner::Group;
use crate::profile::VcpuBudget;
use crate::settings::threads::{RESET_ON_FORK, Scheduling};

/// The shared host with two functions; the first gets NAPI threads.
fn host_with_functions() -> FakeHost {
    let host = host();
    host.card_with_functions("bulk0", 34, 2);
    host.edit(|state| state.napi_threads.insert("bulk0v0".into(), vec![71, 72]));
    host
}

fn scheduling(host: &FakeHost, tid: u32) -> Scheduling {
    host.state().threads[&tid].scheduling
}

/// Its two NAPI threads share the budget of the file.
fn limited() -> String {
    LIMITED.replace("budget =", "napi_threads = 2, budget =")
}

fn budget() -> Scheduling {
    Scheduling::deadline(1_000_000, 10_000_000, 10_000_000, RESET_ON_FORK)
}

#[test]
fn polls_of_a_vms_function_get_its_budget_and_keep_it() {
    let (host, directory) = (host_with_functions(), directory());
    let control = control(&host, &directory);
    // A busy thread refuses it at first.
    host.edit(|state| state.busy.insert(71, 3));
    control.apply_profile(&profile(&limited())).unwrap();
    for tid in [71, 72] {
        assert_eq!(scheduling(&host, tid), budget());
    }
    // What only wakes the poll has its rank.
    assert_eq!(scheduling(&host, 2340), Scheduling::fifo(80, 0));
    // As after `ethtool -L`: a new thread, which the watch finds.
    host.edit(|state| {
        let thread = state.threads.get_mut(&71).unwrap();
        thread.start_time += 1;
        thread.scheduling = Scheduling::normal();
    });
    assert!(control.show().unwrap().has_drifted());
    control.apply_profile(&profile(&limited())).unwrap();
    assert_eq!(scheduling(&host, 71), budget());
    // Without a budget its polls have the rank of the class, where they are.
    control.apply_profile(&profile(FILE)).unwrap();
    for tid in [71, 72] {
        assert_ne!(scheduling(&host, tid), budget());
    }
    control.apply_profile(&profile(&limited())).unwrap();
    control.undo().unwrap();
    for tid in [71, 72] {
        assert_eq!(scheduling(&host, tid), Scheduling::normal());
    }
}

/// `SCHED_DEADLINE` takes no thread that is pinned, and what the plan has not counted gets nothing.
#[test]
fn a_budget_is_refused_to_a_vm_with_cpus_of_its_path_or_more_threads_and_to_no_other() {
    let pinned = format!("[class.rt]\npath_cpus = [1]\n{}", limited());
    let of_vm = Group::Vm("rt".into());
    let of_card = Group::Nic("bulk0v0".into());
    for (file, group, what) in [
        (pinned, of_vm, "path_cpus"),
        (LIMITED.to_owned(), of_card, "write napi_threads = 2"),
    ] {
        let (host, directory) = (host_with_functions(), directory());
        let control = control(&host, &directory);
        let vms = profile(&format!("{file}{OTHER}"));
        let report = control.apply_profile_each(&vms, &[]).unwrap();
        let [failure] = &report.failed[..] else {
            panic!("{report:?}");
        };
        assert_eq!(failure.group, group);
        assert!(failure.error.contains(what), "{}", failure.error);
    }
}

/// An ordinary VM's function is bounded as well: its plan has counted that it goes before ranks for so long.
#[test]
fn an_ordinary_vms_function_and_workers_get_their_budgets_and_keep_them() {
    let (host, directory) = (host_with_functions(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    let bound = limited().replace("budget =", "vhost_budget = \"3ms\", budget =");
    let ordinary = bound.replace("\"rt\"\nnic", "\"best-effort\"\nnic");
    assert_ne!(ordinary, bound);
    let worker = Scheduling::deadline(3_000_000, 10_000_000, 10_000_000, RESET_ON_FORK);
    for file in [bound, ordinary] {
        control.apply_profile(&profile(&file)).unwrap();
        assert_eq!([71, 72].map(|tid| scheduling(&host, tid)), [budget(); 2]);
        assert_eq!(scheduling(&host, 109), worker);
    }
    // A worker that begins anew is found by the watch.
    host.edit(|state| state.threads.get_mut(&109).unwrap().scheduling = Scheduling::normal());
    assert!(control.show().unwrap().has_drifted());
    control.undo().unwrap();
    for tid in [71, 72, 109] {
        assert_eq!(scheduling(&host, tid), Scheduling::normal(), "{tid}");
    }
    assert_eq!(host.state().redirects, before.redirects);
}

/// Workers need no card of their own. More of them than the plan has counted get nothing.
#[test]
fn a_vms_workers_are_bounded_whatever_brings_its_packets() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    let file = "[[vm]]\nname = \"rt\"\nreceive = { vhost_budget = \"3ms\" }\n";
    control.apply_profile(&profile(file)).unwrap();
    let worker = Scheduling::deadline(3_000_000, 10_000_000, 10_000_000, RESET_ON_FORK);
    assert_eq!(scheduling(&host, 109), worker);
    control.undo().unwrap();
    assert_eq!(scheduling(&host, 109), Scheduling::normal());
    host.thread(100, 110, "vhost-100", PF_USER_WORKER);
    let report = control.apply_profile_each(&profile(file), &[]).unwrap();
    let [failure] = &report.failed[..] else {
        panic!("{report:?}");
    };
    assert!(
        failure.error.contains("write workers = 2"),
        "{}",
        failure.error
    );
    assert_eq!(scheduling(&host, 109), Scheduling::normal());
}

/// A plan that has CPUs for VCPUs has some for what receives, too, and holds each CPU to what the kernel would.
#[test]
fn budgets_of_a_plan_are_on_its_cpus_and_admitted_with_those_of_vcpus() {
    let planned = |percent: u64| {
        let mut profile = profile(&limited());
        let vm = &mut profile.vms[0];
        for budget in &mut vm.poll_budgets {
            budget.cpu = Some(1);
        }
        let vcpu = VcpuBudget {
            runtime_ns: percent * 100_000,
            deadline_ns: 10_000_000,
            period_ns: 10_000_000,
            cpu: Some(1),
            rank: 0,
        };
        vm.budgets.insert(1, vcpu);
        profile
    };
    let (host, directory) = (host_with_functions(), directory());
    host.file("/proc/sys/kernel/osrelease", "6.12.117-rt\n");
    let control = control(&host, &directory);
    let refused = control.apply_profile_each(&planned(75), &[]).unwrap();
    let [failure] = &refused.failed[..] else {
        panic!("{refused:?}");
    };
    assert!(
        failure.error.contains("95.0 % on CPU 1"),
        "{}",
        failure.error
    );
    control.apply_profile(&planned(70)).unwrap();
    let state = host.state();
    for tid in [71, 72] {
        let thread = &state.threads[&tid];
        assert_eq!(
            (thread.scheduling, thread.cpus.clone()),
            (budget(), CpuSet::single(1))
        );
    }
}

/// The kernel admits no more than the CPUs have, whichever thread comes last. The VM goes on by its function, and is told.
#[test]
fn a_budget_that_the_kernel_does_not_admit_is_told() {
    let mut told = 0;
    for at in 0.. {
        let (host, directory) = (host_with_functions(), directory());
        let control = control(&host, &directory);
        let start = host.mutations();
        host.fault_at(at, Fault::Refuse(libc::EBUSY));
        let report = control
            .apply_profile_each(&profile(&limited()), &[])
            .unwrap();
        if host.mutations() <= start + at {
            break;
        }
        let no_room = |error: &str| error.contains("no room for this budget");
        let Some(failure) = report.failed.iter().find(|it| no_room(&it.error)) else {
            continue;
        };
        if failure.group == Group::Nic("bulk0v0".into()) && failure.error.contains("napi/") {
            told += 1;
            assert_eq!(host.state().redirects.len(), 1);
        }
    }
    // Its two NAPI threads.
    assert_eq!(told, 2);
}
