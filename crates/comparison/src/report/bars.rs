//! Throughput and CPU time as bars, rounds as dots on them.

use crate::Service;
use crate::data::Phase;
use crate::record::{THROUGHPUT, service_of};
use crate::table::busy_percent;
use steadyvm_report::bars::{Bar, draw};
use steadyvm_report::results::Record;

/// Two cards: what NetStream carried, and how busy the host was; the second alone without `NetStream`.
pub(super) fn cards(record: &Record) -> String {
    if service_of(record) == Service::Own {
        return busy(record, &[("host", Phase::Idle)]);
    }
    let streamed = [("full speed", Phase::Full), ("equal rate", Phase::Equal)];
    let at = |row, phase: Phase| record.at(row, phase.cell());
    let rounds: Vec<[Vec<f64>; 2]> = (record.rows.iter())
        .map(|row| streamed.map(|(_, phase)| at(row, phase).rounds(THROUGHPUT)))
        .collect();
    let groups = record.rows.iter().zip(&rounds).map(|(row, rounds)| {
        let bars = streamed.iter().zip(rounds);
        let bars = bars.map(|(&(name, phase), rounds)| Bar {
            name,
            value: at(row, phase).value(THROUGHPUT),
            rounds,
        });
        (&**row, bars.collect())
    });
    let groups: Vec<(&str, Vec<Bar>)> = groups.collect();
    let all = [
        ("full speed", Phase::Full),
        ("equal rate", Phase::Equal),
        ("no NetStream", Phase::Idle),
    ];
    draw(&groups, "NetStream received, Mbit/s") + &busy(record, &all)
}

fn busy(record: &Record, phases: &[(&'static str, Phase)]) -> String {
    let groups = record.rows.iter().map(|row| {
        let bars = phases.iter().map(|&(name, phase)| Bar {
            name,
            value: busy_percent(record, row, phase),
            rounds: &[],
        });
        (&**row, bars.collect())
    });
    let groups: Vec<(&str, Vec<Bar>)> = groups.collect();
    draw(&groups, "Host CPU time busy, % of all CPUs")
}
