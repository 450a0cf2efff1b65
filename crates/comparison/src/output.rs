//! The files of a comparison beside those of every run.

use super::data::{Phase, RunData};
use super::figures::hgrm_of_method;
use std::fmt::Write;
use steadyvm_fault::{At, Result};

/// samples.csv and a .hgrm per method, of any measurement.
///
/// # Errors
/// A round trip that a histogram cannot hold.
pub fn tables(data: &RunData) -> Result<Vec<(String, String)>> {
    let phase = data.service.phases()[0];
    let mut tables = vec![("samples.csv".to_owned(), samples_table(data))];
    for method in &data.methods {
        let name = format!("{}.hgrm", method.name);
        let text = hgrm_of_method(method, phase).doing(format!("write {name}"))?;
        tables.push((name, text));
    }
    Ok(tables)
}

/// What the hosts traced of their receive paths: a METHOD.PHASE.ROUND.json each.
pub fn traced_paths(data: &RunData) -> Vec<(String, String)> {
    let mut tables = Vec::new();
    for method in &data.methods {
        for (round, round_data) in (1..).zip(&method.rounds) {
            for phase in Phase::ALL {
                if let Some(traced) = &round_data.phase(phase).receive_path {
                    let (name, key) = (&method.name, phase.wake_up_key());
                    tables.push((format!("{name}.{key}.{round}.json"), traced.report.clone()));
                }
            }
        }
    }
    tables
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
