//! `bpf/shared.h`, for the loader.

use steadyvm_sched_policy::{CpuSet, Host, Parameters, Server};
use steadyvm_stats::steps::STEPS;

/// VCPUs with a budget: `MAX_VCPUS`.
pub(crate) const MAX_VCPUS: u32 = 1024;

/// `struct vcpu_counters`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Counters {
    pub throttled_ns: u64,
    pub throttles: u64,
    pub preemptions: u64,
    pub migrations: u64,
    pub dispatches: u64,
    pub overrun_ns: u64,
}

/// `struct vcpu_usage`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Usage {
    /// Which one is counted.
    pub period: u64,
    /// In it.
    pub used_ns: u64,
    /// In the one before.
    pub last_used_ns: u64,
    granted_ns: i64,
    left_ns: i64,
    carried_ns: u64,
    full: u32,
    was_ready: u32,
    /// That have ended.
    pub periods: u64,
    /// In one.
    pub most_used_ns: u64,
    /// Without their budget.
    pub short_periods: u64,
    /// Of these, the worst.
    pub most_short_ns: u64,
    /// That broke conservation.
    pub unexplained: u64,
}

/// `struct vcpu`.
#[derive(Debug, Clone)]
#[repr(C)]
pub(crate) struct Vcpu {
    lock: u32,
    pub tid: u32,
    pub slot: u32,
    pub exited: u32,
    pub running: u32,
    pub cpu: u32,
    kind: u32,
    happened: u32,
    holds: u32,
    lender: u32,
    lender_kind: u32,
    away: u32,
    held_ns: u64,
    released: u32,
    exhausts: u32,
    released_ns: u64,
    pub started_ns: u64,
    pub ran_ns: u64,
    pub last_ns: u64,
    pub parked_ns: u64,
    pub counters: Counters,
    pub usage: Usage,
    pub server: Server,
}

/// `END_WORDS`.
pub(crate) const END_WORDS: usize = 16;

/// `struct decisions`.
#[derive(Debug, Clone)]
#[repr(C)]
pub(crate) struct Decisions {
    pub total_ns: u64,
    pub longest_ns: u64,
    pub count: [u64; STEPS],
}

impl Decisions {
    /// From an element of the map `decisions`; `None` if it has another size.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != size_of::<Self>() {
            return None;
        }
        let mut numbers = bytes
            .chunks_exact(size_of::<u64>())
            .map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
        Some(Self {
            total_ns: numbers.next()?,
            longest_ns: numbers.next()?,
            count: std::array::from_fn(|_| numbers.next().unwrap_or(0)),
        })
    }
}

/// `struct vcpu_request`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct VcpuRequest {
    pub slot: u32,
    pub tid: u32,
    pub parameters: Parameters,
    pub cpus: CpuSet,
    pub error: u32,
    pub away: u32,
}

/// `struct host_request`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct HostRequest {
    pub host: Host,
    pub recording: u32,
    pub tick_ns: u32,
}

/// `struct advance_request`.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct AdvanceRequest {
    pub next_ns: u64,
    /// 1: the loader ended the scheduler, 2: the kernel did.
    pub ended: u64,
    pub reason: [u64; END_WORDS],
    pub message: [u64; END_WORDS],
}

/// The kernel's words, to their end.
pub(crate) fn text(words: &[u64; END_WORDS]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

/// A structure of `bpf/shared.h`.
///
/// # Safety
/// `repr(C)`, without padding that is read, and without references.
pub(crate) unsafe trait Shared: Sized {
    /// Its bytes.
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: a live value of this size; the kernel's program writes numbers of the same layout into it.
        unsafe {
            std::slice::from_raw_parts_mut(std::ptr::from_mut(self).cast(), size_of::<Self>())
        }
    }
}

// SAFETY: numbers only, as the C structures.
unsafe impl Shared for VcpuRequest {}
// SAFETY: as above.
unsafe impl Shared for HostRequest {}
// SAFETY: as above.
unsafe impl Shared for AdvanceRequest {}

impl Vcpu {
    /// From an element of the map `vcpus`; `None` if it has another size.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != size_of::<Self>() {
            return None;
        }
        // SAFETY: as many bytes as it has; it consists of numbers, which all bit patterns are.
        Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
    }
}
