//! The interface of a VM that leaves the choice to the plan.
//!
//! Rule: the reservation that wakes with the request, where there is one task and the host's servers are
//! constant-bandwidth ones, against the best periodic resource of a few periods; the least bandwidth on the host
//! wins, costs included. A host with a fair server has less of a period for VCPUs; what that server takes of a short one
//! weighs more, and a period counts by the room that is left. Periods tried: the shortest task period divided by 1 to [`PARTS`], none below
//! [`SHORTEST_NS`] in a file: below it a host's costs, given or not, outweigh what a shorter blackout saves.

use super::{InterfaceName, Period, TaskNeeds, Unit};
use crate::{
    error::Error,
    host::{Host, VcpuServer},
    interface::{Infeasible, Interface, Resource, minimal, reservation},
    supply::Replenishment,
    task::Task,
    time::{Amount, Time},
    verdict::Stop,
    work::Work,
};
use std::cmp::Ordering;

const PARTS: Time = 40;

const SHORTEST_NS: Time = 200_000;

/// An interface that would do, and its name.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    pub interface: Interface,
    pub name: &'static str,
}

/// What would do, cheapest first; the reason if nothing does.
pub(super) fn ranked(
    needs: &TaskNeeds,
    host: &Host,
    unit: Unit,
    work: &mut Work,
) -> Result<Result<Vec<Choice>, Infeasible>, Error> {
    let tasks = needs.tasks();
    let mut choices = Vec::new();
    let aligned = host.server() == VcpuServer::ConstantBandwidth;
    if aligned && needs.interface != InterfaceName::Prm {
        let reservation = reservation::with_margin(&tasks, host.overheads().margin);
        choices.extend(reservation.map(|interface| Choice {
            interface,
            name: "a reservation that wakes with the request",
        }));
    }
    let mut failure = None;
    if needs.interface != InterfaceName::Reservation {
        let resource = Resource {
            kind: needs.interface.into(),
            replenishment: host.replenishment(),
        };
        let name = match resource.replenishment {
            Replenishment::AtOnce => "a periodic resource",
            Replenishment::InPieces => "a sporadic server",
        };
        let mut resources = Vec::new();
        for period in periods(needs, unit) {
            match minimal(
                &tasks,
                needs.scheduler.into(),
                resource,
                period,
                needs.vcpus,
                work,
            )? {
                Ok(interface) => resources.push(Choice { interface, name }),
                Err(reason) => failure = failure.or(Some(reason)),
            }
        }
        let best = (resources.into_iter())
            .min_by(|a, b| cheaper(host, &tasks, &a.interface, &b.interface));
        choices.extend(best);
    }
    choices.sort_by(|a, b| cheaper(host, &tasks, &a.interface, &b.interface));
    if choices.is_empty() {
        return Ok(Err(
            failure.unwrap_or(Infeasible::Undecided(Stop::precision()))
        ));
    }
    Ok(Ok(choices))
}

fn periods(needs: &TaskNeeds, unit: Unit) -> Vec<Time> {
    match needs.period {
        Period::Fixed(period) => vec![period],
        Period::Best(range) => range.periods().collect(),
        Period::Chosen => {
            let longest = needs
                .tasks
                .iter()
                .map(|named| named.task.period())
                .min()
                .unwrap_or(1);
            let shortest = if unit == Unit::Nanosecond {
                SHORTEST_NS.min(longest)
            } else {
                1
            };
            let mut periods: Vec<Time> = (1..=PARTS).map(|part| longest / part).collect();
            periods.retain(|&period| period >= shortest);
            periods.dedup();
            periods
        }
    }
}

/// Compares costs by the room that a period has for VCPUs; at equal ones the longer period comes first.
fn cheaper(host: &Host, tasks: &[Task], a: &Interface, b: &Interface) -> Ordering {
    let cost = |interface: &Interface| interface.cost(tasks, host.overheads());
    let (of_a, of_b) = (room(host, a.period), room(host, b.period));
    let by_room = match (of_a > 0, of_b > 0) {
        (true, true) => (cost(a) * of_b).cmp(&(cost(b) * of_a)),
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => {
            (cost(a) * Amount::from(b.period)).cmp(&(cost(b) * Amount::from(a.period)))
        }
    };
    by_room.then(b.period.cmp(&a.period))
}

/// What of a period the fair server of a CPU leaves to VCPUs; none if it may take all.
fn room(host: &Host, period: Time) -> Amount {
    let taken = host.fair_server().map_or(0, |fair| fair.demand(period));
    (Amount::from(period) - taken).max(0)
}
