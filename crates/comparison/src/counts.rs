//! What a guest of the latency-critical service counts of its interrupts, and what KVM counts of the guest.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The counts of one phase, of all VCPUs, from before its first request, warm-up included, to after
/// its last reply. The guest's own ticks and housekeeping are in them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestCounts {
    /// Requests sent, warm-up included.
    pub requests: u64,
    /// Interrupts of the guest's network devices, by its /proc/interrupts.
    pub network_interrupts: u64,
    /// `NET_RX` and `NET_TX` softirqs, by its /proc/softirqs.
    pub network_softirqs: u64,
    /// Local timer interrupts, by its /proc/interrupts.
    pub timer_interrupts: u64,
    /// Interrupts that KVM injected, of any kind.
    pub injected_interrupts: u64,
    /// Exits from the guest.
    pub exits: u64,
    /// Those of them whose reason KVM counts, by its name for it.
    pub exit_reasons: BTreeMap<String, u64>,
}

/// What exits from the guest cost, in a repetition of the phase in which the host traced them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitCosts {
    /// Requests sent meanwhile, warm-up included.
    pub requests: u64,
    /// By KVM's name for the reason.
    pub reasons: BTreeMap<String, ExitCost>,
}

/// The exits of one reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitCost {
    /// Their number.
    pub exits: u64,
    /// The CPU time of the VCPUs' threads from exit to entry, in us.
    pub cpu_us: u64,
}
