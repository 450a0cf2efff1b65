//! The files of a comparison.

use crate::compare::report::render;
use crate::compare::results::{Phase, Results, RunData, Service, hgrm_of_method};
use crate::engine::{RunRecord, write_run};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;
use steadyvm_lab::{At, Result};
use steadyvm_report::ReportMeta;

/// meta.json: what a reader needs to judge the figures, or to make them again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Meta {
    /// What every run says.
    #[serde(flatten)]
    pub run: RunRecord,
    /// Where the loads were received.
    pub service: Service,
    /// How often every host was booted, but for hosts that died.
    pub boots: u64,
    /// TCP streams of NetStream, side by side.
    pub streams: u32,
    /// Seed of the first round's request schedule.
    pub seed: u64,
    /// The equal rate that was asked for, or that the first round found.
    pub equal_rate_mbit_per_s: Option<f64>,
}

/// Writes results.json, meta.json, samples.csv, report.html, a .hgrm a method, and what the hosts
/// traced of their receive paths.
pub fn write_output(
    directory: &Path,
    data: &RunData,
    results: &Results,
    meta: &Meta,
) -> Result<()> {
    let mut about = (meta.run).report_meta("steadyvm compare".to_owned(), "methods");
    let boots = ("Boots of each host".to_owned(), meta.boots.to_string());
    about.facts.push(boots);
    write_files(directory, data, results, meta, &about)?;
    for method in &data.methods {
        for (round, round_data) in method.rounds.iter().enumerate() {
            for phase in Phase::ALL {
                if let Some(traced) = &round_data.phase(phase).receive_path {
                    let (name, key) = (&method.name, phase.wake_up_key());
                    let path = directory.join(format!("{name}.{key}.{}.json", round + 1));
                    steadyvm_files::write(&path, &traced.report).at("write", &path)?;
                }
            }
        }
    }
    Ok(())
}

/// Writes results.json, figures.csv, meta.json, samples.csv, report.html and a .hgrm per method of any
/// measurement.
///
/// # Errors
/// A file that cannot be written.
pub fn write_files(
    directory: &Path,
    data: &RunData,
    results: &Results,
    meta: &impl Serialize,
    about: &ReportMeta,
) -> Result<()> {
    let phase = data.service.phases()[0];
    let mut tables = vec![("samples.csv".to_owned(), samples_table(data))];
    for method in &data.methods {
        let name = format!("{}.hgrm", method.name);
        let text = hgrm_of_method(method, phase).doing(format!("write {name}"))?;
        tables.push((name, text));
    }
    write_run(directory, results, meta, &render(results, about), &tables)
}

/// Every counted round trip, a line each.
fn samples_table(data: &RunData) -> String {
    let mut table = String::from("method,round,phase,sequence,sent_ns,round_trip_ns\n");
    for method in &data.methods {
        for (round, round_data) in method.rounds.iter().enumerate() {
            for phase in Phase::ALL {
                for sample in &round_data.phase(phase).netrt.samples {
                    let (name, key) = (&method.name, phase.key());
                    let (sequence, sent, trip) = (sample.sequence, sample.sent_ns, sample.rtt_ns);
                    // Writing to a string cannot fail.
                    let _ = writeln!(table, "{name},{},{key},{sequence},{sent},{trip}", round + 1);
                }
            }
        }
    }
    table
}
