//! The files of the experiment.

use crate::engine::{Meta, report_meta, write_run};
use crate::rtca::render_rtca;
use crate::rtca::{Interference, Results, RunData};
use std::fmt::Write;
use std::path::Path;
use steadyvm_lab::Result;

/// Writes results.json, meta.json, samples.csv and report.html.
pub fn write_output(
    directory: &Path,
    data: &RunData,
    results: &Results,
    meta: &Meta,
) -> Result<()> {
    let report = render_rtca(results, &report_meta("rtca", meta));
    let tables = [("samples.csv", samples_table(data))];
    write_run(directory, results, meta, &report, &tables)
}

/// Every counted round trip, a line each.
fn samples_table(data: &RunData) -> String {
    let mut table =
        String::from("configuration,round,interference,sequence,sent_ns,round_trip_ns\n");
    for configuration in &data.configurations {
        for (round, levels) in configuration.rounds.iter().enumerate() {
            for (level, data) in Interference::ALL.into_iter().zip(&levels.0) {
                for sample in &data.round_trips.samples {
                    let (name, title) = (&configuration.name, level.key());
                    let (sequence, sent, trip) = (sample.sequence, sample.sent_ns, sample.rtt_ns);
                    // Writing to a string cannot fail.
                    let _ = writeln!(
                        table,
                        "{name},{},{title},{sequence},{sent},{trip}",
                        round + 1
                    );
                }
            }
        }
    }
    table
}
