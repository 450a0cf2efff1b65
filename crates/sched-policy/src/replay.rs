//! Replays what a running scheduler recorded (`policy/event.h`) on the policy, and finds the first difference.
//!
//! Each server's events give its whole state again, so that budget and key at each RUN are compared exactly. Between
//! servers, one may run while another of less key waits only for as long as the host takes to react.

use crate::event::{EVENT_VERSION, Event, EventKind, NO_SERVER};
use crate::{CpuSet, Host, MAX_CPUS, Order, Server};
use std::collections::BTreeMap;

const HEADER: usize = 32;
/// Interrupts take less than one in this many of the time that servers have a CPU.
const MOST_INTERRUPTED: u64 = 4;
/// No more than one in this many of it is accounted beyond the time that a server had: what the kernel counts early for
/// one it counts less for the next.
const MOST_OVERCHARGED: u64 = 100;
const MAGIC: &[u8; 8] = b"SVMSCHED";

/// Why a record cannot be replayed, or where it differs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// No record of this version.
    #[error("this is no record of version {EVENT_VERSION}: {0}; record again with this program")]
    NotARecord(&'static str),
    /// The scheduler and the policy differ.
    #[error("record {index} ({kind:?}, server {server}, CPU {cpu}, {time_ns} ns): {what}")]
    Difference {
        /// The record's number in order of time, 0 first.
        index: usize,
        /// What was recorded.
        kind: EventKind,
        /// The server's number.
        server: u32,
        /// The CPU.
        cpu: u32,
        /// When, ns.
        time_ns: u64,
        /// How it differs.
        what: String,
    },
    /// More of the time is accounted to nobody than interrupts can have taken.
    #[error(
        "servers had a CPU for {held_ns} ns, and {interrupted_ns} ns of that are accounted to none"
    )]
    Unaccounted {
        /// How long servers had a CPU, ns.
        held_ns: u64,
        /// What of it was not accounted, ns.
        interrupted_ns: u64,
    },
    /// Servers are charged for time that they did not have.
    #[error("servers had a CPU for {held_ns} ns, and were charged {overcharged_ns} ns beyond that")]
    Overcharged {
        /// How long servers had a CPU, ns.
        held_ns: u64,
        /// What was charged beyond, ns.
        overcharged_ns: u64,
    },
}

/// What was replayed without a difference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Records.
    pub events: usize,
    /// Of them: a server began to run, and budget and key were compared.
    pub decisions: usize,
    /// The longest that a server of greater key ran while one of less key waited, ns.
    pub longest_inversion_ns: u64,
    /// How long servers had a CPU, ns.
    pub held_ns: u64,
    /// Of that, what was accounted to none: interrupts took it.
    pub interrupted_ns: u64,
    /// What was accounted beyond it, ns.
    pub overcharged_ns: u64,
}

#[derive(Debug)]
struct Replica {
    server: Server,
    /// Where it runs, and since when its time is not accounted.
    runs: Option<(u32, u64)>,
}

/// A record in memory.
#[derive(Debug)]
pub struct Record {
    host: Host,
    events: Vec<Event>,
}

impl Record {
    /// Reads the format of `policy/event.h`. A last record that was cut off is left out.
    ///
    /// # Errors
    /// Another format or version.
    pub fn parse(bytes: &[u8]) -> Result<Self, ReplayError> {
        let number = |at: usize| {
            let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
            word.map_or(0, u32::from_ne_bytes)
        };
        if bytes.len() < HEADER || &bytes[..8] != MAGIC {
            return Err(ReplayError::NotARecord("it does not begin as one"));
        }
        if number(8) != EVENT_VERSION {
            return Err(ReplayError::NotARecord("it is of another version"));
        }
        let order = order(number(16)).ok_or(ReplayError::NotARecord("it has no such order"))?;
        let quantum_ns = u64::from(number(24)) | u64::from(number(28)) << 32;
        let mut events: Vec<Event> = bytes[HEADER..]
            .chunks_exact(size_of::<Event>())
            .map(Event::from_bytes)
            .collect();
        // Records of several CPUs are in the order they were begun.
        events.sort_by_key(|event| event.time_ns);
        Ok(Self {
            host: Host::new(order, number(20) != 0, quantum_ns),
            events,
        })
    }

    /// Replays it. `reaction_ns`: how long the host may take from what happens to what follows from it.
    ///
    /// # Errors
    /// The first difference.
    pub fn replay(&self, reaction_ns: u64) -> Result<Replayed, ReplayError> {
        let mut replay = Replay {
            host: self.host,
            replicas: BTreeMap::new(),
            orders: self.orders(),
            inversions: BTreeMap::new(),
            outcome: Replayed::default(),
        };
        for (index, event) in self.events.iter().enumerate() {
            let kind = EventKind::ALL.get(event.kind as usize).copied();
            let kind = kind.ok_or(ReplayError::NotARecord("it has unknown records"))?;
            // Before it happens, too: what lasted up to here ends with a STOP.
            let done = replay
                .compare_servers(event.time_ns, reaction_ns)
                .and_then(|()| replay.apply(kind, event, reaction_ns))
                .and_then(|()| replay.compare_servers(event.time_ns, reaction_ns));
            done.map_err(|what| ReplayError::Difference {
                index,
                kind,
                server: event.server,
                cpu: event.cpu,
                time_ns: event.time_ns,
                what,
            })?;
            replay.outcome.events += 1;
        }
        let outcome = replay.outcome;
        if outcome.interrupted_ns > outcome.held_ns / MOST_INTERRUPTED {
            return Err(ReplayError::Unaccounted {
                held_ns: outcome.held_ns,
                interrupted_ns: outcome.interrupted_ns,
            });
        }
        if outcome.overcharged_ns > outcome.held_ns / MOST_OVERCHARGED {
            return Err(ReplayError::Overcharged {
                held_ns: outcome.held_ns,
                overcharged_ns: outcome.overcharged_ns,
            });
        }
        Ok(outcome)
    }

    /// The orders of keys, and since when each is in force, ns.
    fn orders(&self) -> Vec<(u64, Order)> {
        let changes = self.events.iter().filter_map(|event| {
            let changes = event.kind == EventKind::Host as u32;
            let order = order(event.parameters().kind() as u32).filter(|_| changes)?;
            Some((event.time_ns, order))
        });
        std::iter::once((0, self.host.order()))
            .chain(changes)
            .collect()
    }
}

fn order(number: u32) -> Option<Order> {
    [
        Order::EarliestDeadline,
        Order::DeadlineMonotonic,
        Order::RateMonotonic,
        Order::Explicit,
    ]
    .into_iter()
    .find(|order| *order as u32 == number)
}

/// Whether the host's order is `order` at `now`, or was or will be within `reaction_ns`.
fn in_force(orders: &[(u64, Order)], order: Order, now: u64, reaction_ns: u64) -> bool {
    orders.iter().enumerate().any(|(index, &(since, one))| {
        let until = orders.get(index + 1).map_or(u64::MAX, |next| next.0);
        one == order && since <= now + reaction_ns && now <= until.saturating_add(reaction_ns)
    })
}

struct Replay {
    host: Host,
    replicas: BTreeMap<u32, Replica>,
    /// See [`Record::orders`].
    orders: Vec<(u64, Order)>,
    /// Who runs while who waits, and since when.
    inversions: BTreeMap<(u32, u32), u64>,
    outcome: Replayed,
}

impl Replay {
    fn apply(&mut self, kind: EventKind, event: &Event, reaction_ns: u64) -> Result<(), String> {
        let now = event.time_ns;
        match kind {
            EventKind::Init => {
                let server = Server::new(event.parameters(), &event.cpus, now)
                    .map_err(|error| format!("the policy refuses it: {error}"))?;
                self.replicas
                    .insert(event.server, Replica { server, runs: None });
                return Ok(());
            }
            EventKind::Host => {
                let order =
                    order(event.parameters().kind() as u32).ok_or("there is no such order")?;
                let partitioned = event.amount_ns != 0;
                self.host = Host::new(order, partitioned, event.parameters().period_ns());
                // All queues are made anew.
                self.inversions.clear();
                return Ok(());
            }
            EventKind::Exit => {
                self.replicas.remove(&event.server);
                self.inversions
                    .retain(|&(a, b), _| a != event.server && b != event.server);
                return Ok(());
            }
            EventKind::Lost => return Err(format!("{} records were lost", event.amount_ns)),
            _ => {}
        }
        let host = self.host;
        let Some(replica) = self.replicas.get_mut(&event.server) else {
            return Err("no INIT was recorded of this server".into());
        };
        let server = &mut replica.server;
        match kind {
            EventKind::Parameters => {
                if let Some((_, since)) = &mut replica.runs {
                    server.account(now - *since, now);
                    *since = now;
                }
                server
                    .set_parameters(event.parameters(), now)
                    .map_err(|error| format!("the policy refuses them: {error}"))?;
            }
            EventKind::Cpus => server.set_cpus(event.cpus),
            EventKind::Wake => server.wake(now, event.amount_ns),
            EventKind::Block => server.block(now),
            EventKind::Advance => server.advance(now),
            EventKind::Run => {
                if event.other != NO_SERVER {
                    return Err("this scheduler lends no budget".into());
                }
                if let Some((cpu, _)) = replica.runs {
                    return Err(format!("it runs on CPU {cpu} already"));
                }
                replica.runs = Some((event.cpu, now));
                // A CPU may have read the order before a change that it records after, or the other way about.
                let used = order(event.parameters().kind() as u32)
                    .filter(|used| in_force(&self.orders, *used, now, reaction_ns))
                    .ok_or("its key is of an order that is not the host's")?;
                let read = Host::new(used, host.is_partitioned(), 0);
                let (budget, key) = (server.remaining_ns(now), server.key(&read));
                if (event.amount_ns, event.key_ns()) != (budget, key) {
                    return Err(format!(
                        "the scheduler has a budget of {} ns and the key {}; the policy {budget} ns and {key}",
                        event.amount_ns,
                        event.key_ns()
                    ));
                }
                if !server.cpus().contains(event.cpu) {
                    return Err("it may not run on this CPU".into());
                }
                self.outcome.decisions += 1;
            }
            EventKind::Stop | EventKind::Account => {
                let Some((cpu, since)) = replica.runs else {
                    return Err("it does not run".into());
                };
                // The kernel counts CPU time a little before or after the scheduler is told.
                let held_ns = now - since;
                if held_ns.abs_diff(event.amount_ns) > reaction_ns {
                    return Err(format!(
                        "{} ns are accounted; it had the CPU for {held_ns} ns",
                        event.amount_ns
                    ));
                }
                let interrupted_ns = held_ns.saturating_sub(event.amount_ns);
                self.outcome.held_ns += held_ns;
                self.outcome.interrupted_ns += interrupted_ns;
                self.outcome.overcharged_ns += event.amount_ns.saturating_sub(held_ns);
                server.account(event.amount_ns, now);
                replica.runs = (kind == EventKind::Account).then_some((cpu, now));
            }
            other => return Err(format!("this scheduler records no {other:?}")),
        }
        if server.is_consistent() {
            Ok(())
        } else {
            Err("its budget is not conserved".into())
        }
    }

    /// Who runs without budget, or before one of less key, for longer than the host may take to see it.
    fn compare_servers(&mut self, now: u64, reaction_ns: u64) -> Result<(), String> {
        let stand: Vec<Stand> = self
            .replicas
            .iter()
            .map(|(&number, replica)| Stand::of(number, replica, &self.host, now))
            .collect();
        let mut inversions = BTreeMap::new();
        for running in &stand {
            let Some(cpu) = running.runs else { continue };
            if running.overrun_ns > reaction_ns {
                return Err(format!(
                    "server {} ran {} ns beyond its budget",
                    running.number, running.overrun_ns
                ));
            }
            for waiting in stand.iter().filter(|other| other.waits) {
                let shares = !self.host.is_partitioned() || waiting.home == cpu;
                if !shares || !waiting.cpus.contains(cpu) || waiting.key >= running.key {
                    continue;
                }
                let pair = (running.number, waiting.number);
                let since = self.inversions.get(&pair).copied().unwrap_or(now);
                let lasts = now - since;
                self.outcome.longest_inversion_ns = self.outcome.longest_inversion_ns.max(lasts);
                if lasts > reaction_ns {
                    return Err(format!(
                        "server {} has run for {lasts} ns on CPU {cpu} with the key {}, while server {} waits with {}",
                        running.number, running.key, waiting.number, waiting.key
                    ));
                }
                inversions.insert(pair, since);
            }
        }
        self.inversions = inversions;
        Ok(())
    }
}

/// A server at an instant.
struct Stand {
    number: u32,
    runs: Option<u32>,
    /// It has work and budget, and runs nowhere.
    waits: bool,
    key: u64,
    overrun_ns: u64,
    home: u32,
    cpus: CpuSet,
}

impl Stand {
    fn of(number: u32, replica: &Replica, host: &Host, now: u64) -> Self {
        let mut server = replica.server.clone();
        let mut overrun_ns = 0;
        if let Some((_, since)) = replica.runs {
            let ran = now - since;
            server.account(ran, now);
            if server.remaining_ns(now) == 0 {
                overrun_ns = ran.saturating_sub(replica.server.remaining_ns(since));
            }
        } else {
            server.advance(now);
        }
        Self {
            number,
            runs: replica.runs.map(|(cpu, _)| cpu),
            waits: replica.runs.is_none() && server.is_ready() && server.claims(now),
            key: server.key(host),
            overrun_ns,
            home: server.home().min(MAX_CPUS),
            cpus: *server.cpus(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Parameters};

    const MS: u64 = 1_000_000;

    fn event(time_ns: u64, kind: EventKind, server: u32, amount_ns: u64, key: u64) -> Event {
        let mut event = Event::from_bytes(&[]);
        event.time_ns = time_ns;
        event.kind = kind as u32;
        event.server = server;
        event.other = NO_SERVER;
        event.amount_ns = amount_ns;
        event.cpus = CpuSet::first(1);
        if kind == EventKind::Init {
            event.parameters = Parameters::new(Kind::Deferrable, 4 * MS, key).unwrap();
        } else {
            event.parameters = event.parameters.of_event(Order::EarliestDeadline, key);
        }
        event
    }

    /// Server 0 runs its 4 ms; server 1, of a later deadline, runs after it.
    fn record() -> Record {
        use EventKind::{Init, Run, Stop, Wake};
        Record {
            host: Host::new(Order::EarliestDeadline, false, 0),
            events: vec![
                event(1, Init, 0, 0, 10 * MS),
                event(1, Init, 1, 0, 20 * MS),
                event(2, Wake, 0, 0, 0),
                event(2, Wake, 1, 0, 0),
                event(3, Run, 0, 4 * MS, 1 + 10 * MS),
                event(3 + 4 * MS, Stop, 0, 4 * MS, 0),
                event(4 + 4 * MS, Run, 1, 4 * MS, 1 + 20 * MS),
                event(4 + 6 * MS, Stop, 1, 2 * MS, 0),
            ],
        }
    }

    #[test]
    fn a_record_of_the_policy_has_no_difference_and_each_wrong_one_is_found() {
        type Wrong = fn(&mut Vec<Event>);
        let replayed = record().replay(MS).unwrap();
        assert_eq!((replayed.events, replayed.decisions), (8, 2));
        assert_eq!((replayed.held_ns, replayed.interrupted_ns), (6 * MS, 0));
        let wrong: [(Wrong, &str); 7] = [
            (|events| events[4].amount_ns -= 1, "the policy 4000000 ns"),
            (
                |events| events[5].amount_ns += MS + 1,
                "it had the CPU for 4000000 ns",
            ),
            (
                |events| events[7].amount_ns = MS - 1,
                "it had the CPU for 2000000 ns",
            ),
            (
                |events| {
                    events.retain(|event| event.server == 1);
                    events[3].amount_ns -= MS;
                },
                "1000000 ns of that are accounted to none",
            ),
            (
                |events| {
                    events.retain(|event| event.server == 1);
                    events[3].amount_ns += MS / 10;
                },
                "charged 100000 ns beyond that",
            ),
            (
                |events| {
                    events[5].time_ns += 2 * MS;
                    events[5].amount_ns += 2 * MS;
                    events.truncate(6);
                },
                "beyond its budget",
            ),
            (
                |events| {
                    // The one of the later deadline runs first.
                    events.remove(5);
                    events.remove(4);
                },
                "while server 0 waits",
            ),
        ];
        for (make_wrong, says) in wrong {
            let mut record = record();
            make_wrong(&mut record.events);
            let error = record.replay(MS).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    /// A CPU reads the order, the order changes, and only then the CPU records what it read; or the other way about.
    #[test]
    fn a_key_is_of_an_order_that_is_in_force_within_the_reaction() {
        let changed = |host_ns: u64, run: usize, used: Order| {
            let mut record = record();
            let mut host = event(host_ns, EventKind::Host, NO_SERVER, 0, 0);
            host.parameters = host.parameters.of_event(Order::Explicit, 0);
            let key = if used == Order::Explicit {
                0
            } else {
                1 + 20 * MS
            };
            record.events[run].parameters = record.events[run].parameters.of_event(used, key);
            record.events.push(host);
            record.events.sort_by_key(|event| event.time_ns);
            record.replay(MS).map(|replayed| replayed.decisions)
        };
        let run_ns = 4 + 4 * MS;
        for (host_ns, used) in [
            (run_ns + MS / 2, Order::Explicit),
            (run_ns - MS / 2, Order::EarliestDeadline),
            (run_ns - MS / 2, Order::Explicit),
        ] {
            assert_eq!(changed(host_ns, 6, used).unwrap(), 2);
        }
        for (host_ns, used) in [
            (run_ns + MS + 1, Order::Explicit),
            (run_ns - MS - 1, Order::EarliestDeadline),
            (run_ns, Order::RateMonotonic),
        ] {
            let error = changed(host_ns, 6, used).unwrap_err().to_string();
            assert!(error.contains("an order that is not the host's"), "{error}");
        }
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for bytes in [&b"SVMSCHED"[..], &[0; 64], b""] {
            assert!(matches!(
                Record::parse(bytes),
                Err(ReplayError::NotARecord(_))
            ));
        }
    }
}
