//! Scheduling of the lab's own threads on the machine it runs on.
//!
//! This is the lab's apparatus, not a host under test: only threads that the lab started are
//! touched, and they are gone with it, so there is nothing to record and undo.

use crate::{At, Error, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::utsname::uname;
use nix::unistd::Pid;
use std::io;

/// The FIFO priority of an emulated processor that has a CPU of this machine for itself: it stands for
/// hardware, which no daemon of this machine takes a turn from.
pub const PROCESSOR_PRIORITY: i32 = 5;
/// The FIFO priority of the emulator's device thread: it stands for hardware.
pub const DEVICE_PRIORITY: i32 = 10;
/// The FIFO priority of the measuring client, which must see a reply when it arrives.
pub const CLIENT_PRIORITY: i32 = 20;
/// The FIFO priority of what notices that the machine stands still: nothing of ours is above it.
pub const WATCH_PRIORITY: i32 = 90;

/// How many CPUs the machine has.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Whether real-time threads may use a CPU as long as they like. Before Linux 6.12 the kernel stopped them for
/// the rest of a second of which they had used 95 %, unless told not to; since then others who wait have a
/// server of their own (`fair_server`), which does not stop them all at once.
pub fn real_time_is_unlimited() -> Result<bool> {
    let system = uname().doing("tell the kernel's version")?;
    if has_fair_server(&system.release().to_string_lossy()) {
        return Ok(true);
    }
    let path = "/proc/sys/kernel/sched_rt_runtime_us";
    let runtime_us = std::fs::read_to_string(path).at("read", path)?;
    Ok(runtime_us.trim() == "-1")
}

/// Whether a kernel of this release, such as "6.12.117-rt", is Linux 6.12 or newer.
fn has_fair_server(release: &str) -> bool {
    let numbers = release.split(|c: char| !c.is_ascii_digit());
    let version: Vec<u32> = numbers.map_while(|number| number.parse().ok()).collect();
    version >= vec![6, 12]
}

/// Binds a thread to one CPU, if the machine has that many.
pub fn pin(thread: i32, cpu: usize) -> Result<()> {
    let what = || format!("bind thread {thread} to CPU {cpu}");
    let mut set = CpuSet::new();
    set.set(cpu % cpus()).doing(what())?;
    sched_setaffinity(Pid::from_raw(thread), &set).doing(what())
}

/// Gives a thread the best place among the normal ones.
pub fn prefer(thread: i32) -> Result<()> {
    // SAFETY: the call takes numbers only.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, thread as u32, -20) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(Error::machine(format!("prefer thread {thread}"), error).what_to_do("run as root"))
}

/// Gives a session, by a process that leads it, the best place among sessions.
///
/// Where the kernel groups tasks by session (sched(7), "The autogroup feature"; on by default in
/// Debian), CPU time is shared out among sessions before nice values count: a compiler at nice 19
/// in another terminal gets as much as an emulator at nice -20.
pub fn prefer_session(leader: i32) -> Result<()> {
    let path = format!("/proc/{leader}/autogroup");
    match std::fs::write(&path, "-20") {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at("write", path),
        // Without the feature nice values count everywhere.
        _ => Ok(()),
    }
}

/// Puts a thread under `SCHED_FIFO`; 0 is the calling thread.
pub fn make_fifo(thread: i32, priority: i32) -> Result<()> {
    let parameter = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: the call reads one sched_param, which lives across it.
    let result =
        unsafe { libc::sched_setscheduler(thread, libc::SCHED_FIFO, &raw const parameter) };
    if result == 0 {
        return Ok(());
    }
    let what = format!("give thread {thread} the real-time priority {priority}");
    Err(Error::machine(what, io::Error::last_os_error())
        .what_to_do("run as root, or raise the limit on real-time priorities (ulimit -r)"))
}

#[cfg(test)]
mod tests {
    use super::has_fair_server;

    #[test]
    fn kernels_since_6_12_have_a_fair_server() {
        for release in ["6.12.0", "6.12-rc1", "6.18.44-fc-v595", "7.0.1+"] {
            assert!(has_fair_server(release), "{release}");
        }
        for release in ["6.11.12", "6.1.0-49-amd64", "5.15.200", "6", "", "unknown"] {
            assert!(!has_fair_server(release), "{release}");
        }
    }
}
