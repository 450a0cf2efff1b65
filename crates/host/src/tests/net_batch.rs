//! The batch of VMs' taps: what a class says, what is so by itself where the receive path has
//! levels, and what becomes of it when queues, taps and VMs come and go.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::crash::crashing;
use super::scenario::{control, paper_host};
use crate::engine::Snapshot;
use crate::error::HostError;
use crate::fake::{FakeHost, FakeState, Fault};
use crate::profile::{Profile, file};
use crate::settings::links::UNLIMITED_BYTES;
use crate::undone::Undone;

const LIMIT_BYTES: u32 = 16 << 20;
const RTNET_PRIO: &str = "/proc/sys/net/core/rtnet_prio";
const RTNET_QUANTUM: &str = "/proc/sys/net/core/rtnet_quantum";

fn profile(text: &str) -> Profile {
    file::parse("steadyvm.toml", text).unwrap()
}

/// VM `bulk` with these settings of its class, below these of the host.
fn bulk(net: &str, class: &str) -> Profile {
    profile(&format!(
        "[net]\n{net}\n[class.c]\n{class}\n[[vm]]\nname = \"bulk\"\nclass = \"c\"\n"
    ))
}

fn directory() -> tempfile::TempDir {
    super::scenario::directory()
}

/// The limits by process and descriptor, and the packets that taps gather.
fn batches(state: &FakeState) -> (BTreeMap<(u32, u32), u32>, BTreeMap<String, u32>) {
    (state.send_buffers.clone(), state.rx_frames.clone())
}

/// Of tap-bulk alone.
fn limited(frames: u32) -> (BTreeMap<(u32, u32), u32>, BTreeMap<String, u32>) {
    let frames = [("tap-bulk".to_owned(), frames)].into_iter();
    (
        [((200, 9), LIMIT_BYTES)].into(),
        frames.filter(|(_, frames)| *frames > 0).collect(),
    )
}

#[test]
fn a_class_gives_its_taps_a_batch_and_undo_takes_it_back() {
    let (host, directory) = (paper_host(2), directory());
    let before = host.state();
    let control = control(&host, &directory);
    let snapshot = control.snapshot().unwrap();
    let plan = control.plan_profile(&bulk("", "tap_batch = 8")).unwrap();
    assert_eq!((plan.steps.len(), host.mutations()), (2, 0));
    for (packets, frames) in [(8, 7), (64, 63), (1, 0)] {
        let text = format!("tap_batch = {packets}");
        control.apply_profile(&bulk("", &text)).unwrap();
        assert_eq!(batches(&host.state()), limited(frames), "{packets}");
        let shown = control.show().unwrap();
        assert!(shown.settings.iter().all(|setting| setting.holds));
    }
    let shown = control.show().unwrap().settings;
    let limit: Vec<&str> = shown
        .iter()
        .flat_map(|setting| [&setting.subject, &setting.old, &setting.new])
        .map(String::as_str)
        .collect();
    // Nothing is gathered with a batch of 1, as before.
    assert_eq!(
        limit,
        [
            "send buffer of tap-bulk, of process 200",
            "no limit",
            "16777216 bytes"
        ]
    );
    let now = control.snapshot().unwrap().differences(&snapshot);
    assert_eq!(now.len(), 1, "{now:?}");
    assert!(now[0].contains("tap-bulk"), "{now:?}");
    assert_eq!(control.undo_profile().unwrap().restored, 1);
    assert_eq!(host.state(), before);
    let restored = Snapshot::take(&host.machine()).unwrap();
    assert_eq!(restored.differences(&snapshot), [] as [String; 0]);
}

#[test]
fn with_levels_vms_below_them_have_batch_1_unless_their_class_says_otherwise() {
    for (net, class, expected) in [
        ("levels_from = 70", "vhost = 69", Some(0)),
        ("levels_from = 70", "vhost = \"normal\"", Some(0)),
        ("levels_from = 70", "path_cpus = [0]", Some(0)),
        ("levels_from = 70", "vhost = 70", None),
        ("levels_from = 70", "vhost = 69\ntap_batch = 3", Some(2)),
        ("levels_from = 70", "vhost = 75\ntap_batch = 3", Some(2)),
        ("", "vhost = 69", None),
        ("", "vhost = \"normal\"", None),
    ] {
        let (host, directory) = (paper_host(2), directory());
        let before = host.state();
        let control = control(&host, &directory);
        control.apply_profile(&bulk(net, class)).unwrap();
        let expected = expected.map_or_else(Default::default, limited);
        assert_eq!(batches(&host.state()), expected, "{net} {class}");
        let level = if net.is_empty() { "0\n" } else { "70\n" };
        let quantum = if net.is_empty() {
            "64\t64\n"
        } else {
            "16\t64\n"
        };
        // Applying again is no reason to take it back.
        for _ in 0..2 {
            assert_eq!(host.state().files[RTNET_PRIO], level);
            assert_eq!(host.state().files[RTNET_QUANTUM], quantum);
            control.apply_profile(&bulk(net, class)).unwrap();
        }
        assert_eq!(control.undo_profile().unwrap().failed, [] as [String; 0]);
        assert_eq!(host.state(), before);
    }
}

#[test]
fn levels_need_the_patches() {
    let (host, directory) = (paper_host(2), directory());
    host.edit(|state| state.files.remove(RTNET_PRIO));
    let before = host.state();
    let error = control(&host, &directory)
        .apply_profile(&bulk("levels_from = 70", "vhost = 69"))
        .unwrap_err();
    assert_eq!(error.blame().exit_code(), 3);
    let text = error.to_string();
    for part in [
        "[net] levels_from",
        RTNET_PRIO,
        "kernel/patches/6.12",
        "leave levels_from out",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(host.state(), before);
}

#[test]
fn a_limit_and_packets_gathered_before_are_kept_and_given_back() {
    let (host, directory) = (paper_host(2), directory());
    host.edit(|state| {
        state.send_buffers.insert((200, 9), 1 << 20);
        state.rx_frames.insert("tap-bulk".into(), 5);
    });
    let before = host.state();
    let control = control(&host, &directory);
    control.apply_profile(&bulk("", "tap_batch = 1")).unwrap();
    let state = host.state();
    assert_eq!(state.send_buffers, before.send_buffers);
    assert!(state.rx_frames.is_empty());
    assert_eq!(control.undo_profile().unwrap().restored, 1);
    assert_eq!(host.state(), before);
}

#[test]
fn a_queue_that_is_attached_later_gets_its_limit_with_the_next_apply() {
    for again in [false, true] {
        let (host, directory) = (paper_host(2), directory());
        let control = control(&host, &directory);
        let profile = bulk("", "tap_batch = 1");
        control.apply_profile(&profile).unwrap();
        host.file("/proc/200/fdinfo/10", "pos:\t0\niff:\ttap-bulk\n");
        let shown = control.show().unwrap().settings;
        assert!(!shown[0].holds);
        assert_eq!(shown[0].now.as_deref(), Some("16777216 bytes, no limit"));
        if again {
            let applied = control.apply_profile(&profile).unwrap();
            assert_eq!((applied.steps.len(), applied.in_force), (1, 1));
            assert_eq!(host.state().send_buffers[&(200, 10)], LIMIT_BYTES);
        }
        assert_eq!(control.undo_profile().unwrap().restored, 1);
        assert!(host.state().send_buffers.is_empty());
    }
}

#[test]
fn what_is_gone_needs_no_restoring() {
    type Change = fn(&mut FakeState);
    let started_again = |state: &mut FakeState| {
        state.threads.get_mut(&200).unwrap().start_time += 1;
        state.send_buffers.clear();
    };
    let unplugged = |state: &mut FakeState| {
        state.files.remove("/proc/200/fdinfo/9");
        state.files.retain(|path, _| !path.contains("tap-bulk"));
    };
    let ended = |state: &mut FakeState| {
        state.threads.retain(|_, thread| thread.pid != 200);
        state.files.remove("/proc/200/fdinfo/9");
    };
    let others_file = |state: &mut FakeState| {
        let other = "pos:\t0\niff:\ttap-other\n";
        state
            .files
            .insert("/proc/200/fdinfo/9".into(), other.into());
    };
    // The tap itself, and its rx-frames, stays where it is persistent.
    for (change, vanished) in [
        (started_again as Change, 1),
        (unplugged, 2),
        (ended, 1),
        (others_file, 1),
    ] {
        let (host, directory) = (paper_host(2), directory());
        let control = control(&host, &directory);
        control.apply_profile(&bulk("", "tap_batch = 8")).unwrap();
        host.edit(change);
        let limits = host.state().send_buffers;
        let undone = control.undo_profile().unwrap();
        let expected = Undone {
            restored: 2 - vanished,
            vanished,
            ..Undone::default()
        };
        assert_eq!(undone, expected);
        assert_eq!(host.state().send_buffers, limits);
    }
}

#[test]
fn a_vm_that_was_started_again_gets_its_batch_with_the_next_apply() {
    let (host, directory) = (paper_host(2), directory());
    let control = control(&host, &directory);
    let profile = bulk("", "tap_batch = 8");
    control.apply_profile(&profile).unwrap();
    host.edit(|state| {
        state.threads.get_mut(&200).unwrap().start_time += 1;
        state.send_buffers.clear();
    });
    let applied = control.apply_profile(&profile).unwrap();
    assert_eq!((applied.taken_back.vanished, applied.in_force), (1, 2));
    assert_eq!(batches(&host.state()), limited(7));
    control.undo_profile().unwrap();
    assert_eq!(batches(&host.state()), Default::default());
}

/// Of a process that exits the main thread may be gone while others, and the tap, are there.
#[test]
fn a_vm_that_is_about_to_end_needs_no_batch() {
    let (host, directory) = (paper_host(2), directory());
    let control = control(&host, &directory);
    host.edit(|state| state.threads.remove(&200));
    let plan = control.plan_profile(&bulk("", "tap_batch = 8")).unwrap();
    assert_eq!((plan.steps, plan.warnings), (Vec::new(), Vec::new()));
}

#[test]
fn a_tap_of_another_network_namespace_is_left_with_a_warning() {
    let (host, directory) = (paper_host(2), directory());
    host.edit(|state| {
        state
            .files
            .retain(|path, _| !path.starts_with("/sys/class/net/tap-bulk/"));
    });
    let before = host.state();
    let applied = control(&host, &directory)
        .apply_profile(&bulk("", "tap_batch = 1"))
        .unwrap();
    assert_eq!(applied.in_force, 0);
    assert!(
        applied.warnings[0].contains("network namespace"),
        "{:?}",
        applied.warnings
    );
    assert_eq!(host.state(), before);
}

/// A host whose VM has a tap with so many queues, a limit and packets gathered.
fn any_host() -> impl Strategy<Value = FakeHost> {
    let bytes = prop_oneof![Just(UNLIMITED_BYTES), 1_u32..UNLIMITED_BYTES];
    (1_u32..5, bytes, 0_u32..=64).prop_map(|(queues, bytes, frames)| {
        let host = paper_host(2);
        for descriptor in 9..9 + queues {
            let text = "pos:\t0\niff:\ttap-bulk\n";
            host.file(&format!("/proc/200/fdinfo/{descriptor}"), text);
        }
        let links = host.machine().links;
        links
            .set_tap_send_buffer(200, 9, "tap-bulk", bytes)
            .unwrap();
        links.set_rx_frames("tap-bulk", frames).unwrap();
        host
    })
}

proptest! {
    #[test]
    fn undo_restores_every_tap_also_after_a_crash_or_refusal(
        host in any_host(),
        (first, second) in (1_u32..=64, 1_u32..=64),
        at in 0_usize..6,
        fault in prop::option::of(prop::sample::select(vec![
            Fault::CrashBefore,
            Fault::CrashAfter,
            Fault::Ignore,
            Fault::Refuse(libc::EPERM),
        ])),
    ) {
        let directory = directory();
        let before = host.state();
        let control = control(&host, &directory);
        if let Some(fault) = fault {
            host.fault_at(at, fault);
        }
        let applied = |packets: u32| {
            let profile = bulk("levels_from = 70", &format!("tap_batch = {packets}"));
            match control.apply_profile(&profile) {
                Ok(_) => true,
                Err(HostError::RolledBack { .. } | HostError::InForce { .. }) => false,
                Err(error) => panic!("{error}"),
            }
        };
        let crashed = crashing(|| {
            let done = applied(first) && applied(second);
            if done {
                let state = host.state();
                let frames = state.rx_frames.get("tap-bulk").copied().unwrap_or(0);
                assert_eq!(frames + 1, second);
                assert!(!state.send_buffers.is_empty());
            }
        });
        prop_assert_eq!(crashed, crashed && matches!(fault, Some(Fault::CrashBefore | Fault::CrashAfter)));
        host.heal();
        let undone = control.undo_profile().unwrap();
        prop_assert!(undone.failed.is_empty() && undone.changed_by_others.is_empty(), "{:?}", undone);
        prop_assert_eq!(host.state(), before);
    }
}
