//! Replays what a running scheduler recorded (`policy/event.h`) on the policy, and finds the first difference.
//!
//! Each server's events give its whole state again, so that budget and key at each RUN are compared exactly. Between
//! servers, one may run while another of less key waits only for as long as the host takes to react.

use crate::event::{EVENT_VERSION, Event, EventKind, NO_SERVER};
use crate::{CpuSet, Host, Kind, MAX_CPUS, Order, Server};
use std::collections::BTreeMap;

const HEADER: usize = 32;
/// Interrupts take less than one in this many of the time that servers have a CPU.
const MOST_INTERRUPTED: u64 = 4;
/// In all, no more than one in this many of it is charged beyond the time that servers had. The kernel charges the time of
/// a decision, from where it reads its clock, to the thread that comes next, and not to the one before: each of them is
/// off by as much, the sum is not.
const MOST_OVERCHARGED: u64 = 100;
const MAGIC: &[u8; 8] = b"SVMSCHED";

/// Why a record cannot be replayed, or where it differs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// Not all was recorded.
    #[error(
        "{0} records were lost: the host could not write them as fast; record for a shorter time, or fewer VCPUs"
    )]
    Lost(u64),
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
    /// A server without work began to hold a CPU.
    pub holds: usize,
    /// Of the decisions: a server began to run on the CPU of one without work.
    pub lent: usize,
    /// The longest that a server of greater key ran while one of less key waited, ns.
    pub longest_inversion_ns: u64,
    /// How long servers had a CPU, ns.
    pub held_ns: u64,
    /// Of that, the time that was not accounted to the server: of interrupts, and of the decision that ended its run.
    pub interrupted_ns: u64,
    /// What was accounted, ns.
    pub charged_ns: u64,
}

#[derive(Debug)]
struct Replica {
    server: Server,
    /// Where it runs, and since when its time is not accounted.
    runs: Option<(u32, u64)>,
    /// The server without work on whose CPU it runs, and its kind.
    lender: Option<(u32, Kind)>,
    /// Where it idles its budget away, and since when that is not accounted.
    holds: Option<(u32, u64)>,
}

impl Replica {
    fn set_parameters(&mut self, event: &Event) -> Result<(), String> {
        let now = event.time_ns;
        if let Some((_, since)) = &mut self.runs {
            account(&mut self.server, self.lender, now - *since, now);
            *since = now;
        }
        if let Some((_, since)) = &mut self.holds {
            self.server.account_lent(now - *since, now);
            *since = now;
        }
        let set = self.server.set_parameters(event.parameters(), now);
        set.map_err(|error| format!("the policy refuses them: {error}"))
    }

    fn run(&mut self, event: &Event, lender: Option<(u32, Kind)>) -> Result<(), String> {
        if let Some((cpu, _)) = self.runs {
            return Err(format!("it runs on CPU {cpu} already"));
        }
        if !self.server.cpus().contains(event.cpu) {
            return Err("it may not run on this CPU".into());
        }
        self.runs = Some((event.cpu, event.time_ns));
        self.lender = lender;
        Ok(())
    }

    /// Of a STOP or ACCOUNT. Returns how long it had the CPU, ns.
    fn account_for(
        &mut self,
        event: &Event,
        goes_on: bool,
        reaction_ns: u64,
    ) -> Result<u64, String> {
        let now = event.time_ns;
        let (cpu, since) = self.runs.ok_or("it does not run")?;
        if event.other != self.lender.map_or(NO_SERVER, |(number, _)| number) {
            return Err("another server pays for it than when it began to run".into());
        }
        // The kernel counts CPU time a little before or after the scheduler is told.
        let held_ns = now - since;
        if held_ns.abs_diff(event.amount_ns) > reaction_ns {
            return Err(format!(
                "{} ns are accounted; it had the CPU for {held_ns} ns",
                event.amount_ns
            ));
        }
        account(&mut self.server, self.lender, event.amount_ns, now);
        self.runs = goes_on.then_some((cpu, now));
        Ok(held_ns)
    }

    fn hold(&mut self, event: &Event) -> Result<(), String> {
        if let Some((cpu, _)) = self.holds.or(self.runs) {
            return Err(format!("it has CPU {cpu} already"));
        }
        self.server.advance(event.time_ns);
        if self.server.is_ready() || !self.server.claims(event.time_ns) {
            return Err("it has no budget to idle away".into());
        }
        if !self.server.cpus().contains(event.cpu) {
            return Err("it may not hold this CPU".into());
        }
        self.holds = Some((event.cpu, event.time_ns));
        Ok(())
    }

    fn release(&mut self, event: &Event) -> Result<(), String> {
        let (cpu, since) = self.holds.take().ok_or("it holds no CPU")?;
        let held_ns = event.time_ns - since;
        if (cpu, held_ns) != (event.cpu, event.amount_ns) {
            return Err(format!(
                "{} ns are accounted on CPU {}; it held CPU {cpu} for {held_ns} ns",
                event.amount_ns, event.cpu
            ));
        }
        self.server.account_lent(event.amount_ns, event.time_ns);
        Ok(())
    }
}

fn account(server: &mut Server, lender: Option<(u32, Kind)>, ran_ns: u64, now: u64) {
    match lender {
        Some((_, kind)) => server.account_borrowed(kind, ran_ns, now),
        None => server.account(ran_ns, now),
    }
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

    /// The last `count` records of a server up to the record `index`, in order of time: what to look at where it differs.
    pub fn before(&self, index: usize, server: u32, count: usize) -> Vec<&Event> {
        let upto = self.events.get(..=index).unwrap_or(&self.events);
        let of_server = upto.iter().rev().filter(|event| event.server == server);
        let mut last: Vec<&Event> = of_server.take(count).collect();
        last.reverse();
        last
    }

    /// Replays it. `reaction_ns`: how long the host may take from what happens to what follows from it.
    ///
    /// # Errors
    /// The first difference.
    pub fn replay(&self, reaction_ns: u64) -> Result<Replayed, ReplayError> {
        // What follows from a record that is not there would be taken for a difference.
        let of_lost = self
            .events
            .iter()
            .filter(|it| it.kind == EventKind::Lost as u32);
        if let Some(lost) = of_lost.map(|it| it.amount_ns).max() {
            return Err(ReplayError::Lost(lost));
        }
        let mut replay = Replay {
            host: self.host,
            replicas: BTreeMap::new(),
            orders: self.orders(),
            kinds: self.kinds(),
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
        let overcharged_ns = outcome.charged_ns.saturating_sub(outcome.held_ns);
        if overcharged_ns > outcome.held_ns / MOST_OVERCHARGED {
            return Err(ReplayError::Overcharged {
                held_ns: outcome.held_ns,
                overcharged_ns,
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

    /// The kinds of each server, and since when each is in force, ns.
    fn kinds(&self) -> BTreeMap<u32, Vec<(u64, Kind)>> {
        let mut kinds: BTreeMap<u32, Vec<(u64, Kind)>> = BTreeMap::new();
        for event in &self.events {
            if [EventKind::Init as u32, EventKind::Parameters as u32].contains(&event.kind) {
                let of_server = kinds.entry(event.server).or_default();
                of_server.push((event.time_ns, event.parameters().kind()));
            }
        }
        kinds
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

/// Whether `what` is in force at `now`, or was or will be within `reaction_ns`. `changes`: since when which one is, ns.
fn in_force<T: Copy + PartialEq>(
    changes: &[(u64, T)],
    what: T,
    now: u64,
    reaction_ns: u64,
) -> bool {
    changes.iter().enumerate().any(|(index, &(since, one))| {
        let until = changes.get(index + 1).map_or(u64::MAX, |next| next.0);
        one == what && since <= now + reaction_ns && now <= until.saturating_add(reaction_ns)
    })
}

struct Replay {
    host: Host,
    replicas: BTreeMap<u32, Replica>,
    /// See [`Record::orders`].
    orders: Vec<(u64, Order)>,
    /// See [`Record::kinds`].
    kinds: BTreeMap<u32, Vec<(u64, Kind)>>,
    /// Who runs while who waits, and since when.
    inversions: BTreeMap<(u32, u32), u64>,
    outcome: Replayed,
}

impl Replay {
    fn apply(&mut self, kind: EventKind, event: &Event, reaction_ns: u64) -> Result<(), String> {
        match kind {
            EventKind::Init => {
                let server = Server::new(event.parameters(), &event.cpus, event.time_ns)
                    .map_err(|error| format!("the policy refuses it: {error}"))?;
                let replica = Replica {
                    server,
                    runs: None,
                    lender: None,
                    holds: None,
                };
                self.replicas.insert(event.server, replica);
                Ok(())
            }
            EventKind::Host => {
                let order =
                    order(event.parameters().kind() as u32).ok_or("there is no such order")?;
                let partitioned = event.amount_ns != 0;
                self.host = Host::new(order, partitioned, event.parameters().period_ns());
                // All queues are made anew.
                self.inversions.clear();
                Ok(())
            }
            EventKind::Exit => {
                self.replicas.remove(&event.server);
                self.inversions
                    .retain(|&(a, b), _| a != event.server && b != event.server);
                Ok(())
            }
            _ => self.apply_to_server(kind, event, reaction_ns),
        }
    }

    fn apply_to_server(
        &mut self,
        kind: EventKind,
        event: &Event,
        reaction_ns: u64,
    ) -> Result<(), String> {
        let now = event.time_ns;
        if kind == EventKind::Run {
            self.compare_key(event, reaction_ns)?;
        }
        let lender = match kind {
            EventKind::Run => self.lender(event, reaction_ns)?,
            _ => None,
        };
        let replica = self.replicas.get_mut(&event.server);
        let replica = replica.ok_or("no INIT was recorded of this server")?;
        match kind {
            EventKind::Parameters => replica.set_parameters(event)?,
            EventKind::Cpus => replica.server.set_cpus(event.cpus),
            EventKind::Wake => replica.server.wake(now, event.amount_ns),
            EventKind::Block => replica.server.block(now),
            EventKind::Advance => replica.server.advance(now),
            EventKind::Run => {
                replica.run(event, lender)?;
                self.outcome.decisions += 1;
                self.outcome.lent += usize::from(lender.is_some());
            }
            EventKind::Stop | EventKind::Account => {
                let goes_on = kind == EventKind::Account;
                let held_ns = replica.account_for(event, goes_on, reaction_ns)?;
                self.outcome.held_ns += held_ns;
                self.outcome.interrupted_ns += held_ns.saturating_sub(event.amount_ns);
                self.outcome.charged_ns += event.amount_ns;
            }
            EventKind::Hold => {
                replica.hold(event)?;
                self.outcome.holds += 1;
            }
            EventKind::Release => replica.release(event)?,
            other => return Err(format!("this scheduler records no {other:?}")),
        }
        if replica.server.is_consistent() {
            Ok(())
        } else {
            Err("its budget is not conserved".into())
        }
    }

    /// Budget and key of a RUN are the policy's.
    fn compare_key(&self, event: &Event, reaction_ns: u64) -> Result<(), String> {
        let replica = self.replicas.get(&event.server);
        let server = &replica.ok_or("no INIT was recorded of this server")?.server;
        let now = event.time_ns;
        // A CPU may have read the order before a change that it records after, or the other way about.
        let used = order(event.parameters().kind() as u32)
            .filter(|used| in_force(&self.orders, *used, now, reaction_ns))
            .ok_or("its key is of an order that is not the host's")?;
        let read = Host::new(used, self.host.is_partitioned(), 0);
        let (budget, key) = (server.remaining_ns(now), server.key(&read));
        if (event.amount_ns, event.key_ns()) == (budget, key) {
            return Ok(());
        }
        Err(format!(
            "the scheduler has a budget of {} ns and the key {}; the policy {budget} ns and {key}",
            event.amount_ns,
            event.key_ns()
        ))
    }

    /// Who pays for the server of this RUN, if not itself: the server without work that holds the CPU.
    fn lender(&self, event: &Event, reaction_ns: u64) -> Result<Option<(u32, Kind)>, String> {
        if event.other == NO_SERVER {
            return Ok(None);
        }
        let server = |number| {
            let replica = self.replicas.get(&number);
            replica.ok_or_else(|| format!("no INIT was recorded of server {number}"))
        };
        let now = event.time_ns;
        let borrower = &server(event.server)?.server;
        let kinds = self.kinds.get(&event.other).map_or(&[][..], Vec::as_slice);
        // A CPU may have read the kind before a change that it records after, or the other way about.
        let kind = event
            .holder_kind()
            .filter(|kind| in_force(kinds, *kind, now, reaction_ns))
            .ok_or_else(|| format!("it runs for a kind that server {} is not", event.other))?;
        if !borrower.may_borrow_from(kind, now) {
            return Err(format!("server {} may not lend it its CPU", event.other));
        }
        Ok(Some((event.other, kind)))
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
            if running.overrun_ns > reaction_ns {
                return Err(format!(
                    "server {} ran {} ns beyond its budget",
                    running.number, running.overrun_ns
                ));
            }
            let Some(cpu) = running.has else { continue };
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
                        "server {} has had CPU {cpu} for {lasts} ns with the key {}, while server {} waits with {}",
                        running.number, running.key, waiting.number, waiting.key
                    ));
                }
                inversions.insert(pair, since);
            }
            // Two have it: one holds it without work, and the other runs though the first one pays nothing for it.
            let both = |other: &&Stand| other.number != running.number && other.has == Some(cpu);
            for holder in stand.iter().filter(both).filter(|other| other.idles) {
                let pair = (running.number, holder.number);
                let since = self.inversions.get(&pair).copied().unwrap_or(now);
                if now - since > reaction_ns {
                    return Err(format!(
                        "server {} has run for {} ns on CPU {cpu}, which server {} holds without work, and pays itself",
                        running.number,
                        now - since,
                        holder.number
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
    /// Its CPU: it runs there on its own account, or holds it without work.
    has: Option<u32>,
    /// It has no work.
    idles: bool,
    /// It claims a CPU and has none.
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
            account(&mut server, replica.lender, ran, now);
            let reclaims = matches!(replica.lender, Some((_, Kind::CapacityReclaiming)));
            if !reclaims && server.remaining_ns(now) == 0 {
                overrun_ns = ran.saturating_sub(replica.server.remaining_ns(since));
            }
        } else if let Some((_, since)) = replica.holds {
            server.account_lent(now - since, now);
            if server.remaining_ns(now) == 0 {
                overrun_ns = (now - since).saturating_sub(replica.server.remaining_ns(since));
            }
        } else {
            server.advance(now);
        }
        let owns = replica.runs.filter(|_| replica.lender.is_none());
        Self {
            number,
            has: owns.or(replica.holds).map(|(cpu, _)| cpu),
            idles: !server.is_ready(),
            waits: replica.runs.is_none() && replica.holds.is_none() && server.claims(now),
            key: server.key(host),
            overrun_ns,
            home: server.home().min(MAX_CPUS),
            cpus: *server.cpus(),
        }
    }
}

#[cfg(test)]
mod tests;
