//! Early demultiplexing as part of a profile: installed first, its threads ranked, taken back last.

use steadyvm_demux::{Frames, Protocol, Queues};

use super::crash::crashing;
use super::scenario::{control, paper_host};
use crate::error::HostError;
use crate::fake::{FakeHost, FakeState, Fault};
use crate::profile::{Profile, file};
use crate::settings::files::known::{THREAD_PRIORITY, XDP_PRIORITY};
use crate::settings::links::PortSocket;
use crate::settings::threads::Scheduling;
use crate::undone::Undone;

const FILE: &str = r#"
[net.demux]
nics = ["rt0"]
cpu = 1
levels = [{ from = 0, thread = "normal" }, { from = 50, thread = 60 }]

[class.rt]
irq = 90

[[nic]]
name = "rt0"
class = "rt"
"#;

/// The same with the kernel's own levels.
fn marking() -> String {
    let levels =
        "cpu = 1\nlevels = [{ from = 0, thread = \"normal\" }, { from = 50, thread = 60 }]";
    assert!(FILE.contains(levels));
    format!(
        "[net]\nlevels_from = 70\n{}",
        FILE.replace(levels, "rt_from = 50")
    )
}

fn profile(text: &str) -> Profile {
    file::parse("steadyvm.toml", text).unwrap()
}

/// A host with a service at priority 55 on UDP port 7, and one connection accepted on TCP port 9.
fn host() -> FakeHost {
    let host = paper_host(2);
    host.thread(700, 700, "service", 0);
    host.thread(700, 701, "worker", 0);
    let socket = |cookie, inode, protocol, port, listens| PortSocket {
        cookie,
        inode,
        protocol,
        port,
        listens,
    };
    host.edit(|state| {
        state.threads.get_mut(&701).unwrap().scheduling = Scheduling::fifo(55, 0);
        for (descriptor, inode) in [(3, 11), (4, 12), (5, 13)] {
            let path = format!("/proc/700/fd/{descriptor}");
            state.links.insert(path, format!("socket:[{inode}]"));
        }
        state.sockets = vec![
            socket(1, 11, Protocol::Udp, 7, false),
            socket(2, 12, Protocol::Tcp, 9, true),
            socket(3, 13, Protocol::Tcp, 9, false),
            socket(4, 99, Protocol::Udp, 8, false),
            socket(5, 11, Protocol::Udp, 0, false),
        ];
    });
    host
}

/// The state without start times: NICs that were restarted have new IRQ threads.
fn comparable(mut state: FakeState) -> FakeState {
    for thread in state.threads.values_mut() {
        thread.start_time = 0;
    }
    state
}

#[test]
fn the_sockets_of_running_processes_are_entered_with_their_priority() {
    let (host, directory) = (host(), super::scenario::directory());
    let before = host.state();
    let control = control(&host, &directory);
    let applied = control.apply_profile(&profile(FILE)).unwrap();
    let state = host.state();
    // The accepted connection goes by its listener, a socket without a process is nobody's.
    assert_eq!(state.demux_sockets, [(7, 701, 55), (9, 701, 55)]);
    assert_eq!(state.threads[&900].scheduling, Scheduling::normal());
    assert_eq!(state.threads[&901].scheduling, Scheduling::fifo(60, 0));
    // Installing restarted the NIC; its new IRQ threads have the rank all the same.
    for tid in [40, 41] {
        assert_eq!(state.threads[&tid].scheduling, Scheduling::fifo(90, 0));
        assert_ne!(
            state.threads[&tid].start_time,
            before.threads[&tid].start_time
        );
    }
    assert!(
        control
            .show()
            .unwrap()
            .settings
            .iter()
            .all(|setting| setting.holds)
    );
    // A port that was never bound is entered by the next apply, which changes nothing else.
    let mutations = host.mutations();
    host.edit(|state| {
        let client = PortSocket {
            cookie: 9,
            inode: 11,
            protocol: Protocol::Udp,
            port: 40_000,
            listens: false,
        };
        state.sockets.push(client);
    });
    let again = control.apply_profile(&profile(FILE)).unwrap();
    assert_eq!((again.steps.len(), again.in_force), (0, applied.in_force));
    assert_eq!(host.mutations(), mutations);
    assert!(host.state().demux_sockets.contains(&(40_000, 701, 55)));
    host.edit(|state| state.sockets.retain(|socket| socket.cookie != 9));
    control.undo_profile().unwrap();
    assert_eq!(comparable(host.state()), comparable(before));
}

#[test]
fn the_kernels_own_levels_get_marked_packets_and_no_threads() {
    for (old, in_force) in [(["0", "0"], ["15", "70"]), (["6", "85"], ["6", "85"])] {
        let (host, directory) = (host(), super::scenario::directory());
        host.writable_file(XDP_PRIORITY, &format!("{}\n", old[0]));
        host.writable_file(THREAD_PRIORITY, &format!("{}\n", old[1]));
        let before = host.state();
        let control = control(&host, &directory);
        control.apply_profile(&profile(&marking())).unwrap();
        let state = host.state();
        let files = [XDP_PRIORITY, THREAD_PRIORITY].map(|path| state.files[path].trim().to_owned());
        assert_eq!(files, in_force);
        assert_eq!(state.demux_sockets, [(7, 701, 55), (9, 701, 55)]);
        assert_eq!(state.demux.unwrap().queues, Queues::Kernel);
        assert!(!state.threads.contains_key(&900), "no level has a thread");
        assert_eq!(control.undo_profile().unwrap().failed, [] as [String; 0]);
        assert_eq!(comparable(host.state()), comparable(before));
    }
}

#[test]
fn a_kernel_that_takes_no_marks_is_refused() {
    let (host, directory) = (host(), super::scenario::directory());
    host.edit(|state| state.files.remove(XDP_PRIORITY));
    let before = host.state();
    let error = control(&host, &directory)
        .apply_profile(&profile(&marking()))
        .unwrap_err();
    assert_eq!(error.blame().exit_code(), 3);
    let text = error.to_string();
    for part in [
        "[net.demux] rt_from",
        XDP_PRIORITY,
        "give it cpu and levels",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(host.state(), before);
}

#[test]
fn either_threads_or_the_kernels_own_levels() {
    for (net, demux, what) in [
        (
            "levels_from = 70",
            "rt_from = 50\ncpu = 1",
            "or rt_from alone",
        ),
        ("levels_from = 70", "cpu = 1", "needs cpu and levels"),
        ("levels_from = 70", "", "needs cpu and levels"),
        ("levels_from = 70", "rt_from = 0", "every port"),
        ("levels_from = 70", "rt_from = 100", "99 is the highest"),
        (
            "budget_time = \"2ms\"",
            "rt_from = 50",
            "needs [net] levels_from",
        ),
    ] {
        let text = format!("[net]\n{net}\n[net.demux]\nnics = [\"rt0\"]\n{demux}\n");
        let error = file::parse("steadyvm.toml", &text).map(drop).unwrap_err();
        let error = error.to_string();
        assert!(
            error.starts_with("steadyvm.toml line 3") && error.contains(what),
            "{error}"
        );
    }
}

#[test]
fn a_profile_without_it_ends_it_and_keeps_the_ranks() {
    let (host, directory) = (host(), super::scenario::directory());
    let before = host.state();
    let control = control(&host, &directory);
    control.apply_profile(&profile(FILE)).unwrap();
    let without = &FILE[FILE.find("[class").unwrap()..];
    let applied = control.apply_profile(&profile(without)).unwrap();
    assert_eq!(applied.in_force, 2);
    let state = host.state();
    assert_eq!(state.demux, None);
    for tid in [40, 41] {
        assert_eq!(
            state.threads[&tid].scheduling,
            Scheduling::fifo(90, 0),
            "after the restart"
        );
    }
    control.undo_profile().unwrap();
    assert_eq!(comparable(host.state()), comparable(before));
}

#[test]
fn other_levels_take_the_place_of_the_ones_in_force_or_leave_them() {
    let other = FILE.replace("from = 50, thread = 60", "from = 40, thread = 50");
    let mut failures = 0;
    for at in 0.. {
        let (host, directory) = (host(), super::scenario::directory());
        let before = host.state();
        let control = control(&host, &directory);
        control.apply_profile(&profile(FILE)).unwrap();
        let in_force = comparable(host.state());
        host.fault_at(at, Fault::Refuse(libc::EPERM));
        let outcome = control.apply_profile(&profile(&other));
        host.heal();
        let state = host.state();
        if let Err(error) = &outcome {
            failures += 1;
            assert!(
                matches!(error, HostError::RolledBack { undone, .. } if undone.failed.is_empty()),
                "{error}"
            );
            assert_eq!(comparable(state), in_force, "refused at {at}");
        } else {
            assert_eq!(state.threads[&901].scheduling, Scheduling::fifo(50, 0));
            assert_eq!(state.threads[&40].scheduling, Scheduling::fifo(90, 0));
        }
        assert!(
            control
                .show()
                .unwrap()
                .settings
                .iter()
                .any(|setting| setting.holds)
        );
        assert_eq!(control.undo_profile().unwrap().failed, [] as [String; 0]);
        assert_eq!(comparable(host.state()), comparable(before));
        if outcome.is_ok() {
            break;
        }
    }
    assert!(
        failures >= 3,
        "ending, installing, the level's thread, two IRQ threads: {failures}"
    );
}

#[test]
fn crashes_and_refusals_leave_nothing() {
    // The second has four settings of the kernel more, and a level's thread less.
    for (text, changes) in [(FILE, 4), (&marking(), 7)] {
        for at in 0..changes + 2 {
            for fault in [
                Fault::CrashBefore,
                Fault::CrashAfter,
                Fault::Refuse(libc::EPERM),
            ] {
                let (host, directory) = (host(), super::scenario::directory());
                let before = host.state();
                let control = control(&host, &directory);
                host.fault_at(at, fault);
                let crashed = crashing(|| {
                    let _ = control.apply_profile(&profile(text));
                });
                host.heal();
                let undone = control.undo_profile().unwrap();
                assert_eq!(undone.failed, [] as [String; 0]);
                if !crashed && matches!(fault, Fault::Refuse(_)) && at < changes {
                    assert_eq!(undone, Undone::default(), "it was rolled back");
                }
                assert_eq!(
                    comparable(host.state()),
                    comparable(before),
                    "{fault:?} at {at}"
                );
            }
        }
    }
}

#[test]
fn programs_that_no_journal_knows_are_not_touched() {
    let (host, directory) = (host(), super::scenario::directory());
    let control = control(&host, &directory);
    control.apply_profile(&profile(FILE)).unwrap();
    control.forget().unwrap();
    let before = host.state();
    let error = control.apply_profile(&profile(FILE)).unwrap_err();
    assert!(matches!(error, HostError::BadInput { .. }), "{error}");
    assert!(
        error.to_string().contains("/sys/fs/bpf/steadyvm-demux"),
        "{error}"
    );
    assert_eq!(host.state(), before);
}

#[test]
fn levels_that_would_invert_are_refused_with_their_place() {
    let with = |levels: &str| {
        let text = format!("[net.demux]\nnics = [\"rt0\"]\ncpu = 1\nlevels = [{levels}]\n");
        file::parse("steadyvm.toml", &text).map(drop)
    };
    with("{ from = 0, thread = 49 }, { from = 50, thread = 60 }").unwrap();
    for (levels, what) in [
        (
            "{ from = 0, thread = 50 }, { from = 50, thread = 60 }",
            "would preempt processes",
        ),
        (
            "{ from = 0, thread = 40 }, { from = 50, thread = 30 }",
            "stands above the next level's",
        ),
        ("{ from = 1, thread = 40 }", "begins at priority 1"),
        ("{ from = 0, thread = 99 }", "1 to 98"),
        ("", "1 to 4 levels, not 0"),
    ] {
        let error = with(levels).unwrap_err().to_string();
        assert!(
            error.starts_with("steadyvm.toml line ") && error.contains(what),
            "{error}"
        );
    }
    let (host, directory) = (host(), super::scenario::directory());
    for (from, to, what) in [
        ("cpu = 1", "cpu = 7", "CPU 7 is not online"),
        (
            "nics = [\"rt0\"]",
            "nics = [\"rt9\"]",
            "no network interface `rt9`",
        ),
    ] {
        let error = control(&host, &directory)
            .apply_profile(&profile(&FILE.replace(from, to)))
            .unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
        assert_eq!(host.mutations(), 0);
    }
}

#[test]
fn frames_have_the_level_that_the_file_says_or_the_highest() {
    let with = |frames: &str| {
        let text = FILE.replace("cpu = 1\n", &format!("cpu = 1\nframes = [{frames}]\n"));
        file::parse("steadyvm.toml", &text)
    };
    let read = with("{ ethertype = \"0x88ba\" }, { vlan = 5, pcp = 4, level = 0 }").unwrap();
    let sampled_values = Frames {
        ethertype: Some(0x88ba),
        level: 1,
        ..Frames::default()
    };
    let of_vlan = Frames {
        vlan: Some(5),
        pcp: Some(4),
        ..Frames::default()
    };
    let specification = &read.demux.as_ref().unwrap().specification;
    assert_eq!(specification.frames, [sampled_values, of_vlan]);
    // What is in force is told, and is another thing without them.
    let (host, directory) = (host(), super::scenario::directory());
    let before = host.state();
    let control = control(&host, &directory);
    control.apply_profile(&read).unwrap();
    let shown = control.show().unwrap();
    let told = |text: &str| shown.settings.iter().any(|it| it.new.contains(text));
    assert!(told("2 kinds of frames named"), "{shown:?}");
    control.apply_profile(&profile(FILE)).unwrap();
    assert!(host.state().demux.unwrap().frames.is_empty());
    control.undo().unwrap();
    assert_eq!(comparable(host.state()), comparable(before));
    let many = ["{ pcp = 4 }"; 17].join(", ");
    for (frames, expected) in [
        ("{ level = 1 }", "at least one of ethertype, vlan and pcp"),
        ("{ pcp = 4, level = 2 }", "level 2 is not one of 0 to 1"),
        ("{ ethertype = 0x05ff }", "EtherTypes begin at 0x0600"),
        ("{ vlan = 4095 }", "VLAN 4095 is not one of 0 to 4094"),
        ("{ pcp = 8 }", "(pcp) 8 is not one of 0 to 7"),
        (&many, "there can be 16 kinds of frames, not 17"),
    ] {
        let error = with(frames).unwrap_err().to_string();
        assert!(error.contains(expected), "{frames}: {error}");
        assert!(error.contains("steadyvm.toml line "), "{frames}: {error}");
    }
}
