//! Receive servers: what receives for a VM, with a budget of `SCHED_DEADLINE`, in the same sum as VCPUs.
//!
//! Rule: each NAPI thread of a VM's function, and each of its vhost workers, is a constant-bandwidth server of budget Q in
//! every period P. Admission treats it as a VCPU: it has a place, and takes its share of a CPU. It counts for VMs that are
//! not real-time, too. What an XDP program bounds is no server: its polls have a rank, and run in what is left.
//!
//! Bound: a server whose budget others have used up stays away for at most 2 (P - Q), and supplies at least Q / P after that
//! (Shin and Lee 2003). Servers in a row supply the least of their rates, after the sum of their times away (network calculus,
//! Le Boudec and Thiran 2001, theorem 1.4.6). So a packet costs P / Q of its cost, and waits for their times away. A vhost
//! worker carries responses, too: the way back has its part of both.

use serde::Serialize;
use steadyvm_config::{self as config, CardWay, Share};

use super::{InputError, Install, Unit, Vm, way::Way};
use crate::time::{Amount, MAX_TIME, Time};

/// What a thread does that receives for a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiveWork {
    /// It polls the VM's function.
    Polls,
    /// It is a vhost worker.
    Vhost,
}

impl ReceiveWork {
    /// In words, of one of them.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Polls => "NAPI thread",
            Self::Vhost => "vhost worker",
        }
    }
}

/// A thread's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReceiveServer {
    pub work: ReceiveWork,
    /// Its number among those of the same work.
    pub number: usize,
    pub budget: Time,
    pub period: Time,
}

/// A receive server in a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReceiveReport {
    /// What its thread does.
    pub work: ReceiveWork,
    /// Its number among those of the same work.
    pub number: usize,
    /// Execution in every period, time.
    pub budget: Time,
    /// The period, time.
    pub period: Time,
    /// The CPUs it runs on; empty if the host does not hold it.
    pub cpus: Vec<u32>,
    /// What the plan counts for it; `null` if it has no place, or the unit of time is unknown. The thread itself gets the budget
    /// alone.
    pub install: Option<Install>,
}

impl ReceiveReport {
    pub(super) fn of(server: &ReceiveServer) -> Self {
        Self {
            work: server.work,
            number: server.number,
            budget: server.budget,
            period: server.period,
            cpus: Vec::new(),
            install: None,
        }
    }
}

/// The servers of a VM's table. `packet`: what was measured of one.
pub(super) fn servers(
    table: &config::Vm,
    place: &str,
    unit: Unit,
    packet: Option<Time>,
) -> Result<Vec<ReceiveServer>, InputError> {
    let Some(receive) = table.receive.as_ref().map(|receive| receive.value) else {
        return Ok(Vec::new());
    };
    let name = table.name.as_deref().unwrap_or_default();
    let refuse = |(what, fix): (&str, &str)| {
        InputError::new(place, format!("VM \"{name}\": receive: {what}; {fix}"))
    };
    if unit == Unit::Callers && (receive.period.is_none() || receive.rate.is_some()) {
        return Err(refuse((
            "times here have no unit, and a rate and the default period are in seconds",
            "give budget and period",
        )));
    }
    let packet = receive.packet.or(packet.map(config::Written));
    let budgets = config::ReceiveBudget { packet, ..receive };
    let budgets = budgets.servers().map_err(refuse)?;
    let polls = budgets.polls.filter(|_| table.way != Some(CardWay::Xdp));
    let mut servers = Vec::new();
    for (work, share) in [
        (ReceiveWork::Polls, polls),
        (ReceiveWork::Vhost, budgets.vhost),
    ] {
        let Some(share) = share else { continue };
        if share.each_ns() >= budgets.period_ns {
            return Err(refuse((
                "SCHED_DEADLINE gives no thread a whole CPU",
                "use a budget below the period",
            )));
        }
        servers.extend(each(work, share, budgets.period_ns));
    }
    Ok(servers)
}

fn each(work: ReceiveWork, share: Share, period: Time) -> impl Iterator<Item = ReceiveServer> {
    (0..share.threads as usize).map(move |number| ReceiveServer {
        work,
        number,
        budget: share.each_ns(),
        period,
    })
}

/// What servers make of a way in: how much longer a packet takes, and how long they may stay away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slowed {
    /// The slowest supplies so much in every `period`.
    budget: Time,
    period: Time,
    /// All together, one after the other.
    pub away: Time,
}

impl Slowed {
    /// Of what these works of a VM handle one after the other; none if nothing bounds them.
    fn of(vm: &Vm, works: &[ReceiveWork]) -> Option<Self> {
        // All of one work have the same budget, and a packet takes one of them.
        let servers = works.iter().filter_map(|&work| {
            let server = vm.receive.iter().find(|server| server.work == work)?;
            Some(Self {
                budget: server.budget,
                period: server.period,
                away: 2 * (server.period - server.budget),
            })
        });
        servers.reduce(Self::then)
    }

    /// Of a VM's packets on their way in.
    pub fn receiving(vm: &Vm) -> Option<Self> {
        Self::of(vm, &[ReceiveWork::Polls, ReceiveWork::Vhost])
    }

    /// Of its responses.
    pub fn sending(vm: &Vm) -> Option<Self> {
        Self::of(vm, &[ReceiveWork::Vhost])
    }

    /// One behind the other.
    fn then(self, other: Self) -> Self {
        let slower = self.slower(other);
        Self {
            away: self.away.saturating_add(other.away),
            ..slower
        }
    }

    /// Whichever is worse, in each respect.
    pub fn or(self, other: Self) -> Self {
        let away = self.away.max(other.away);
        Self {
            away,
            ..self.slower(other)
        }
    }

    fn slower(self, other: Self) -> Self {
        let share = |one: Self, of: Self| Amount::from(one.budget) * Amount::from(of.period);
        if share(self, other) <= share(other, self) {
            self
        } else {
            other
        }
    }

    /// What a packet of this cost takes of the slowest server's supply.
    pub fn packet(self, cost: Time) -> Time {
        let product = Amount::from(cost) * Amount::from(self.period);
        let budget = Amount::from(self.budget.max(1));
        let slow = (product + budget - 1) / budget;
        // No analysis goes further.
        Time::try_from(slow).unwrap_or(MAX_TIME).min(MAX_TIME)
    }
}

/// The term of servers that others' packets have used up.
pub(super) const AWAY: &str = "receive budgets that others have used up";

impl Way {
    /// What comes in this way is handled by servers: all but its interrupt takes longer.
    pub fn received_by(&mut self, slowed: Slowed) {
        if self.queue.is_some() {
            self.slowed = Some(slowed);
            return;
        }
        for (_, time) in self
            .terms
            .iter_mut()
            .filter(|(what, _)| *what != "interrupt")
        {
            *time = slowed.packet(*time);
        }
        self.terms.push((AWAY, slowed.away));
    }

    /// What goes out this way is handled by servers: all that is neither the guest's nor the card's takes longer.
    pub fn sent_by(&mut self, slowed: Slowed) {
        let before: Time = self.terms.iter().map(|&(_, time)| time).sum();
        let is_elses = |what: &str| ["guest transmit", "NIC"].contains(&what);
        for (_, time) in self.terms.iter_mut().filter(|(what, _)| !is_elses(what)) {
            *time = slowed.packet(*time);
        }
        self.terms.push((AWAY, slowed.away));
        let after: Time = self.terms.iter().map(|&(_, time)| time).sum();
        self.in_front = self.in_front.saturating_add(after - before);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a constant-bandwidth server supplies by a time, where its first budget was used at the period's begin and every
    /// later one comes as late as may be.
    fn worst_supply(budget: Time, period: Time, by: Time) -> Time {
        let late = (by - 2 * (period - budget)).max(0);
        (late / period) * budget + (late % period).min(budget)
    }

    /// When two servers in a row are through with packets that come at once, tick by tick.
    fn simulated(servers: [(Time, Time); 2], costs: [Time; 2], packets: Time) -> Time {
        let mut done = [0, 0];
        // The second is at its worst when the first packet comes to it.
        let mut begins = [0, Time::MAX];
        for now in 0.. {
            if begins[1] > now && done[0] >= costs[0] {
                begins[1] = now;
            }
            for stage in [0, 1] {
                let (budget, period) = servers[stage];
                let since = (now - begins[stage]).max(-1);
                let supplied =
                    worst_supply(budget, period, since + 1) > worst_supply(budget, period, since);
                // A packet is there once the stage before is through with it.
                let ready = if stage == 0 {
                    packets
                } else {
                    done[0] / costs[0]
                };
                if supplied && done[stage] < ready * costs[stage] {
                    done[stage] += 1;
                }
            }
            if done[1] == packets * costs[1] {
                return now + 1;
            }
        }
        unreachable!()
    }

    proptest! {
        #[test]
        fn no_packet_of_two_servers_in_a_row_is_later_than_the_bound(
            budgets in prop::array::uniform2(1_i64..10), spare in prop::array::uniform2(0_i64..10),
            costs in prop::array::uniform2(1_i64..4), packets in 1_i64..4,
        ) {
            let server = |at: usize| (budgets[at], budgets[at] + spare[at]);
            let slowed = |(budget, period): (Time, Time)| Slowed { budget, period, away: 2 * (period - budget) };
            let both = slowed(server(0)).then(slowed(server(1)));
            let bound = both.away + packets * both.packet(costs[0] + costs[1]);
            prop_assert!(simulated([server(0), server(1)], costs, packets) <= bound);
        }
    }

    #[test]
    fn the_worse_of_two_is_worse_in_each_respect() {
        let slowed = |budget, period| Slowed {
            budget,
            period,
            away: 2 * (period - budget),
        };
        let (thin, coarse) = (slowed(1, 10), slowed(50, 100));
        let both = thin.or(coarse);
        assert_eq!((both.packet(3), both.away), (30, 100));
        assert_eq!(coarse.or(thin), both);
        assert_eq!(thin.then(coarse).away, 118);
    }
}
