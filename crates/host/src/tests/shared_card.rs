//! One card for many VMs: a virtual function for each that asks, kept by the host.

use super::crash::crashing;
use super::net::{kept, profile};
use super::scenario::{control, directory, paper_host};
use crate::address::parse_address;
use crate::fake::{FakeHost, FakeState, Fault};
use crate::planner::Group;
use crate::profile::Profile;
use crate::settings::threads::Scheduling;
use crate::undone::Undone;
use crate::{HostControl, PacketWay, Way};

pub const FILE: &str = r#"
[[vm]]
name = "rt"
class = "rt"
nic = "bulk0"
"#;

pub const OTHER: &str = r#"
[[vm]]
name = "bulk"
class = "rt"
nic = "bulk0"
mac = "52:54:00:00:00:02"
"#;

/// The paper's host with one card for both VMs: both taps are in its bridge.
pub fn host() -> FakeHost {
    let host = paper_host(2);
    host.card_with_functions("bulk0", 34, 0);
    host.file("/sys/class/net/br0/mtu", "1500\n");
    host.file("/sys/class/net/br0/bridge/vlan_filtering", "0\n");
    for device in ["bulk0", "tap-rt", "tap-bulk"] {
        host.edit(|state| {
            let class = state.real(&format!("/sys/class/net/{device}"));
            let master = format!("{class}/master");
            state.links.insert(master, "/sys/class/net/br0".into());
        });
    }
    for tap in ["tap-rt", "tap-bulk"] {
        for flag in ["unicast_flood", "broadcast_flood"] {
            host.writable_file(&format!("/sys/class/net/{tap}/brport/{flag}"), "1\n");
        }
    }
    let command = "qemu\0-name\0guest=rt,debug-threads=on\0-device\0virtio-net-pci,netdev=n0,mac=52:54:00:00:00:01\0";
    host.file("/proc/100/cmdline", command);
    host
}

pub fn both() -> Profile {
    profile(&format!("{FILE}{OTHER}"))
}

fn flags(state: &FakeState, tap: &str) -> [String; 2] {
    ["unicast_flood", "broadcast_flood"]
        .map(|flag| state.files[&format!("/sys/class/net/{tap}/brport/{flag}")].clone())
}

/// Without what a kernel does not take back: a function's interrupts are new each time, and so are the card's threads.
pub fn as_before(state: FakeState) -> FakeState {
    let mut state = kept(state);
    for thread in state.threads.values_mut() {
        thread.start_time = 0;
    }
    state
}

#[test]
fn a_card_is_enough_and_undo_takes_everything_back() {
    let (host, directory) = (host(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    let applied = control.apply_profile(&profile(FILE)).unwrap();
    let state = host.state();
    let address = parse_address("52:54:00:00:00:01").unwrap();
    assert_eq!(state.function_addresses[&("bulk0".into(), 0)], address);
    let pair = state.redirects["34-0"];
    assert_eq!(
        (pair.function, pair.tap, pair.address),
        (2340, 1100, address)
    );
    assert_eq!(flags(&state, "tap-rt"), ["0\n", "0\n"]);
    assert_eq!(flags(&state, "tap-bulk"), ["1\n", "1\n"]);
    // The function's interrupt has the rank of the VM's class, the card itself polls in normal threads.
    assert_eq!(state.threads[&2340].scheduling, Scheduling::fifo(80, 0));
    assert_eq!(state.threads[&64].scheduling, Scheduling::normal());
    let of_card = state.real("/sys/class/net/bulk0/threaded");
    assert_eq!(state.files[&of_card], "1\n");
    assert_eq!(applied.warnings, [] as [String; 0]);
    let undone = control.undo().unwrap();
    assert!(matches!(undone, Undone { .. }));
    assert_eq!(as_before(host.state()), as_before(before));
}

#[test]
fn each_vm_has_a_function_of_its_own_and_one_that_goes_gives_its_back() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    control.apply_profile(&both()).unwrap();
    let joined = |host: &FakeHost| host.state().redirects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(joined(&host), ["34-0", "34-1"]);
    // Once more: nothing changes.
    let mutations = host.mutations();
    control.apply_profile(&both()).unwrap();
    assert_eq!(host.mutations(), mutations);
    // The first VM migrates away: its packets are another host's now.
    host.edit(|state| {
        state.threads.retain(|_, thread| thread.pid != 100);
        state.files.retain(|path, _| {
            !path.starts_with("/sys/class/net/tap-rt/") && !path.starts_with("/proc/100/")
        });
    });
    control.apply_profile(&both()).unwrap();
    assert_eq!(joined(&host), ["34-1"]);
    assert_eq!(
        host.state().function_addresses[&("bulk0".into(), 0)],
        [0; 6]
    );
    assert_eq!(flags(&host.state(), "tap-bulk"), ["0\n", "0\n"]);
}

/// What is sent to a function without a link is lost.
#[test]
fn a_function_without_a_link_is_given_back() {
    let (host, directory) = (host(), directory());
    host.edit(|state| state.without_link.insert("bulk0v0".into()));
    let control = control(&host, &directory);
    let report = control.apply_profile_each(&profile(FILE), &[]).unwrap();
    let [failure] = &report.failed[..] else {
        panic!("{report:?}");
    };
    assert!(failure.error.contains("found none"), "{}", failure.error);
    let state = host.state();
    assert!(state.redirects.is_empty());
    let mut addresses = state.function_addresses.values();
    assert!(addresses.all(|address| *address == [0; 6]));
    assert_eq!(state.files["/sys/class/net/bulk0v0/flags"], "0x1002\n");
    assert_eq!(flags(&state, "tap-rt"), ["1\n", "1\n"]);
    // Without a cable nothing is lost, and both have their link once it is there.
    host.edit(|state| state.without_link.insert("bulk0".into()));
    let report = control.apply_profile_each(&profile(FILE), &[]).unwrap();
    assert!(report.failed.is_empty(), "{report:?}");
    assert_eq!(host.state().redirects.len(), 1);
}

/// With PREEMPT_RT before Linux 6.18 igbvf finds no answer on the CPU of the thread that has to give it (`OwnFunction`).
#[test]
fn a_function_whose_card_answers_on_another_cpu_gets_its_link() {
    for cpu in [0, 1] {
        let (host, directory) = (host(), directory());
        host.edit(|state| {
            state.without_link.insert("bulk0v0".into());
            state.asks_from.insert("bulk0v0".into(), cpu);
        });
        let control = control(&host, &directory);
        control.apply_profile(&profile(FILE)).unwrap();
        assert_eq!(host.state().redirects.len(), 1);
        control.undo().unwrap();
    }
}

#[test]
fn the_hosts_own_ipv6_does_not_speak_by_a_vms_function() {
    const SWITCH: &str = "/proc/sys/net/ipv6/conf/bulk0v0/disable_ipv6";
    let (host, directory) = (host(), directory());
    host.card_with_functions("bulk0", 34, 1);
    host.writable_file(SWITCH, "0\n");
    let control = control(&host, &directory);
    control.apply_profile(&profile(FILE)).unwrap();
    assert_eq!(host.state().files[SWITCH], "1\n");
    control.undo().unwrap();
    assert_eq!(host.state().files[SWITCH], "0\n");
}

#[test]
fn functions_that_are_there_are_used_if_they_are_idle_and_stay() {
    let (host, directory) = (host(), directory());
    host.card_with_functions("bulk0", 34, 3);
    // Somebody's.
    host.file("/sys/class/net/bulk0v0/flags", "0x1003\n");
    let before = host.state();
    let control = control(&host, &directory);
    control.apply_profile(&profile(FILE)).unwrap();
    assert!(host.state().redirects.contains_key("34-1"));
    control.undo().unwrap();
    assert_eq!(as_before(host.state()), as_before(before));
}

#[test]
fn what_cannot_be_is_refused_to_its_vm_alone_with_what_to_do() {
    type Spoil = fn(&FakeHost);
    let cases: [(Spoil, &str, &str); 8] = [
        (
            |host| {
                host.edit(|state| {
                    state
                        .files
                        .retain(|path, _| !path.ends_with("/sriov_totalvfs"));
                });
            },
            "bulk0 has no virtual functions",
            "a card of its own",
        ),
        (
            |host| {
                host.card_with_functions("bulk0", 34, 1);
                host.file("/sys/class/net/bulk0v0/flags", "0x1003\n");
            },
            "all 1 functions of bulk0 are taken",
            "make more of them",
        ),
        (
            |host| {
                host.file(
                    "/proc/100/cmdline",
                    "qemu\0-name\0guest=rt,debug-threads=on\0",
                );
            },
            "the address of VM \"rt\" behind tap-rt is not known",
            "write `mac",
        ),
        (
            |host| host.file("/sys/class/net/br0/bridge/vlan_filtering", "1\n"),
            "br0 tells VLANs apart",
            "leave `nic` out",
        ),
        (
            |host| {
                host.edit(|state| {
                    state.files.retain(|path, _| !path.contains("/br0/bridge/"));
                });
            },
            "which is no bridge of the kernel",
            "leave `nic` out",
        ),
        (
            |host| {
                host.edit(|state| {
                    let master = state.real("/sys/class/net/bulk0") + "/master";
                    state.links.remove(&master)
                });
            },
            "bulk0 is no port of a bridge",
            "name the card",
        ),
        (
            |host| {
                host.edit(|state| state.links.remove("/sys/class/net/tap-rt/master"));
            },
            "the VM has no tap in br0",
            "name the card",
        ),
        (
            |host| host.rename("bulk0", "other0"),
            "there is no network interface `bulk0`",
            "name a card",
        ),
    ];
    for (spoil, what, fix) in cases {
        let (host, directory) = (host(), directory());
        spoil(&host);
        let control = control(&host, &directory);
        let report = control.apply_profile_each(&profile(FILE), &[]).unwrap();
        let failed: Vec<&Group> = report.failed.iter().map(|it| &it.group).collect();
        assert_eq!(failed, [&Group::Vm("rt".into())], "{what}");
        let error = &report.failed[0].error;
        assert!(error.contains(what) && error.contains(fix), "{error}");
        assert!(host.state().redirects.is_empty());
        assert_eq!(flags(&host.state(), "tap-rt"), ["1\n", "1\n"]);
    }
}

/// Its tap's program would send the VM's packets nowhere, though the bridge still has a way.
#[test]
fn a_vm_whose_function_is_taken_away_goes_by_the_bridge_again() {
    type TakeAway = fn(&FakeHost);
    let functions: TakeAway = |host| {
        let device = host.state().real("/sys/class/net/bulk0/device");
        host.edit(|state| state.make_functions(&format!("{device}/sriov_numvfs"), 0));
    };
    let card: TakeAway = |host| {
        let path = host.state().real("/sys/class/net/bulk0");
        host.edit(|state| {
            state.make_functions(&state.real("/sys/class/net/bulk0/device/sriov_numvfs"), 0);
            state.files.retain(|file, _| !file.starts_with(&path));
            state.links.retain(|link, _| link != "/sys/class/net/bulk0");
        });
    };
    for take_away in [functions, card] {
        let (host, directory) = (host(), directory());
        let control = control(&host, &directory);
        control.apply_profile(&profile(FILE)).unwrap();
        take_away(&host);
        control.undo().unwrap();
        assert_eq!(host.state().redirects.len(), 0);
        assert_eq!(flags(&host.state(), "tap-rt"), ["1\n", "1\n"]);
    }
    // A watch makes them anew.
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    control.apply_profile(&profile(FILE)).unwrap();
    functions(&host);
    control.apply_profile(&profile(FILE)).unwrap();
    assert!(host.state().redirects.contains_key("34-0"));
}

#[test]
fn functions_that_somebody_else_uses_meanwhile_stay_until_they_are_free() {
    let (host, directory) = (host(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    control.apply_profile(&both()).unwrap();
    // The second VM's function is somebody's once steadyvm has given it back.
    let second = both().vms.len() - 1;
    let mut first = both();
    first.vms.remove(second);
    control.apply_profile(&first).unwrap();
    host.file("/sys/class/net/bulk0v1/flags", "0x1003\n");
    let undone = control.undo().unwrap();
    assert_eq!(undone.postponed.len(), 1, "{undone:?}");
    assert!(undone.postponed[0].contains("function 1 of bulk0"));
    let present = host
        .state()
        .real("/sys/class/net/bulk0/device/sriov_numvfs");
    assert_eq!(host.state().files[&present], "2\n");
    host.file("/sys/class/net/bulk0v1/flags", "0x1002\n");
    control.undo().unwrap();
    assert_eq!(as_before(host.state()), as_before(before));
}

#[test]
fn killed_at_any_step_everything_is_taken_back_later() {
    for (at, functions) in (0..40).flat_map(|at| [(at, 0), (at, 3)]) {
        let (host, directory) = (host(), directory());
        host.card_with_functions("bulk0", 34, functions);
        let before = host.state();
        let start = host.mutations();
        host.fault_at(at, Fault::CrashAfter);
        crashing(|| drop(control(&host, &directory).apply_profile(&both())));
        let reached = host.mutations() > start + at;
        host.heal();
        control(&host, &directory).undo().unwrap();
        assert_eq!(
            as_before(host.state()),
            as_before(before),
            "killed after step {at}, with {functions} functions"
        );
        assert!(reached || at > 10, "{at}");
    }
}

#[test]
fn a_driver_that_refuses_costs_one_vm_its_way_and_no_other_anything() {
    for at in 0.. {
        let (host, directory) = (host(), directory());
        let control = control(&host, &directory);
        let start = host.mutations();
        host.fault_at(at, Fault::Refuse(libc::EOPNOTSUPP));
        let report = control.apply_profile_each(&both(), &[]).unwrap();
        let reached = host.mutations() > start + at;
        host.heal();
        let state = host.state();
        // Whoever's way is not whole has none: its tap takes what the bridge brings.
        for (tap, index) in [("tap-rt", 1100), ("tap-bulk", 1200)] {
            let is_joined = state.redirects.values().any(|pair| pair.tap == index);
            let expected = if is_joined { "0\n" } else { "1\n" };
            assert_eq!(
                flags(&state, tap),
                [expected, expected],
                "step {at}: {report:?}"
            );
        }
        if !reached {
            break;
        }
    }
}

/// The way of VM `rt` by what is planned.
fn way(control: &HostControl, file: &str) -> PacketWay {
    let plan = control.plan_profile_each(&profile(file)).unwrap();
    let mut ways = plan.packet_ways.into_iter();
    ways.find(|it| it.vm == "rt").unwrap()
}

#[test]
fn the_way_of_a_vms_packets_is_told_as_it_comes_to_be() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    let card = || "bulk0".to_owned();
    let before = way(&control, FILE);
    let (count, first) = (1, before.to_do.as_str());
    assert_eq!(
        before.way,
        Way::FunctionsFirst {
            card: card(),
            count
        }
    );
    assert!(
        first.contains("run `steadyvm apply` before VMs start"),
        "{first}"
    );
    assert!(before.waits_behind_others());

    control.apply_profile(&profile(FILE)).unwrap();
    let by_function = way(&control, FILE);
    let expected = Way::VirtualFunction {
        card: card(),
        number: 0,
        device: Some("bulk0v0".to_owned()),
        address: "52:54:00:00:00:01".to_owned(),
        in_force: true,
    };
    assert_eq!(
        (by_function.way.clone(), by_function.to_do.as_str()),
        (expected, "")
    );
    assert!(!by_function.waits_behind_others());
    let sentence = by_function.sentence();
    assert!(sentence.starts_with("by function 0 of bulk0 (bulk0v0): bulk0 puts packets to 52:54:"));
    // Of what is in force no file is needed.
    assert_eq!(control.show().unwrap().packet_ways, [by_function]);

    // Somebody takes the function's address away.
    host.edit(|state| state.function_addresses.clear());
    let drifted = way(&control, FILE);
    assert!(matches!(
        drifted.way,
        Way::VirtualFunction {
            in_force: false,
            ..
        }
    ));
    assert!(
        drifted.to_do.contains("run `steadyvm apply`"),
        "{drifted:?}"
    );
}

#[test]
fn a_vm_that_shares_a_ring_is_told_why_and_what_is_left_to_do() {
    let unnamed = "[[vm]]\nname = \"rt\"\nclass = \"rt\"\n";
    let own = format!("{unnamed}[[nic]]\nname = \"bulk0\"\nclass = \"rt\"\n");
    let told = |spoil: fn(&FakeHost), file: &str| {
        let (host, directory) = (host(), directory());
        spoil(&host);
        way(&control(&host, &directory), file)
    };
    let without_functions = |host: &FakeHost| {
        host.edit(|state| {
            state
                .files
                .retain(|path, _| !path.ends_with("/sriov_totalvfs"));
        });
    };
    let no_bridge = |host: &FakeHost| {
        host.edit(|state| state.links.remove("/sys/class/net/tap-rt/master"));
    };
    let shared = Way::SharedRing {
        cards: vec!["bulk0".to_owned()],
    };
    for (spoil, file, why, to_do) in [
        (
            without_functions as fn(&FakeHost),
            FILE,
            "bulk0 has no virtual functions (SR-IOV)",
            "give the VM a card of its own",
        ),
        (
            |host: &FakeHost| host.file("/sys/class/net/br0/bridge/vlan_filtering", "1\n"),
            FILE,
            "br0 tells VLANs apart",
            "leave `nic` out",
        ),
        (
            |_: &FakeHost| {},
            unnamed,
            "wait behind those of all others",
            "write `nic = \"bulk0\"` in its table: bulk0 can have",
        ),
        (
            without_functions,
            unnamed,
            "wait behind those of all others",
            "give it a card of its own",
        ),
    ] {
        let found = told(spoil, file);
        assert_eq!(found.way, shared, "{found:?}");
        assert!(
            found.why.contains(why) && found.to_do.contains(to_do),
            "{found:?}"
        );
        assert!(found.waits_behind_others());
    }
    let own = told(|_| {}, &own);
    assert!(matches!(own.way, Way::OwnCard { .. }), "{own:?}");
    assert_eq!(own.to_do, "");
    assert_eq!(told(no_bridge, unnamed).way, Way::NoCard);
    let gone = told(
        |host| host.edit(|state| state.threads.retain(|_, thread| thread.pid != 100)),
        unnamed,
    );
    assert_eq!(gone.way, Way::NotRunning);
}
