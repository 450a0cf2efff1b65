//! What the experiment measured, before any figure is computed.

use crate::engine::rounds::RowData;
use crate::testbed::Interference;
use std::fmt::Write;
use steadyvm_load::netrt::ClientRun;

/// One level of interference in one round.
#[derive(Debug, Clone, PartialEq)]
pub struct LevelData {
    /// Round trips between the two high-priority endpoints.
    pub round_trips: ClientRun,
    /// What that cost.
    pub round_trips_cost: Cost,
    /// A TCP stream from the first to the second, afterwards.
    pub stream: StreamData,
}

/// A stream between the two high-priority endpoints.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamData {
    /// What it carried, in Mbit/s: iperf3's seconds.
    pub mbit_per_s: Vec<f64>,
    /// What it cost.
    pub cost: Cost,
}

/// What others had meanwhile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// The host's CPU time that was not idle, of all CPUs: 0 to 1.
    pub cpu_busy_fraction: f64,
    /// Packets a second that the low-priority endpoints got from one another.
    pub others_packets_per_s: f64,
}

/// samples.csv: every counted round trip, a line each.
pub fn samples_table(data: &[RowData<LevelData>]) -> String {
    let mut table =
        String::from("configuration,round,interference,sequence,sent_ns,round_trip_ns\n");
    for RowData { name, rounds } in data {
        for (round, levels) in (1..).zip(rounds) {
            for (level, data) in Interference::ALL.into_iter().zip(levels) {
                for sample in &data.round_trips.samples {
                    let key = level.key();
                    let (sequence, sent, trip) = (sample.sequence, sample.sent_ns, sample.rtt_ns);
                    // Writing to a string cannot fail.
                    let _ = writeln!(table, "{name},{round},{key},{sequence},{sent},{trip}");
                }
            }
        }
    }
    table
}
