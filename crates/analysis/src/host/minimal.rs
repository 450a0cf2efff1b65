//! The least number of CPUs for a set of VCPUs.
//!
//! Rule: the least m for which [`super::admit`] says yes on CPUs 0..m: full VCPUs have CPUs of their
//! own, the rest passes on what is left. Every test stays passed when a CPU is added.
//! m starts at ceil(sum of bandwidths with overheads), below which nothing can hold them; it is found in
//! growing strides and then by bisection.
//!
//! Complexity: O(log VCPUs) admissions. Exact as far as admission is ([`Processors::exact`]).

use super::{Host, MAX_CPUS, Vcpu, admit};
use crate::{
    ratio::{Fraction, Interval, exact_sum},
    time::div_ceil_wide,
    work::Work,
};

/// The least number of CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processors {
    /// Enough under the host's scheduler and tests.
    pub count: u32,
    /// True if fewer are proven not to suffice; false if tests or packing heuristics, which are only
    /// sufficient, found no way.
    pub exact: bool,
}

/// The least number of CPUs on which the host's scheduler keeps every promise; `None` if no number
/// does (overheads exceed a period, or a mask names CPUs beyond the largest host).
pub fn minimal_processors(host: &Host, vcpus: &[Vcpu], work: &mut Work) -> Option<Processors> {
    if vcpus.is_empty() {
        return Some(Processors {
            count: 0,
            exact: true,
        });
    }
    let low = lower_bound(host, vcpus);
    let masks = vcpus.iter().filter_map(|vcpu| vcpu.mask.as_ref()?.last());
    let masked = masks.max().map_or(0, |&last| last.saturating_add(1));
    // A CPU for each, and as many more as what enforces budgets keeps of these.
    let enough = (vcpus.len() * 100).div_ceil(usize::from(host.usable_percent));
    let enough = u32::try_from(enough).unwrap_or(MAX_CPUS);
    let high = enough
        .max(low)
        .max(masked.saturating_add(enough))
        .min(MAX_CPUS);
    // From the bound upwards in growing strides, then back to the least count that passes.
    let (mut fails_below, mut proven, mut stride) = (low, true, 0);
    loop {
        let probe = low.saturating_add(stride).min(high);
        let admission = admit(&host.with_cpus(probe), vcpus, work);
        if admission.is_feasible() {
            let mut count = probe;
            while fails_below < count {
                let middle = fails_below + (count - fails_below) / 2;
                let admission = admit(&host.with_cpus(middle), vcpus, work);
                if admission.is_feasible() {
                    count = middle;
                } else {
                    (fails_below, proven) = (middle + 1, admission.proven);
                }
            }
            // `proven` is about the count just below.
            return Some(Processors {
                count,
                exact: proven,
            });
        }
        if probe == high {
            return None;
        }
        (fails_below, proven) = (probe + 1, admission.proven);
        stride = (stride * 2).max(1);
    }
}

fn lower_bound(host: &Host, vcpus: &[Vcpu]) -> u32 {
    let loads = || {
        vcpus.iter().map(|vcpu| {
            let cost = vcpu.cost(&host.overheads);
            Fraction::new(cost.into(), vcpu.period.into())
        })
    };
    let ceil = exact_sum(loads()).map_or_else(
        || Interval::of(loads()).floor_times(1),
        |sum| div_ceil_wide(sum.numerator, sum.denominator),
    );
    u32::try_from(ceil).unwrap_or(MAX_CPUS).clamp(1, MAX_CPUS)
}
