//! Scheduling attributes and CPU affinity of threads: the system calls behind a trait.

use std::fmt;
use std::io;
use std::mem;
use std::sync::mpsc;
use std::thread;

use serde::{Deserialize, Serialize};

use crate::cpu_set::{CpuSet, MAX_CPU};

/// Children start with normal scheduling (`SCHED_FLAG_RESET_ON_FORK`).
pub const RESET_ON_FORK: u64 = 0x01;
/// The flags that are read and restored: reset on fork, and reclaim and overrun of
/// `SCHED_DEADLINE`.
const KEPT_FLAGS: u64 = 0x07;

/// A scheduling policy of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// `SCHED_OTHER`
    Normal,
    /// `SCHED_FIFO`
    Fifo,
    /// `SCHED_RR`
    RoundRobin,
    /// `SCHED_BATCH`
    Batch,
    /// `SCHED_IDLE`
    Idle,
    /// `SCHED_DEADLINE`
    Deadline,
    /// A policy this code does not name (`SCHED_EXT` is 7): kept by number.
    Number(u32),
}

impl Policy {
    fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Normal,
            1 => Self::Fifo,
            2 => Self::RoundRobin,
            3 => Self::Batch,
            5 => Self::Idle,
            6 => Self::Deadline,
            other => Self::Number(other),
        }
    }

    fn number(self) -> u32 {
        match self {
            Self::Normal => 0,
            Self::Fifo => 1,
            Self::RoundRobin => 2,
            Self::Batch => 3,
            Self::Idle => 5,
            Self::Deadline => 6,
            Self::Number(other) => other,
        }
    }
}

/// What `sched_getattr` says about a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduling {
    /// The policy.
    pub policy: Policy,
    /// The priority of FIFO and round robin, 1 (low) to 99; 0 otherwise.
    pub priority: u32,
    /// The nice value of normal policies.
    pub nice: i32,
    /// Kernel flags, above all [`RESET_ON_FORK`].
    pub flags: u64,
    /// The runtime of `SCHED_DEADLINE`; the slice of normal policies from 6.12 on.
    pub runtime_ns: u64,
    /// The deadline of `SCHED_DEADLINE`.
    pub deadline_ns: u64,
    /// The period of `SCHED_DEADLINE`.
    pub period_ns: u64,
}

impl Scheduling {
    /// `SCHED_OTHER`, nice 0.
    pub fn normal() -> Self {
        Self {
            policy: Policy::Normal,
            priority: 0,
            nice: 0,
            flags: 0,
            runtime_ns: 0,
            deadline_ns: 0,
            period_ns: 0,
        }
    }

    /// `SCHED_FIFO` at a priority, with the flags given.
    pub fn fifo(priority: u32, flags: u64) -> Self {
        Self {
            policy: Policy::Fifo,
            priority,
            flags,
            ..Self::normal()
        }
    }

    /// `SCHED_DEADLINE`: a runtime in every period, there by a deadline, with the flags given.
    pub fn deadline(runtime_ns: u64, deadline_ns: u64, period_ns: u64, flags: u64) -> Self {
        Self {
            policy: Policy::Deadline,
            flags,
            runtime_ns,
            deadline_ns,
            period_ns,
            ..Self::normal()
        }
    }

    /// Whether two readings mean the same to the scheduler. The slice that newer kernels
    /// report for normal threads is left out: it changes with the machine's load balancing
    /// settings, not with the thread.
    pub fn same_as(&self, other: &Self) -> bool {
        let relevant = |one: &Self| match one.policy {
            Policy::Fifo | Policy::RoundRobin => Self {
                nice: 0,
                runtime_ns: 0,
                ..*one
            },
            Policy::Deadline => Self { nice: 0, ..*one },
            _ => Self {
                runtime_ns: 0,
                ..*one
            },
        };
        relevant(self) == relevant(other)
    }
}

impl fmt::Display for Scheduling {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.policy {
            Policy::Normal => write!(formatter, "normal (nice {})", self.nice),
            Policy::Batch => write!(formatter, "batch (nice {})", self.nice),
            Policy::Idle => write!(formatter, "idle"),
            Policy::Fifo => write!(formatter, "FIFO {}", self.priority),
            Policy::RoundRobin => write!(formatter, "RR {}", self.priority),
            Policy::Deadline => write!(
                formatter,
                "deadline {}/{} us",
                self.runtime_ns / 1000,
                self.period_ns / 1000
            ),
            Policy::Number(7) => write!(formatter, "ext (nice {})", self.nice),
            Policy::Number(number) => write!(formatter, "policy {number}"),
        }
    }
}

/// The system calls on threads.
pub trait Threads: Send + Sync {
    /// `sched_getattr`
    fn scheduling(&self, tid: u32) -> io::Result<Scheduling>;
    /// `sched_setattr`
    fn set_scheduling(&self, tid: u32, scheduling: &Scheduling) -> io::Result<()>;
    /// `sched_getaffinity`
    fn affinity(&self, tid: u32) -> io::Result<CpuSet>;
    /// `sched_setaffinity`
    fn set_affinity(&self, tid: u32, cpus: &CpuSet) -> io::Result<()>;
    /// Its core-scheduling cookie; 0: none, or CPUs without siblings.
    fn core_cookie(&self, tid: u32) -> io::Result<u64>;
    /// A thread of our own that sleeps with this `SCHED_DEADLINE` reservation on these CPUs, which must be
    /// all of a root domain, until what is returned is dropped.
    fn reserve(&self, cpus: &CpuSet, reservation: &Scheduling) -> io::Result<Box<dyn Reserved>>;
}

/// A reservation that is held.
pub trait Reserved {}

/// The threads of the running kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct KernelThreads;

/// `struct sched_attr` of `include/uapi/linux/sched/types.h`, first version (48 bytes): every
/// kernel since 3.14 takes it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct KernelAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const ATTRIBUTES_SIZE: u32 = mem::size_of::<KernelAttributes>() as u32;
const _: () = assert!(ATTRIBUTES_SIZE == 48);

/// A CPU mask as the affinity calls want it: one bit a CPU, in machine words.
type KernelMask = [u64; (MAX_CPU + 1) / 64];

/// A thread that sleeps until its channel closes.
struct Sleeper {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Reserved for Sleeper {}

impl Drop for Sleeper {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing to say; a panic of it has been printed.
            let _ = thread.join();
        }
    }
}

/// What a reservation is shrunk to: 0.01 % of a CPU. A thread that wakes meanwhile has this much time to leave. Beyond
/// it the kernel puts its deadline off by whole periods until the debt is paid (`replenish_dl_entity()`), in a later
/// reservation, too.
const SHRUNK_RUNTIME_NS: u64 = 10_000;
const SHRUNK_PERIOD_NS: u64 = 100_000_000;

impl Threads for KernelThreads {
    fn core_cookie(&self, tid: u32) -> io::Result<u64> {
        steadyvm_sched::core_scheduling::cookie(tid)
    }

    fn scheduling(&self, tid: u32) -> io::Result<Scheduling> {
        let mut attributes = KernelAttributes::default();
        // SAFETY: the kernel writes at most ATTRIBUTES_SIZE bytes to `attributes`, which is a
        // live, writable value of exactly that size, for which every bit pattern is valid.
        let result = unsafe {
            libc::syscall(
                libc::SYS_sched_getattr,
                process_id(tid)?,
                &raw mut attributes,
                ATTRIBUTES_SIZE,
                0_u32,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Scheduling {
            policy: Policy::from_number(attributes.policy),
            priority: attributes.priority,
            nice: attributes.nice,
            flags: attributes.flags & KEPT_FLAGS,
            runtime_ns: attributes.runtime,
            deadline_ns: attributes.deadline,
            period_ns: attributes.period,
        })
    }

    fn set_scheduling(&self, tid: u32, scheduling: &Scheduling) -> io::Result<()> {
        let reserved = if scheduling.policy == Policy::Deadline {
            None
        } else {
            give_back(tid)
        };
        let set = set_attributes(tid, scheduling);
        if let (Err(_), Some(before)) = (&set, reserved) {
            // What it had is less than what the kernel counted a moment ago.
            let _ = set_attributes(tid, &before);
        }
        set
    }

    fn affinity(&self, tid: u32) -> io::Result<CpuSet> {
        let mut mask: KernelMask = [0; (MAX_CPU + 1) / 64];
        // SAFETY: the kernel writes at most `size_of_val(&mask)` bytes to `mask`, a live,
        // writable array of that size. The raw call is used because glibc's wrapper takes a
        // fixed `cpu_set_t` of 1024 CPUs.
        let result = unsafe {
            libc::syscall(
                libc::SYS_sched_getaffinity,
                process_id(tid)?,
                mem::size_of_val(&mask),
                mask.as_mut_ptr(),
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((0..=MAX_CPU)
            .filter(|&cpu| mask[cpu / 64] & (1 << (cpu % 64)) != 0)
            .collect())
    }

    fn set_affinity(&self, tid: u32, cpus: &CpuSet) -> io::Result<()> {
        let mut mask: KernelMask = [0; (MAX_CPU + 1) / 64];
        for cpu in cpus.iter() {
            mask[cpu / 64] |= 1 << (cpu % 64);
        }
        // SAFETY: the kernel reads at most `size_of_val(&mask)` bytes of `mask`, a live array
        // of that size, and keeps no reference to it.
        let result = unsafe {
            libc::syscall(
                libc::SYS_sched_setaffinity,
                process_id(tid)?,
                mem::size_of_val(&mask),
                mask.as_ptr(),
            )
        };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    fn reserve(&self, cpus: &CpuSet, reservation: &Scheduling) -> io::Result<Box<dyn Reserved>> {
        let (stop, stopped) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let (cpus, reservation) = (cpus.clone(), *reservation);
        let thread = thread::Builder::new().spawn(move || {
            let own = calling_thread();
            let admitted = KernelThreads
                .set_affinity(own, &cpus)
                .and_then(|()| KernelThreads.set_scheduling(own, &reservation));
            let sleeps = admitted.is_ok();
            // Without somebody who waits there is nobody to sleep for, either.
            if tell.send(admitted).is_ok() && sleeps {
                let _ = stopped.recv();
            }
        })?;
        let sleeper = Sleeper {
            stop: Some(stop),
            thread: Some(thread),
        };
        let ended = |_| Err(io::Error::other("the thread that reserves panicked"));
        told.recv().unwrap_or_else(ended)?;
        Ok(Box::new(sleeper))
    }
}

/// Sets what `sched_setattr` sets.
fn set_attributes(tid: u32, scheduling: &Scheduling) -> io::Result<()> {
    let attributes = KernelAttributes {
        size: ATTRIBUTES_SIZE,
        policy: scheduling.policy.number(),
        flags: scheduling.flags & KEPT_FLAGS,
        nice: scheduling.nice,
        priority: scheduling.priority,
        runtime: scheduling.runtime_ns,
        deadline: scheduling.deadline_ns,
        period: scheduling.period_ns,
    };
    // SAFETY: the kernel reads ATTRIBUTES_SIZE bytes of `attributes`, a live value of that
    // size whose `size` field says so; it keeps no reference to it. (On a size it does not
    // know it would write the `size` field only; it knows this one.)
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setattr,
            process_id(tid)?,
            &raw const attributes,
            0_u32,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Shrinks a sleeping thread's reservation of `SCHED_DEADLINE` to nearly nothing, and gives what it had.
///
/// Rule: no thread leaves `SCHED_DEADLINE` with what it was admitted with. A thread that has slept beyond its 0-lag
/// time and then leaves keeps its bandwidth in the root domain's account for ever: `switched_from_dl()` arms the timer
/// that gives it back for queued threads only (kernel/sched/deadline.c, 6.12 to 6.18). Another reservation takes the
/// place of the old one at once (`sched_dl_overflow()`). A thread that runs is left alone: it gives back by itself, and
/// would be in debt at once.
fn give_back(tid: u32) -> Option<Scheduling> {
    let before = KernelThreads.scheduling(tid).ok()?;
    if before.policy != Policy::Deadline || is_runnable(tid) {
        return None;
    }
    let shrunk = Scheduling {
        runtime_ns: SHRUNK_RUNTIME_NS,
        deadline_ns: SHRUNK_PERIOD_NS,
        period_ns: SHRUNK_PERIOD_NS,
        ..before
    };
    // A kernel that takes no such period leaves it as it was.
    set_attributes(tid, &shrunk).ok()?;
    Some(before)
}

/// Whether a thread runs or waits for a CPU; `proc_pid_stat(5)`, its third field.
pub(crate) fn is_runnable(tid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{tid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit_once(") ").map(|(_, rest)| rest);
    after_name.is_some_and(|rest| rest.starts_with('R'))
}

/// The number of the thread that asks.
pub(crate) fn calling_thread() -> u32 {
    nix::unistd::gettid().as_raw().cast_unsigned()
}

/// Thread 0 would mean the caller itself; it is never meant here.
fn process_id(tid: u32) -> io::Result<libc::pid_t> {
    libc::pid_t::try_from(tid)
        .ok()
        .filter(|&id| id > 0)
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
}
