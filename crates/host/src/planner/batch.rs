//! The batch of a VM's taps: how many of its packets go through the bridge in one section with
//! softirqs off, before a VM with a higher priority is looked at (docs/design/inter-vm-traffic.md).
//!
//! vhost-net hands a tap up to 64 packets at once unless its send buffer has a limit. With one each
//! packet comes alone, and `rx-frames` says how many the tap gathers before it handles them with
//! the next one.

use std::io;

use super::step::Step;
use super::vms::Running;
use crate::error::{HostError, at, unless_vanished};
use crate::profile::{Class, SchedulerProfile, ThreadPriority, VmProfile};
use crate::settings::links::UNLIMITED_BYTES;
use crate::settings::links::send_buffers;
use crate::settings::{Change, ChangeOf, Device, Machine, RxFrames, TapSendBuffer, ThreadId};

/// More than a ring of 256 packets holds, so that only the way of packets changes, and no VM waits
/// for room in the buffer.
const LIMIT_BYTES: u32 = 16 << 20;

/// The steps that give a VM's taps their batch.
pub(super) fn steps(
    machine: &Machine,
    running: &Running<'_>,
    by_ext: Option<&SchedulerProfile>,
    levels_from: Option<u32>,
    steps: &mut Vec<Step>,
    warnings: &mut Vec<String>,
) -> Result<(), HostError> {
    let Running {
        profile, vm, taps, ..
    } = running;
    let asked = profile.class.tap_qdisc.is_some() || profile.class.tap_batch.is_some();
    if asked && !running.taps_elsewhere.is_empty() {
        warnings.push(elsewhere(profile, &running.taps_elsewhere));
    }
    let batch_of_tap = |tap: &str| {
        let class = running.class_of_tap(tap);
        batch_of(class, profile.vhost_of(class, by_ext), levels_from)
    };
    let with_batch = taps
        .iter()
        .filter_map(|tap| Some((tap, batch_of_tap(tap)?)));
    let batches: Vec<(&String, u32)> = with_batch.collect();
    if batches.is_empty() {
        return Ok(());
    }
    // It is about to end.
    let Some(monitor) = machine.thread(vm.pid, vm.pid) else {
        return Ok(());
    };
    for (tap, packets) in batches {
        // Before the send buffer, and so after it in undo: what a tap has gathered when `rx-frames`
        // becomes 0 stays there.
        let changes = rx_frames(machine, tap, packets - 1)
            .and_then(|frames| Ok([frames, send_buffer(machine, &monitor.id, tap)?]));
        let Some(changes) = unless_vanished(changes)? else {
            continue;
        };
        let why = format!("so that others wait for {packets} of the VM's packets at most");
        steps.extend(changes.map(|change| Step::required(change, why.clone())));
    }
    Ok(())
}

/// What the class says; else 1 where the receive path has levels and the VM is below them.
fn batch_of(class: &Class, vhost: Option<ThreadPriority>, levels_from: Option<u32>) -> Option<u32> {
    class.tap_batch.or_else(|| {
        let lowest = ThreadPriority::Fifo(levels_from?);
        (vhost < Some(lowest)).then_some(1)
    })
}

fn elsewhere(profile: &VmProfile, taps: &[String]) -> String {
    let what = format!(
        "VM \"{}\" has taps in another network namespace ({}): their queueing discipline and batch \
         are left as they are",
        profile.name,
        taps.join(", ")
    );
    at(&profile.place, &what)
}

fn rx_frames(machine: &Machine, tap: &str, new_frames: u32) -> Result<Change, HostError> {
    let old_frames = machine
        .links
        .rx_frames(tap)
        .map_err(|source| HostError::io("read rx-frames of", tap, source))?;
    let device = Device::find(machine, tap);
    Ok(Change::from(ChangeOf {
        setting: RxFrames { device },
        old: old_frames,
        new: new_frames,
    }))
}

/// A limit that someone set is one already.
fn send_buffer(machine: &Machine, monitor: &ThreadId, tap: &str) -> Result<Change, HostError> {
    let now = send_buffers(machine, monitor.pid, tap).map_err(|cause| unreadable(tap, cause))?;
    // A queue that was attached after the others' limit was set has none.
    let old_bytes = now.last().copied().unwrap_or(UNLIMITED_BYTES);
    let new_bytes = if old_bytes == UNLIMITED_BYTES {
        LIMIT_BYTES
    } else {
        old_bytes
    };
    Ok(Change::from(ChangeOf {
        setting: TapSendBuffer {
            tap: Device::find(machine, tap),
            monitor: monitor.clone(),
        },
        old: [old_bytes].into(),
        new: [new_bytes].into(),
    }))
}

fn unreadable(tap: &str, cause: io::Error) -> HostError {
    let action = "read the send buffer of";
    if cause.raw_os_error() != Some(libc::EPERM) {
        return HostError::io(action, tap, cause);
    }
    HostError::Io {
        action,
        subject: tap.to_owned(),
        cause,
        hint: "; it needs root (CAP_SYS_PTRACE), and kernel.yama.ptrace_scope below 3",
    }
}
