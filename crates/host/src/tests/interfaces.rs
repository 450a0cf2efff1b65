//! Interfaces of a VM with a class of their own: the administration network of a real-time VM stays ordinary.

use super::crash::crashing;
use super::net::profile;
use super::scenario::{control, directory, paper_host};
use crate::cpu_set::CpuSet;
use crate::error::HostError;
use crate::fake::{FakeHost, Fault};
use crate::parse::PF_USER_WORKER;
use crate::profile::file;
use crate::settings::threads::Scheduling;

const CLASS: &str =
    "[class.r]\nvhost = 75\nvcpu = 70\ntap_qdisc = \"noqueue\"\ntap_batch = 8\npath_cpus = [1]\n";

fn text(interfaces: &str) -> String {
    format!("{CLASS}[[vm]]\nname = \"relay\"\nclass = \"r\"\ninterfaces = [{interfaces}]\n")
}

const ADMINISTRATION: &str = "{ mac = \"52:54:00:00:00:02\", class = \"best-effort\" }";

/// Threads of the relay's interfaces: the process bus has two queues, the administration network one.
const PROCESS_BUS: [u32; 2] = [301, 302];
const OF_ADMINISTRATION: u32 = 303;

/// A VM as libvirt starts it: two taps, one of them with two queues, and a worker for each.
fn relay(second: &str) -> FakeHost {
    let host = paper_host(2);
    let netdevs = [
        r#"{"type":"tap","fds":"33:34","vhost":true,"vhostfds":"36:37","id":"hostnet0"}"#,
        second,
    ];
    let cards = [
        r#"{"driver":"virtio-net-pci","netdev":"hostnet0","mac":"52:54:00:00:00:01"}"#,
        r#"{"driver":"virtio-net-pci","netdev":"hostnet1","mac":"52:54:00:00:00:02"}"#,
    ];
    let mut words = vec![
        "qemu-system-x86_64",
        "-name",
        "guest=relay,debug-threads=on",
    ];
    for (netdev, card) in netdevs.iter().zip(cards) {
        words.extend(["-netdev", netdev, "-device", card]);
    }
    host.file("/proc/300/cmdline", &words.join("\0"));
    for (descriptor, tap) in [(33, "vnet0"), (34, "vnet0"), (35, "vnet1")] {
        let path = format!("/proc/300/fdinfo/{descriptor}");
        host.file(&path, &format!("pos:\t0\niff:\t{tap}\n"));
    }
    for (index, tap) in [(2000, "vnet0"), (2001, "vnet1")] {
        let path = format!("/sys/class/net/{tap}");
        host.file(&format!("{path}/mtu"), "1500\n");
        host.file(&format!("{path}/ifindex"), &format!("{index}\n"));
        host.file(&format!("{path}/tun_flags"), "0x5002\n");
        let last = index - 1999;
        host.file(
            &format!("{path}/address"),
            &format!("fe:54:00:00:00:{last:02}\n"),
        );
    }
    host.thread(300, 300, "qemu-system-x86", 0);
    for worker in [301, 302, 303] {
        host.thread(300, worker, "vhost-300", PF_USER_WORKER);
    }
    for vcpu in 0..2 {
        host.thread(300, 310 + vcpu, &format!("CPU {vcpu}/KVM"), 0);
    }
    host.kvm_vm(300, 2);
    host.open(300, 12, "/dev/vhost-net", None);
    host.open(300, 13, "/dev/vhost-net", None);
    host
}

fn host() -> FakeHost {
    relay(r#"{"type":"tap","fd":"35","vhost":true,"vhostfd":"38","id":"hostnet1"}"#)
}

fn scheduling(host: &FakeHost, tid: u32) -> Scheduling {
    host.state().threads[&tid].scheduling
}

fn is_ranked(host: &FakeHost, tid: u32) -> bool {
    scheduling(host, tid) == Scheduling::fifo(75, 0)
}

/// The target: ranks given to threads of an ordinary interface: 0.
#[test]
fn no_thread_of_an_ordinary_interface_gets_a_rank_and_undo_takes_all_back() {
    for named in [
        ADMINISTRATION,
        "{ tap = \"vnet1\", class = \"best-effort\" }",
    ] {
        let (host, directory) = (host(), directory());
        let before = host.state();
        let control = control(&host, &directory);
        let applied = control.apply_profile(&profile(&text(named))).unwrap();
        assert_eq!(applied.warnings, [] as [String; 0]);
        let ordinary = [OF_ADMINISTRATION];
        let ranks = ordinary.iter().filter(|tid| is_ranked(&host, **tid));
        assert_eq!(ranks.count(), 0);
        let state = host.state();
        let own = &state.threads[&OF_ADMINISTRATION];
        assert_eq!(
            (own.scheduling, &own.cpus),
            (Scheduling::normal(), &state.online)
        );
        for tid in PROCESS_BUS {
            assert!(is_ranked(&host, tid), "{tid}");
            assert_eq!(state.threads[&tid].cpus, CpuSet::single(1));
        }
        assert_eq!(
            state.qdiscs.get("vnet0").map(String::as_str),
            Some("noqueue")
        );
        assert_eq!(state.qdiscs.get("vnet1"), None);
        assert_eq!(state.rx_frames.get("vnet0"), Some(&7));
        assert_eq!(state.rx_frames.get("vnet1"), None);
        // Once more: nothing changes. And the same threads are told of by what they are for.
        let mutations = host.mutations();
        control.apply_profile(&profile(&text(named))).unwrap();
        assert_eq!(host.mutations(), mutations);
        let planned = control.plan_profile(&profile(&text(named))).unwrap();
        let threads = &planned.vms[0].threads;
        assert!(
            threads[&OF_ADMINISTRATION].contains("class \"best-effort\""),
            "{threads:?}"
        );
        assert_eq!(threads[&301], "vhost worker");
        control.undo().unwrap();
        assert_eq!(host.state(), before, "{named}");
    }
}

#[test]
fn without_it_all_interfaces_have_the_vms_class_and_writing_it_takes_the_rank_away() {
    let (host, directory) = (host(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    control.apply_profile(&profile(&text(""))).unwrap();
    assert!([301, 302, 303].iter().all(|tid| is_ranked(&host, *tid)));
    control
        .apply_profile(&profile(&text(ADMINISTRATION)))
        .unwrap();
    assert!(is_ranked(&host, 301) && !is_ranked(&host, OF_ADMINISTRATION));
    assert_eq!(host.state().qdiscs.get("vnet1"), None);
    control.apply_profile(&profile(&text(""))).unwrap();
    assert!(is_ranked(&host, OF_ADMINISTRATION));
    control.undo().unwrap();
    assert_eq!(host.state(), before);
}

/// Somebody's hook raises all workers of a VM, as those of SEAPATH do.
#[test]
fn a_worker_that_somebody_raised_becomes_ordinary_again() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    control
        .apply_profile(&profile(&text(ADMINISTRATION)))
        .unwrap();
    let desired = control.desired_in_force().unwrap().unwrap();
    host.edit(|state| {
        let thread = state.threads.get_mut(&OF_ADMINISTRATION).unwrap();
        thread.scheduling = Scheduling::fifo(50, 0);
    });
    assert!(control.show().unwrap().has_drifted());
    control.reconcile_each(&desired).unwrap();
    assert_eq!(scheduling(&host, OF_ADMINISTRATION), Scheduling::normal());
}

/// A class of one's own for each: the workers have its rank and CPUs.
#[test]
fn each_interface_may_have_a_rank_of_its_own() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    let station = "{ mac = \"52:54:00:00:00:02\", class = \"station\" }";
    let file = format!(
        "[class.station]\nvhost = 72\npath_cpus = [0]\n{}",
        text(station)
    );
    control.apply_profile(&profile(&file)).unwrap();
    let state = host.state();
    let own = &state.threads[&OF_ADMINISTRATION];
    assert_eq!(
        (own.scheduling, &own.cpus),
        (Scheduling::fifo(72, 0), &CpuSet::single(0))
    );
    assert!(is_ranked(&host, 301));
}

/// What happened to a host before.
type Change<'c> = &'c dyn Fn(&FakeHost);

/// What is not known keeps the VM's class, and is told.
#[test]
fn workers_that_cannot_be_told_apart_keep_the_vms_class_and_apply_says_so() {
    let plugged_later = |host: &FakeHost| {
        // The administration network was unplugged and plugged in again.
        host.edit(|state| drop(state.threads.remove(&OF_ADMINISTRATION)));
        host.thread(300, 350, "vhost-300", PF_USER_WORKER);
    };
    let other_monitor = |host: &FakeHost| {
        host.file(
            "/proc/300/cmdline",
            "qemu-system-x86_64\0-name\0guest=relay\0-net\0tap",
        );
    };
    let cases: [(Change<'_>, &str); 2] = [
        (&plugged_later, "3 vhost devices, and 2 of its workers"),
        (&other_monitor, "has no interface 52:54:00:00:00:02"),
    ];
    for (change, expected) in cases {
        let (host, directory) = (host(), directory());
        change(&host);
        let before = host.state();
        let control = control(&host, &directory);
        let applied = control
            .apply_profile(&profile(&text(ADMINISTRATION)))
            .unwrap();
        let told = applied.warnings.iter().any(|it| it.contains(expected));
        assert!(told, "{:?}", applied.warnings);
        let state = host.state();
        let workers = state.threads.values().filter(|it| it.comm == "vhost-300");
        let ranks: Vec<Scheduling> = workers.map(|thread| thread.scheduling).collect();
        assert_eq!(ranks, [Scheduling::fifo(75, 0); 3]);
        control.undo().unwrap();
        assert_eq!(host.state(), before);
    }
}

/// Its tap, and what it is called, are known all the same.
#[test]
fn an_interface_without_vhost_has_a_tap_of_its_class_and_takes_no_worker() {
    let host = relay(r#"{"type":"tap","fd":"35","id":"hostnet1"}"#);
    host.edit(|state| drop(state.threads.remove(&OF_ADMINISTRATION)));
    let directory = directory();
    let control = control(&host, &directory);
    let applied = control
        .apply_profile(&profile(&text(ADMINISTRATION)))
        .unwrap();
    assert_eq!(applied.warnings, [] as [String; 0]);
    assert!(PROCESS_BUS.iter().all(|tid| is_ranked(&host, *tid)));
    assert_eq!(host.state().qdiscs.get("vnet1"), None);
}

#[test]
fn what_names_no_interface_is_refused_with_its_place() {
    for (interface, expected) in [
        ("{ class = \"r\" }", "exactly one of mac and tap"),
        (
            "{ mac = \"52:54:00:00:00:02\", tap = \"vnet1\", class = \"r\" }",
            "exactly one of mac and tap",
        ),
        (
            "{ mac = \"01:0c:cd:01:00:00\", class = \"r\" }",
            "no hardware address of one interface",
        ),
        (
            "{ mac = \"52:54\", class = \"r\" }",
            "no hardware address of one interface",
        ),
        ("{ tap = \"a/b\", class = \"r\" }", "no name of a tap"),
        (
            "{ tap = \"a-name-that-is-long\", class = \"r\" }",
            "no name of a tap",
        ),
        (
            "{ mac = \"52:54:00:00:00:02\", class = \"x\" }",
            "there is no class \"x\"",
        ),
        (
            "{ tap = \"vnet1\", class = \"r\" }, { tap = \"vnet1\", class = \"best-effort\" }",
            "interface vnet1 is there twice",
        ),
    ] {
        let error: HostError = file::parse("steadyvm.toml", &text(interface)).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.blame().exit_code(), 2, "{interface}");
        assert!(text.contains(expected), "{interface}: {text}");
        assert!(
            text.contains("steadyvm.toml line 10"),
            "{interface}: {text}"
        );
    }
}

#[test]
fn a_crash_or_refusal_at_any_step_is_undone() {
    let host = host();
    let before = host.state();
    for fault in [
        Fault::CrashBefore,
        Fault::CrashAfter,
        Fault::Refuse(libc::EPERM),
    ] {
        for at in 0.. {
            let directory = directory();
            let control = control(&host, &directory);
            let start = host.mutations();
            host.fault_at(at, fault);
            crashing(|| {
                let _ = control.apply_profile(&profile(&text(ADMINISTRATION)));
            });
            let reached = host.mutations() > start + at;
            host.heal();
            assert_eq!(control.undo().unwrap().failed, [] as [String; 0]);
            assert_eq!(host.state(), before, "{fault:?} at {at}");
            if !reached {
                break;
            }
        }
    }
}
