//! The least number of CPUs for a set of VCPUs.
//!
//! Rule: the least m for which [`super::admit`] says yes on CPUs 0..m: full VCPUs have CPUs of their
//! own, the rest passes on what is left. Every test stays passed when a CPU is added.
//! m starts at ceil(sum of bandwidths with overheads), below which nothing can hold them; it is found in
//! growing strides and then by bisection.
//!
//! Complexity: O(log VCPUs) admissions. Exact as far as admission is ([`Processors::exact`]).

use super::{Admission, Host, MAX_CPUS, Vcpu, admit};
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
    least_between(host, vcpus, low, highest(host, vcpus, low), work)
}

/// Admission, and where that fails the least number of fewer CPUs that hold the VCPUs. Packing is a heuristic: it may
/// find a place on fewer CPUs that it misses on all of them. Global tests get no better with fewer CPUs, but that one
/// CPU has a test of its own.
pub(crate) fn admit_on_some(host: &Host, vcpus: &[Vcpu]) -> (Admission, Option<Processors>) {
    let admission = admit(host, vcpus, &mut Work::default());
    if admission.is_feasible() || host.cpus == 1 {
        return (admission, None);
    }
    let low = lower_bound(host, vcpus);
    let high = if host.scheduler.is_partitioned() {
        host.cpus - 1
    } else {
        1
    };
    let fewer = (low <= high)
        .then(|| least_between(host, vcpus, low, high, &mut Work::default()))
        .flatten();
    match fewer {
        Some(least) => {
            let host = host.with_cpus(least.count);
            (admit(&host, vcpus, &mut Work::default()), Some(least))
        }
        None => (admission, None),
    }
}

/// The same and the least number of CPUs, in agreement.
pub(crate) fn admit_and_count(host: &Host, vcpus: &[Vcpu]) -> (Admission, Option<Processors>) {
    let (admission, fewer) = admit_on_some(host, vcpus);
    if fewer.is_some() || vcpus.is_empty() {
        let none = || minimal_processors(host, vcpus, &mut Work::default());
        return (admission, fewer.or_else(none));
    }
    let low = lower_bound(host, vcpus);
    let work = &mut Work::default();
    if admission.is_feasible() {
        let least = least_between(host, vcpus, low.min(host.cpus), host.cpus, work);
        // The search may have run out of work.
        let all = Processors {
            count: host.cpus,
            exact: false,
        };
        return (admission, Some(least.unwrap_or(all)));
    }
    let low = low.max(host.cpus.saturating_add(1));
    let high = highest(host, vcpus, low);
    let more = (low <= high)
        .then(|| least_between(host, vcpus, low, high, work))
        .flatten();
    let more = more.map(|found| Processors {
        exact: found.exact && (found.count > low || admission.proven),
        ..found
    });
    (admission, more)
}

/// So many CPUs do if any number does.
fn highest(host: &Host, vcpus: &[Vcpu], low: u32) -> u32 {
    let masks = vcpus.iter().filter_map(|vcpu| vcpu.mask.as_ref()?.last());
    let masked = masks.max().map_or(0, |&last| last.saturating_add(1));
    // A CPU for each, and as many more as what enforces budgets keeps of these.
    let enough = (vcpus.len() * 100).div_ceil(usize::from(host.usable_percent));
    let enough = u32::try_from(enough).unwrap_or(MAX_CPUS);
    let high = enough.max(low).max(masked.saturating_add(enough));
    high.min(MAX_CPUS)
}

/// The least count from `low` to `high` that holds `vcpus`; fewer than `low` are known not to.
fn least_between(
    host: &Host,
    vcpus: &[Vcpu],
    low: u32,
    high: u32,
    work: &mut Work,
) -> Option<Processors> {
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
