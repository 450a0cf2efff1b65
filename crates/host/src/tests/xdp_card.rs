//! One card for many VMs that has no virtual functions: an XDP program sorts its packets.

use super::crash::crashing;
use super::net::profile;
use super::scenario::{control, directory};
use super::shared_card::{FILE, as_before, both, host};
use crate::address::parse_address;
use crate::fake::{FakeHost, Fault};
use crate::planner::Group;
use crate::settings::threads::Scheduling;

/// The shared host, its card without functions.
fn host_with_xdp() -> FakeHost {
    let host = host();
    host.edit(|state| {
        let files = &mut state.files;
        files.retain(|path, _| !path.contains("/sriov_"));
        state.with_xdp.insert("bulk0".into());
    });
    host
}

fn served(host: &FakeHost) -> Vec<([u8; 6], u32)> {
    let state = host.state();
    let program = state.programs.get("34-xdp");
    program
        .into_iter()
        .flatten()
        .map(|(a, tap)| (*a, *tap))
        .collect()
}

fn address(last: u8) -> [u8; 6] {
    parse_address(&format!("52:54:00:00:00:{last:02x}")).unwrap()
}

#[test]
fn a_card_without_functions_sorts_by_a_program_and_undo_takes_it_back() {
    let (host, directory) = (host_with_xdp(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    control.apply_profile(&both()).unwrap();
    assert_eq!(served(&host), [(address(1), 1100), (address(2), 1200)]);
    // Its polls are short, and have the VMs' rank.
    let state = host.state();
    let of_card = |comm: &str| comm.starts_with("irq/") && comm.contains("bulk0");
    let threads = state.threads.values().filter(|it| of_card(&it.comm));
    let ranks: Vec<_> = threads.map(|thread| thread.scheduling).collect();
    assert!(!ranks.is_empty() && ranks.iter().all(|rank| *rank == Scheduling::fifo(80, 0)));
    // Once more: nothing changes.
    let mutations = host.mutations();
    control.apply_profile(&both()).unwrap();
    assert_eq!(host.mutations(), mutations);
    control.undo().unwrap();
    assert_eq!(as_before(host.state()), as_before(before));
}

#[test]
fn a_vm_that_goes_is_looked_for_no_more_and_the_last_takes_the_program_along() {
    let (host, directory) = (host_with_xdp(), directory());
    let control = control(&host, &directory);
    control.apply_profile(&both()).unwrap();
    host.edit(|state| {
        state.threads.retain(|_, thread| thread.pid != 100);
        state.files.retain(|path, _| {
            !path.starts_with("/sys/class/net/tap-rt/") && !path.starts_with("/proc/100/")
        });
    });
    control.apply_profile(&both()).unwrap();
    assert_eq!(served(&host), [(address(2), 1200)]);
    let other = "[[nic]]\nname = \"rt0\"\nclass = \"rt\"\n";
    control.apply_profile(&profile(other)).unwrap();
    assert!(host.state().programs.is_empty());
}

/// Its card would restart under others' VMs, each time that it starts or stops.
#[test]
fn a_card_that_the_file_names_stays_prepared_while_its_vm_does_not_run() {
    let with_functions = || (host(), "virtual functions");
    let with_program = || (host_with_xdp(), "program");
    for (host, what) in [with_functions(), with_program()] {
        let directory = directory();
        let control = control(&host, &directory);
        control.apply_profile(&profile(FILE)).unwrap();
        let made = |host: &FakeHost| {
            let state = host.state();
            let functions = state.real("/sys/class/net/bulk0/device/sriov_numvfs");
            let functions = state.files.get(&functions).cloned();
            (functions, state.programs.len())
        };
        let prepared = made(&host);
        host.edit(|state| {
            state.threads.retain(|_, thread| thread.pid != 100);
            state.files.retain(|path, _| {
                !path.starts_with("/sys/class/net/tap-rt/") && !path.starts_with("/proc/100/")
            });
        });
        control.apply_profile(&profile(FILE)).unwrap();
        assert_eq!(made(&host), prepared, "{what}");
        assert!(served(&host).is_empty() && host.state().redirects.is_empty());
        control.undo().unwrap();
        assert_ne!(made(&host), prepared, "{what}");
    }
}

#[test]
fn a_driver_that_takes_no_program_is_said_to_its_vm() {
    let (host, directory) = (host_with_xdp(), directory());
    host.edit(|state| state.with_xdp.clear());
    let control = control(&host, &directory);
    let report = control.apply_profile_each(&profile(FILE), &[]).unwrap();
    let [failure] = &report.failed[..] else {
        panic!("{report:?}");
    };
    assert_eq!(failure.group, Group::Vm("rt".into()));
    assert!(failure.error.contains("does not redirect by XDP"));
}

/// Nothing of the VM stays behind, and the other has its way or none.
#[test]
fn a_kill_or_a_refusal_at_any_step_leaves_nothing_half() {
    for at in 0.. {
        let mut reached = false;
        for fault in [
            Fault::CrashBefore,
            Fault::CrashAfter,
            Fault::Refuse(libc::EOPNOTSUPP),
        ] {
            let (host, directory) = (host_with_xdp(), directory());
            let before = host.state();
            let start = host.mutations();
            host.fault_at(at, fault);
            crashing(|| drop(control(&host, &directory).apply_profile_each(&both(), &[])));
            reached |= host.mutations() > start + at;
            host.heal();
            control(&host, &directory).undo().unwrap();
            assert_eq!(
                as_before(host.state()),
                as_before(before),
                "step {at}, {fault:?}"
            );
        }
        assert!(reached || at > 10, "{at}");
        if !reached {
            break;
        }
    }
}

/// The card is taken away: the program went with it, and what is left of it is undone.
#[test]
fn a_card_that_goes_takes_its_program_along() {
    let (host, directory) = (host_with_xdp(), directory());
    let control = control(&host, &directory);
    control.apply_profile(&profile(FILE)).unwrap();
    let path = host.state().real("/sys/class/net/bulk0");
    host.edit(|state| {
        state.files.retain(|file, _| !file.starts_with(&path));
        state.links.retain(|link, _| link != "/sys/class/net/bulk0");
    });
    control.undo().unwrap();
    assert!(host.state().programs.is_empty());
}
