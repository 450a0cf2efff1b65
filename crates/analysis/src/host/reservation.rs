//! Constant-bandwidth reservations (Q, D, T) on one CPU under EDF.
//!
//! Model: hard constant-bandwidth servers with D <= T. A server that wakes in a new period has Q until D later; one
//! that wakes again before that deadline keeps it with at most Q / D of the time left (`SCHED_DEADLINE`'s
//! wake-up rule; for D < T the revised one), and one that wakes between deadline and next period waits for the
//! period.
//!
//! Formula: sum floor(t / T) Q + Q min(t mod T, D) / D <= t for all t: a window may begin in the middle of a
//! reservation, whose rest is at most its density times the time to its deadline. The left side is linear
//! between the instants k T and k T + D and bends down only at the latter, so these decide. With sum Q / D <= 1
//! it always holds; where D = T for all that is exact.
//!
//! Where all VCPUs are reservations of one task and their guests are believed to keep to that, windows that begin in the middle of a
//! reservation do not matter: each demands Q in D of its request on, sum (floor((t - D) / T) + 1) Q <= t ([`edf`]). A guest
//! that breaks its promise can then make others late.
//!
//! Complexity: one sum per corner up to (sum Q (1 - D / T)) / (1 - U). Sufficient.
//! Sources: Baruah, Mok and Rosier, RTSS 1990 (processor demand); Casini et al., RTNS 2017 (hard
//! constant-bandwidth servers with constrained deadlines, revised wake-up rule).

use std::cmp::Ordering;

use super::{FairServer, fair::FairServers};
use crate::{
    guest::edf,
    ratio::{Fraction, Interval, compare_sum},
    supply::Dedicated,
    task::Task,
    time::{Amount, MAX_INSTANT, Time, div_ceil_wide},
    verdict::{Stop, Verdict, Violation},
    work::Work,
};

/// Decides whether reservations, given as tasks (C, D, T, J seen release delay), hold on one CPU.
///
/// With jitter the periods as the scheduler sees them may be closer than T: then the densities decide alone.
pub(super) fn test(
    vcpus: &[Task],
    fair_server: Option<FairServer>,
    isolated: bool,
    work: &mut Work,
) -> Verdict {
    if !isolated && vcpus.iter().all(|vcpu| vcpu.jitter() == 0) {
        return believed(vcpus, fair_server, work);
    }
    if let Err(exhausted) = work.spend(vcpus.len(), 0) {
        return exhausted.into();
    }
    let one = Fraction::new(1, 1);
    match compare_sum(vcpus.iter().map(Task::density), one) {
        Some(Ordering::Less | Ordering::Equal) => {
            return match fair_server {
                Some(fair_server) => beside(vcpus, fair_server, work),
                None => Verdict::Schedulable,
            };
        }
        None => return Verdict::Undecided(Stop::precision()),
        Some(Ordering::Greater) => {}
    }
    if let Some(violation) = (vcpus.iter().any(|vcpu| vcpu.jitter() > 0))
        .then(|| dense(vcpus, 1, None))
        .flatten()
    {
        return Verdict::Unschedulable(violation);
    }
    let load = Interval::of(vcpus.iter().map(Task::utilization));
    let ahead: Amount = vcpus.iter().map(ahead).sum();
    let horizon = load
        .catch_up(one, ahead)
        .and_then(|horizon| Time::try_from(horizon).ok())
        .filter(|&horizon| horizon <= MAX_INSTANT);
    let Some(horizon) = horizon else {
        // No room at all: the sporadic demand shows it, or nothing does.
        return match edf::test(vcpus, &Dedicated::new(1), work) {
            Verdict::Schedulable => Verdict::Undecided(Stop::precision()),
            verdict => verdict,
        };
    };
    for (index, vcpu) in vcpus.iter().enumerate() {
        let mut corner = vcpu.deadline();
        while corner <= horizon {
            if let Err(exhausted) = work.spend(vcpus.len(), corner) {
                return exhausted.into();
            }
            let demand: Amount = vcpus.iter().map(|vcpu| demand(vcpu, corner)).sum();
            if demand > corner.into() {
                return Verdict::Unschedulable(Violation {
                    index,
                    at: corner,
                    demand,
                    supply: corner.into(),
                });
            }
            corner += vcpu.period();
        }
    }
    Verdict::Schedulable
}

/// Decides whether sporadic tasks hold on one CPU, beside its fair server.
fn believed(vcpus: &[Task], fair_server: Option<FairServer>, work: &mut Work) -> Verdict {
    let cpu = Dedicated::new(1);
    let Some(shortest) = vcpus.iter().map(Task::deadline).min() else {
        return Verdict::Schedulable;
    };
    let Some(fair_server) = fair_server else {
        return edf::test(vcpus, &cpu, work);
    };
    let mut all = vcpus.to_vec();
    all.push(fair_server.task());
    match edf::test_from(&all, &cpu, shortest, work) {
        Verdict::Unschedulable(violation) => {
            let index = violation.index.min(vcpus.len().saturating_sub(1));
            Verdict::Unschedulable(Violation { index, ..violation })
        }
        verdict => verdict,
    }
}

/// Decides whether VCPUs whose densities a CPU holds have room beside its fair server, too.
fn beside(vcpus: &[Task], fair_server: FairServer, work: &mut Work) -> Verdict {
    let Some((index, shortest)) =
        (vcpus.iter().map(Task::window).enumerate()).min_by_key(|&(_, at)| at)
    else {
        return Verdict::Schedulable;
    };
    // A jitter shortens the first window, and deadlines then decide alone.
    let dense = vcpus.iter().any(|vcpu| vcpu.jitter() > 0);
    let of_all = |at: Time| -> Amount {
        let share = |vcpu: &Task| {
            if dense {
                let scaled = Amount::from(vcpu.demand()) * Amount::from(at);
                div_ceil_wide(scaled, vcpu.window().into())
            } else {
                demand(vcpu, at)
            }
        };
        fair_server.demand(at) + vcpus.iter().map(share).sum::<Amount>()
    };
    let share = Fraction::new(fair_server.runtime.into(), fair_server.period.into());
    let loads = vcpus.iter().map(|vcpu| {
        if dense {
            vcpu.density()
        } else {
            vcpu.utilization()
        }
    });
    let load = Interval::of(loads.chain([share]));
    let ahead = vcpus.iter().map(ahead).sum::<Amount>() + Amount::from(fair_server.runtime);
    let horizon = (load.catch_up(Fraction::new(1, 1), ahead))
        .and_then(|horizon| Time::try_from(horizon).ok())
        .filter(|&horizon| horizon <= MAX_INSTANT);
    let violated = |at: Time| {
        let demand = of_all(at);
        (demand > at.into()).then_some(Violation {
            index,
            at,
            demand,
            supply: at.into(),
        })
    };
    if let Some(violation) = violated(shortest) {
        return Verdict::Unschedulable(violation);
    }
    let Some(horizon) = horizon else {
        return Verdict::Undecided(Stop::precision());
    };
    let mut steps = fair_server.next_step(shortest);
    while steps <= horizon {
        if let Err(exhausted) = work.spend(vcpus.len(), steps) {
            return exhausted.into();
        }
        if let Some(violation) = violated(steps) {
            return Verdict::Unschedulable(violation);
        }
        steps += fair_server.period;
    }
    // Demand bends down at ends of deadlines only.
    for vcpu in vcpus.iter().filter(|_| !dense) {
        let mut corner = vcpu.deadline();
        while corner <= horizon {
            if let Err(exhausted) = work.spend(vcpus.len(), corner) {
                return exhausted.into();
            }
            if let Some(violation) = violated(corner) {
                return Verdict::Unschedulable(violation);
            }
            corner += vcpu.period();
        }
    }
    Verdict::Schedulable
}

/// How far the demand of a reservation is above its utilisation's line, at most, rounded up.
fn ahead(vcpu: &Task) -> Amount {
    let (budget, deadline) = (Amount::from(vcpu.demand()), Amount::from(vcpu.deadline()));
    budget - budget * deadline / Amount::from(vcpu.period()) + 1
}

fn demand(vcpu: &Task, window: Time) -> Amount {
    let periods = vcpu.periods_in(window);
    let rest = (window - periods * vcpu.period()).min(vcpu.deadline());
    let budget = Amount::from(vcpu.demand());
    Amount::from(periods) * budget
        + div_ceil_wide(budget * Amount::from(rest), vcpu.deadline().into())
}

/// The window in which densities show more demand than `processors` supply, if they do: the densest VCPU's own, or the one
/// of which fair servers take most. It counts `processors - 1` times more of that VCPU: so much may be idle while it runs
/// alone.
pub(super) fn dense(
    vcpus: &[Task],
    processors: usize,
    fair_servers: Option<FairServers>,
) -> Option<Violation> {
    let densest = |&index: &usize| Interval::of([vcpus[index].density()].into_iter()).upper();
    let index = (0..vcpus.len()).max_by_key(densest)?;
    let shortest = vcpus.iter().map(Task::window).min()?;
    let at = fair_servers.map_or(vcpus[index].window(), |them| them.worst(shortest));
    let share = |vcpu: &Task| {
        let scaled = Amount::from(vcpu.demand()) * Amount::from(at);
        div_ceil_wide(scaled, vcpu.window().into())
    };
    let taken = fair_servers.map_or(0, |them| them.demand(at));
    let demand = vcpus.iter().map(share).sum::<Amount>()
        + (processors as Amount - 1) * share(&vcpus[index])
        + taken;
    let supply = processors as Amount * Amount::from(at);
    (demand > supply).then_some(Violation {
        index,
        at,
        demand,
        supply,
    })
}
