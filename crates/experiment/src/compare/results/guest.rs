//! What the RT guest and its KVM counted while requests were answered.

use super::data::{MethodData, Phase};
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

/// The same over all rounds, a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GuestResult {
    /// Requests sent, warm-up included.
    pub requests: u64,
    /// Interrupts of the guest's network devices, all together and not a request.
    pub network_interrupts: u64,
    /// `NET_RX` and `NET_TX` softirqs, all together and not a request.
    pub network_softirqs: u64,
    /// Local timer interrupts of the guest, a request.
    pub timer_interrupts_per_request: f64,
    /// Interrupts that KVM injected, a request.
    pub injected_interrupts_per_request: f64,
    /// Exits from the guest, a request.
    pub exits_per_request: f64,
    /// Those of them whose reason KVM counts, a request.
    pub exit_reasons_per_request: BTreeMap<String, f64>,
}

/// A method's counts of a phase; none if nothing was counted.
pub(super) fn guest_result(method: &MethodData, phase: Phase) -> Option<GuestResult> {
    let rounds = method.rounds.iter();
    let counts = rounds.filter_map(|round| round.phase(phase).guest.as_ref());
    let mut sum = GuestCounts::default();
    for round in counts {
        sum.requests += round.requests;
        sum.network_interrupts += round.network_interrupts;
        sum.network_softirqs += round.network_softirqs;
        sum.timer_interrupts += round.timer_interrupts;
        sum.injected_interrupts += round.injected_interrupts;
        sum.exits += round.exits;
        for (reason, count) in &round.exit_reasons {
            *sum.exit_reasons.entry(reason.clone()).or_default() += count;
        }
    }
    let a_request = |count: u64| count as f64 / sum.requests as f64;
    (sum.requests > 0).then(|| GuestResult {
        requests: sum.requests,
        network_interrupts: sum.network_interrupts,
        network_softirqs: sum.network_softirqs,
        timer_interrupts_per_request: a_request(sum.timer_interrupts),
        injected_interrupts_per_request: a_request(sum.injected_interrupts),
        exits_per_request: a_request(sum.exits),
        exit_reasons_per_request: sum
            .exit_reasons
            .iter()
            .map(|(reason, count)| (reason.clone(), a_request(*count)))
            .collect(),
    })
}
