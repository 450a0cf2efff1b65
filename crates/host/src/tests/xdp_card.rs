//! One card for many VMs that has no virtual functions: an XDP program sorts its packets.

use super::crash::crashing;
use super::net::profile;
use super::scenario::{control, directory};
use super::shared_card::{FILE, OTHER, as_before, both, host};
use crate::address::parse_address;
use crate::fake::{FakeHost, Fault};
use crate::planner::Group;
use crate::settings::PacketBudget;
use crate::settings::threads::Scheduling;

/// The shared host, its card without functions.
pub fn host_with_xdp() -> FakeHost {
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

pub const LIMITED: &str = r#"
[[vm]]
name = "rt"
class = "rt"
nic = "bulk0"
receive = { budget = "2ms" }
"#;

fn budgets(host: &FakeHost) -> Vec<([u8; 6], PacketBudget)> {
    let budgets = host.state().packet_budgets.into_iter();
    budgets
        .map(|((_, address), budget)| (address, budget))
        .collect()
}

#[test]
fn a_vms_budget_is_set_kept_changed_and_undone() {
    let (host, directory) = (host_with_xdp(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    control.apply_profile(&profile(LIMITED)).unwrap();
    let budget = PacketBudget {
        runtime_ns: 2_000_000,
        period_ns: 10_000_000,
        packet_ns: 5_000,
    };
    assert_eq!(budgets(&host), [(address(1), budget)]);
    // As a watch finds it: somebody took it away.
    host.edit(|state| state.packet_budgets.clear());
    assert!(control.show().unwrap().has_drifted());
    control.apply_profile(&profile(LIMITED)).unwrap();
    assert_eq!(budgets(&host), [(address(1), budget)]);
    let mutations = host.mutations();
    control.apply_profile(&profile(LIMITED)).unwrap();
    assert_eq!(host.mutations(), mutations);
    let more = LIMITED.replace("\"2ms\"", "\"3ms\", period = \"4ms\", packet = \"700ns\"");
    control.apply_profile(&profile(&more)).unwrap();
    let changed = PacketBudget {
        runtime_ns: 3_000_000,
        period_ns: 4_000_000,
        packet_ns: 700,
    };
    assert_eq!(budgets(&host), [(address(1), changed)]);
    // The file has none any more: packets go on.
    control.apply_profile(&profile(FILE)).unwrap();
    assert_eq!((budgets(&host).len(), served(&host).len()), (0, 1));
    control.apply_profile(&profile(LIMITED)).unwrap();
    control.undo().unwrap();
    assert_eq!(as_before(host.state()), as_before(before));
}

#[test]
fn a_budget_goes_with_its_vm_and_comes_back_with_it() {
    let (host, directory) = (host_with_xdp(), directory());
    let control = control(&host, &directory);
    control.apply_profile(&profile(LIMITED)).unwrap();
    let with_vm = host.state();
    host.edit(|state| {
        state.threads.retain(|_, thread| thread.pid != 100);
        state.files.retain(|path, _| {
            !path.starts_with("/sys/class/net/tap-rt/") && !path.starts_with("/proc/100/")
        });
    });
    control.apply_profile(&profile(LIMITED)).unwrap();
    assert_eq!((budgets(&host).len(), served(&host).len()), (0, 0));
    host.edit(|state| {
        state.threads = with_vm.threads;
        state.files = with_vm.files;
    });
    control.apply_profile(&profile(LIMITED)).unwrap();
    assert_eq!((budgets(&host).len(), served(&host).len()), (1, 1));
}

/// Nothing of the VM stays behind, and the other has its way or none.
#[test]
fn a_kill_or_a_refusal_at_any_step_leaves_nothing_half() {
    let vms = profile(&format!("{LIMITED}{OTHER}"));
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
            crashing(|| drop(control(&host, &directory).apply_profile_each(&vms, &[])));
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
