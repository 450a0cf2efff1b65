//! What servers of receive work make of the way that they handle: longer packets, and a time without supply.

use super::Vm;
use super::receive::ReceiveWork;
use crate::time::{Amount, MAX_TIME, Time};

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
