//! A service's way in and out: the terms of its bound, and what shares its paths.
//!
//! Rule: requests enter the receive path as the task's period and jitter say. A response leaves the guest at most
//! the service's limit after its request came, whatever the plan: with that as jitter the way back is bounded
//! before interfaces are known. Once they are, it is bounded anew with what precedes it in the plan.

use std::collections::BTreeMap;

use super::slowed::{AWAY, Slowed};
use crate::{
    path::{Arrivals, Front, Stream, Unbounded, response},
    time::Time,
    work::Work,
};

/// Traffic of no service on a path: `[[flow]]`.
#[derive(Debug, Clone)]
pub(super) struct Flow {
    pub name: String,
    pub on: String,
    pub stream: Stream,
}

/// One way of a service as asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Way {
    /// What it always costs, by name.
    pub terms: Vec<(&'static str, Time)>,
    /// Of the terms, what the guest's task executes: it is in the task's response, too.
    pub in_guest: Time,
    /// Of the terms, what is in front of the queue. It may take less: jitter of what waits there.
    pub in_front: Time,
    /// The shortest time it takes.
    pub least: Time,
    pub queue: Option<Queue>,
    /// What the servers make of it that handle its queue.
    pub slowed: Option<Slowed>,
}

/// Its packets on a path that is shared.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    pub on: String,
    pub packet: Time,
    pub level: i64,
    pub front: Front,
}

/// A way's bound and its terms, in words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Passage {
    pub on: Option<String>,
    pub bound: Time,
    pub least: Time,
    pub terms: Vec<(String, Time)>,
}

/// A service, as its paths see it.
pub(super) struct Traveller<'a> {
    pub name: &'a str,
    pub receive: &'a Way,
    pub send: &'a Way,
    /// Of its requests, on the wire.
    pub requests: Arrivals,
    /// How late the response is at the queue of its way back, after the request came, at most.
    pub ready: Time,
}

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

impl super::Service {
    /// Whether one of its ways is on that path.
    pub(super) fn uses(&self, path: &str) -> bool {
        let on = |way: &Way| way.queue.as_ref().is_some_and(|queue| queue.on == path);
        on(&self.receive) || on(&self.send)
    }
}

/// The servers of each path on which a service's packets are handled by some: the worst of them handle all that is on it.
fn slowed<'a>(travellers: &[Traveller<'a>]) -> BTreeMap<&'a str, Slowed> {
    let mut on = BTreeMap::new();
    for traveller in travellers {
        if let (Some(queue), Some(slowed)) = (&traveller.receive.queue, traveller.receive.slowed) {
            on.entry(queue.on.as_str())
                .and_modify(|worst: &mut Slowed| *worst = worst.or(slowed))
                .or_insert(slowed);
        }
    }
    on
}

/// A stream on a path, by the path's name.
type OnPath<'a> = (&'a str, Stream);
/// Whose it is: a traveller's number and whether it sends (none of a flow), and a name for reports.
type Owner = (Option<(usize, bool)>, String);

/// The packets on all paths: each traveller's in and out, and flows.
fn streams<'a>(travellers: &[Traveller<'a>], flows: &'a [Flow]) -> (Vec<OnPath<'a>>, Vec<Owner>) {
    let (mut streams, mut owners) = (Vec::new(), Vec::new());
    for (number, traveller) in travellers.iter().enumerate() {
        for (send, way) in [(false, traveller.receive), (true, traveller.send)] {
            let Some(queue) = &way.queue else { continue };
            let late = if send { traveller.ready } else { 0 };
            let arrivals = Arrivals {
                jitter: traveller.requests.jitter.saturating_add(late),
                ..traveller.requests
            };
            let name = if send { "responses" } else { "requests" };
            streams.push((
                queue.on.as_str(),
                Stream {
                    packet: queue.packet,
                    level: queue.level,
                    arrivals,
                },
            ));
            owners.push((
                Some((number, send)),
                format!("{name} of {}", traveller.name),
            ));
        }
    }
    for flow in flows {
        streams.push((flow.on.as_str(), flow.stream));
        owners.push((None, flow.name.clone()));
    }
    (streams, owners)
}

/// The ways of all travellers, in and out; for one that has none, why.
pub(super) fn passages(
    travellers: &[Traveller<'_>],
    flows: &[Flow],
    work: &mut Work,
) -> Vec<Result<(Passage, Passage), String>> {
    let (mut streams, owners) = streams(travellers, flows);
    let slowed_on = slowed(travellers);
    for (on, stream) in &mut streams {
        if let Some(slowed) = slowed_on.get(on) {
            stream.packet = slowed.packet(stream.packet);
        }
    }
    let mut passage = |number: usize, send: bool, way: &Way| -> Result<Passage, String> {
        let fixed: Time = way.terms.iter().map(|&(_, time)| time).sum();
        let terms = way
            .terms
            .iter()
            .map(|&(what, time)| (what.to_owned(), time));
        let mut passage = Passage {
            on: None,
            bound: fixed,
            least: way.least,
            terms: terms.collect(),
        };
        let Some(queue) = &way.queue else {
            return Ok(passage);
        };
        let on: Vec<usize> = (0..streams.len())
            .filter(|&s| streams[s].0 == queue.on)
            .collect();
        let shared: Vec<Stream> = on.iter().map(|&s| streams[s].1).collect();
        let Some(own) = on.iter().position(|&s| owners[s].0 == Some((number, send))) else {
            return Ok(passage);
        };
        let away = slowed_on.get(&*queue.on).map_or(0, |slowed| slowed.away);
        let front = Front {
            interrupt: queue.front.interrupt.saturating_add(away),
            ..queue.front
        };
        let found = response(&shared, own, front, work).map_err(|why| match why {
            Unbounded::Overloaded => format!(
                "path \"{}\" is loaded with 100 % or more by level {} and those above, so nothing bounds it; \
                 shorten its packets, raise the level, or thin out a flow",
                queue.on, queue.level
            ),
            Unbounded::Undecided => format!(
                "path \"{}\" is undecided, so it has no bound: its busy window is longer than the analysis looks; \
                 lower its load",
                queue.on
            ),
        })?;
        passage.on = Some(queue.on.clone());
        passage.bound = passage.bound.saturating_add(found.bound);
        let terms = &mut passage.terms;
        terms.push((
            "interrupt and less urgent packets in service".to_owned(),
            found.front - away,
        ));
        if away > 0 {
            terms.push((AWAY.to_owned(), away));
        }
        for (&stream, &time) in on.iter().zip(&found.others) {
            if time > 0 {
                terms.push((owners[stream].1.clone(), time));
            }
        }
        terms.push((
            format!("its own packets, {} of this busy window", found.packet),
            found.own,
        ));
        if found.arrived > 0 {
            terms.push((
                "less what passed before that packet came".to_owned(),
                -found.arrived,
            ));
        }
        Ok(passage)
    };
    (travellers.iter().enumerate())
        .map(|(number, traveller)| {
            let receive = passage(number, false, traveller.receive)?;
            Ok((receive, passage(number, true, traveller.send)?))
        })
        .collect()
}
