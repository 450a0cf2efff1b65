//! What `receive` of a VM comes to. The plan and the host read it by this one rule.

use crate::{Count, File, ReceiveBudget, Written};

/// The period, unless the file says it.
const PERIOD_NS: i64 = 10_000_000;

/// What a packet costs, unless the file or a measurement says it: more than on most hosts, so that the bound holds.
const PACKET_NS: i64 = 5_000;

/// Bounds of a period: an XDP program counts in nanoseconds, and products of two times stay below 2^64.
const PERIODS_NS: (i64, i64) = (1_000, 4_000_000_000);

/// More threads are no VM's.
const MOST_THREADS: i64 = 64;

/// More packets per second are no card's.
const MOST_PACKETS: i64 = 1_000_000_000;

/// CPU time in each period, which so many threads share evenly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Of all together.
    pub total_ns: i64,
    /// How many.
    pub threads: u32,
}

impl Share {
    /// Of each thread.
    pub fn each_ns(&self) -> i64 {
        self.total_ns / i64::from(self.threads.max(1))
    }
}

/// What receiving for a VM may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveServers {
    /// The period of both budgets.
    pub period_ns: i64,
    /// What a packet is taken to cost.
    pub packet_ns: i64,
    /// What receives by the VM's card; none: unbounded.
    pub polls: Option<Share>,
    /// Its vhost workers; none: unbounded.
    pub vhost: Option<Share>,
}

/// What is wrong, and what to do.
pub type Refusal = (&'static str, &'static str);

impl ReceiveBudget {
    /// What it comes to.
    ///
    /// # Errors
    /// What its values do not mean together.
    pub fn servers(&self) -> Result<ReceiveServers, Refusal> {
        let or = |written: Option<Written>, default| written.map_or(default, |Written(ns)| ns);
        let period_ns = or(self.period, PERIOD_NS);
        let packet_ns = or(self.packet, PACKET_NS);
        if !(PERIODS_NS.0..=PERIODS_NS.1).contains(&period_ns) {
            return Err(("the period is out of range", "use \"1us\" to \"4s\""));
        }
        if !(1..=i64::from(u32::MAX)).contains(&packet_ns) {
            return Err((
                "a packet costs nothing, or more than 4 s",
                "use a time such as \"5us\"",
            ));
        }
        let budget_ns = match (self.budget, self.rate) {
            (Some(_), Some(_)) => {
                return Err((
                    "budget and rate exclude each other",
                    "keep one: `rate` times `packet` is a budget",
                ));
            }
            (Some(Written(budget_ns)), None) => Some(budget_ns),
            (None, Some(Count(rate))) => Some(of_rate(rate, packet_ns, period_ns)?),
            (None, None) => None,
        };
        if budget_ns.is_none() && self.vhost_budget.is_none() {
            return Err((
                "it bounds nothing",
                "write `budget`, or `rate`, or `vhost_budget`",
            ));
        }
        let share = |total_ns: Option<i64>, threads: Option<Count>| {
            let threads = threads.map_or(1, |Count(threads)| threads);
            let threads = u32::try_from(threads.clamp(0, MOST_THREADS + 1)).unwrap_or(0);
            let share = total_ns.map(|total_ns| Share { total_ns, threads });
            check(share, i64::from(threads), period_ns).map(|()| share)
        };
        let polls = share(budget_ns, self.napi_threads)?;
        if budget_ns.is_some_and(|budget_ns| packet_ns > budget_ns) {
            return Err((
                "a packet costs more than the budget",
                "use a budget of at least one packet",
            ));
        }
        Ok(ReceiveServers {
            period_ns,
            packet_ns,
            polls,
            vhost: share(self.vhost_budget.map(|Written(ns)| ns), self.workers)?,
        })
    }
}

fn check(share: Option<Share>, threads: i64, period_ns: i64) -> Result<(), Refusal> {
    if !(1..=MOST_THREADS).contains(&threads) {
        return Err(("the number of threads is out of range", "use 1 to 64"));
    }
    match share {
        Some(share) if share.total_ns > period_ns => Err((
            "the budget is longer than its period",
            "one CPU is all of it: a budget as long as the period",
        )),
        Some(share) if share.each_ns() <= 0 => {
            Err(("the budget is nothing", "use a time such as \"2ms\""))
        }
        _ => Ok(()),
    }
}

/// CPU time in a period of so many packets per second, rounded up, and of one packet at least.
fn of_rate(rate: i64, packet_ns: i64, period_ns: i64) -> Result<i64, Refusal> {
    if !(1..=MOST_PACKETS).contains(&rate) {
        return Err((
            "the rate is out of range",
            "use packets per second, 1 to 1000000000",
        ));
    }
    let second = 1_000_000_000;
    let sum = i128::from(rate) * i128::from(packet_ns) * i128::from(period_ns);
    let budget = (sum + second - 1) / second;
    // Beyond 2^63 it is longer than any period, and refused for that.
    Ok(i64::try_from(budget).unwrap_or(i64::MAX).max(packet_ns))
}

impl File {
    /// The file with this cost of a packet wherever `receive` leaves it out.
    #[must_use]
    pub fn with_packet_cost(&self, packet_ns: i64) -> Self {
        let mut file = self.clone();
        for vm in &mut file.vm {
            if let Some(receive) = &mut vm.value.receive {
                let packet = &mut receive.value.packet;
                *packet = packet.or(Some(Written(packet_ns)));
            }
        }
        file
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn budget() -> ReceiveBudget {
        ReceiveBudget {
            budget: None,
            rate: None,
            napi_threads: None,
            vhost_budget: None,
            workers: None,
            period: None,
            packet: None,
        }
    }

    #[test]
    fn a_rate_is_a_budget_of_its_packets() {
        let of = |rate, packet_ns| {
            let written = ReceiveBudget {
                rate: Some(Count(rate)),
                packet: Some(Written(packet_ns)),
                ..budget()
            };
            written
                .servers()
                .map(|it| it.polls.map(|share| share.total_ns))
        };
        // 20,000 packets per second are 200 in 10 ms.
        assert_eq!(of(20_000, 3_000), Ok(Some(600_000)));
        // A part of a packet counts as a whole one.
        assert_eq!(of(1, 3_000), Ok(Some(3_000)));
        assert_eq!(of(333_333, 2_999), Ok(Some(9_996_657)));
        assert!(of(333_334, 3_001).is_err(), "more than a CPU");
        assert!(of(0, 3_000).is_err() && of(i64::MAX, 3_000).is_err());
    }

    #[test]
    fn what_means_nothing_is_refused() {
        let time = |ns| Some(Written(ns));
        for (wrong, what) in [
            (budget(), "bounds nothing"),
            (
                ReceiveBudget {
                    budget: time(1_000_000),
                    rate: Some(Count(1)),
                    ..budget()
                },
                "exclude",
            ),
            (
                ReceiveBudget {
                    vhost_budget: time(10_000_001),
                    ..budget()
                },
                "longer",
            ),
            (
                ReceiveBudget {
                    vhost_budget: time(0),
                    ..budget()
                },
                "nothing",
            ),
            (
                ReceiveBudget {
                    vhost_budget: time(-1),
                    ..budget()
                },
                "nothing",
            ),
            (
                ReceiveBudget {
                    budget: time(1_000),
                    packet: time(1_001),
                    ..budget()
                },
                "more than the budget",
            ),
            (
                ReceiveBudget {
                    budget: time(9_000),
                    napi_threads: Some(Count(65)),
                    ..budget()
                },
                "number of threads",
            ),
            (
                ReceiveBudget {
                    vhost_budget: time(9_000),
                    workers: Some(Count(0)),
                    ..budget()
                },
                "number of threads",
            ),
            (
                ReceiveBudget {
                    vhost_budget: time(9_000),
                    period: time(999),
                    ..budget()
                },
                "period is out",
            ),
        ] {
            let (said, _) = wrong.servers().unwrap_err();
            assert!(said.contains(what), "{said}: {what}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_written_threads_get_no_more_than_the_whole(
            total in any::<i64>(), rate in prop::option::of(any::<i64>()), threads in any::<i64>(), period in any::<i64>(),
            packet in any::<i64>(),
        ) {
            let written = ReceiveBudget {
                budget: rate.is_none().then_some(Written(total)),
                rate: rate.map(Count),
                napi_threads: Some(Count(threads)),
                vhost_budget: Some(Written(total)),
                workers: Some(Count(threads)),
                period: Some(Written(period)),
                packet: Some(Written(packet)),
            };
            if let Ok(servers) = written.servers() {
                for share in [servers.polls, servers.vhost].into_iter().flatten() {
                    prop_assert!(share.each_ns() > 0);
                    prop_assert!(share.each_ns() * i64::from(share.threads) <= share.total_ns);
                    prop_assert!(share.total_ns <= servers.period_ns);
                }
            }
        }
    }
}
