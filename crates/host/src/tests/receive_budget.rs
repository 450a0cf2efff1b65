//! A budget of what receiving for a VM costs, where a virtual function brings its packets: the function's polls have it.

use super::net::profile;
use super::scenario::{control, directory};
use super::shared_card::{FILE, OTHER, host};
use super::xdp_card::LIMITED;
use crate::fake::{FakeHost, Fault};
use crate::planner::Group;
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

fn budget() -> Scheduling {
    Scheduling::deadline(2_000_000, 10_000_000, 10_000_000, RESET_ON_FORK)
}

#[test]
fn polls_of_a_vms_function_get_its_budget_and_keep_it() {
    let (host, directory) = (host_with_functions(), directory());
    let control = control(&host, &directory);
    // A busy thread refuses it at first.
    host.edit(|state| state.busy.insert(71, 3));
    control.apply_profile(&profile(LIMITED)).unwrap();
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
    control.apply_profile(&profile(LIMITED)).unwrap();
    assert_eq!(scheduling(&host, 71), budget());
    // Without a budget its polls have the rank of the class, where they are.
    control.apply_profile(&profile(FILE)).unwrap();
    for tid in [71, 72] {
        assert_ne!(scheduling(&host, tid), budget());
    }
    control.apply_profile(&profile(LIMITED)).unwrap();
    control.undo().unwrap();
    for tid in [71, 72] {
        assert_eq!(scheduling(&host, tid), Scheduling::normal());
    }
}

/// `SCHED_DEADLINE` goes before all ranks, and takes no thread that is pinned.
#[test]
fn a_budget_is_refused_to_a_vm_without_a_rank_or_with_cpus_of_its_path_and_to_no_other() {
    let normal = LIMITED.replace("\"rt\"\nnic", "\"best-effort\"\nnic");
    let pinned = format!("[class.rt]\npath_cpus = [1]\n{LIMITED}");
    for (file, what) in [(normal, "`way = \"xdp\"`"), (pinned, "path_cpus")] {
        let (host, directory) = (host_with_functions(), directory());
        let control = control(&host, &directory);
        let vms = profile(&format!("{file}{OTHER}"));
        let report = control.apply_profile_each(&vms, &[]).unwrap();
        let [failure] = &report.failed[..] else {
            panic!("{report:?}");
        };
        assert_eq!(failure.group, Group::Vm("rt".into()));
        assert!(failure.error.contains(what), "{}", failure.error);
        assert_eq!(host.state().redirects.len(), 1);
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
        let report = control.apply_profile_each(&profile(LIMITED), &[]).unwrap();
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
