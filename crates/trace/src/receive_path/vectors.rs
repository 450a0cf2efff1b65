//! Which interrupt schedules which NAPI instance. The kernel does not say it in its events, but a
//! poll nearly always follows its own interrupt: the majority is right.

use crate::event::{Event, Kind};
use crate::name::Name;
use std::collections::{BTreeMap, HashMap};

/// The interrupt of each NAPI instance that was polled on this CPU and whose device has any.
pub fn learn(events: &[Event], interrupts: &BTreeMap<u32, Name>) -> HashMap<u64, u32> {
    let mut latest: HashMap<Name, u32> = HashMap::new();
    let mut votes: HashMap<u64, BTreeMap<u32, u64>> = HashMap::new();
    for event in events {
        match event.kind {
            Kind::InterruptBegin { irq, .. } => {
                if let Some(device) = interrupts.get(&irq) {
                    latest.insert(*device, irq);
                }
            }
            Kind::PollEnd { napi, device, .. } => {
                if let Some(irq) = latest.get(&device) {
                    *votes.entry(napi).or_default().entry(*irq).or_default() += 1;
                }
            }
            _ => {}
        }
    }
    let winner = |votes: BTreeMap<u32, u64>| votes.into_iter().max_by_key(|(_, count)| *count);
    votes
        .into_iter()
        .filter_map(|(napi, votes)| Some((napi, winner(votes)?.0)))
        .collect()
}
