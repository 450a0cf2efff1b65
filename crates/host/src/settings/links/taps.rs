//! The taps that a process has open, and their send buffers.

use std::collections::BTreeSet;
use std::io;

use crate::settings::Machine;

/// The descriptors by which a process has attached queues of taps, and the taps:
/// `/proc/PID/fdinfo/N` says `iff: tap0`.
fn tap_queues(machine: &Machine, pid: u32) -> Vec<(u32, String)> {
    let directory = format!("/proc/{pid}/fdinfo");
    let names = machine.tree.list(&directory).unwrap_or_default();
    let queue_of = |name: &String| {
        let descriptor = name.parse().ok()?;
        Some((descriptor, tap_of_descriptor(machine, pid, descriptor)?))
    };
    names.iter().filter_map(queue_of).collect()
}

/// The tap that a process has attached a queue of by a descriptor; none if that is something else.
pub(crate) fn tap_of_descriptor(machine: &Machine, pid: u32, descriptor: u32) -> Option<String> {
    let path = format!("/proc/{pid}/fdinfo/{descriptor}");
    let text = machine.tree.read(&path).ok()?;
    let tap = text.lines().find_map(|line| line.strip_prefix("iff:"))?;
    let tap = tap.trim();
    // A queue that the guest does not use has none.
    (!tap.is_empty()).then(|| tap.to_owned())
}

/// The taps a process has open in this network namespace, and those it has in another (a pod's).
/// The latter may have the names of taps here.
pub(crate) fn taps(machine: &Machine, pid: u32) -> (Vec<String>, Vec<String>) {
    let queues = tap_queues(machine, pid);
    let taps: BTreeSet<String> = queues.into_iter().map(|(_, tap)| tap).collect();
    let all_elsewhere = !taps.is_empty() && is_elsewhere(machine, pid);
    // A descriptor may also have been handed over from another namespace.
    let is_here = |tap: &String| {
        let flags = format!("/sys/class/net/{tap}/tun_flags");
        !all_elsewhere && machine.tree.exists(&flags)
    };
    taps.into_iter().partition(is_here)
}

/// The taps a process has open that can be set from here.
pub(crate) fn taps_of(machine: &Machine, pid: u32) -> Vec<String> {
    taps(machine, pid).0
}

/// Whether a process is in another network namespace. One that may not be looked at is.
fn is_elsewhere(machine: &Machine, pid: u32) -> bool {
    let namespace = |process: &str| machine.tree.link(&format!("/proc/{process}/ns/net")).ok();
    namespace(&pid.to_string()) != namespace("thread-self")
}

/// The send buffers in bytes that the attached queues of a process's tap have: one value, but for
/// queues that were attached later. `ENODEV` if it has none.
pub(crate) fn send_buffers(machine: &Machine, pid: u32, tap: &str) -> io::Result<BTreeSet<u32>> {
    descriptors(machine, pid, tap)?
        .into_iter()
        .map(|descriptor| machine.links.tap_send_buffer(pid, descriptor, tap))
        .collect()
}

/// Sets the send buffer of all attached queues of a process's tap.
pub(crate) fn set_send_buffer(
    machine: &Machine,
    pid: u32,
    tap: &str,
    bytes: u32,
) -> io::Result<()> {
    let any = descriptors(machine, pid, tap)?[0];
    machine.links.set_tap_send_buffer(pid, any, tap, bytes)
}

/// One at least.
fn descriptors(machine: &Machine, pid: u32, tap: &str) -> io::Result<Vec<u32>> {
    let mut queues = tap_queues(machine, pid);
    queues.retain(|(_, of)| of == tap);
    if queues.is_empty() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    Ok(queues
        .into_iter()
        .map(|(descriptor, _)| descriptor)
        .collect())
}
