//! The files of the experiment with UDP.

use crate::engine::{Meta, report_meta, write_run};
use crate::nisp::udp::render_nisp_udp;
use crate::nisp::udp::{Results, RunData};
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
    let report = render_nisp_udp(results, &report_meta("nisp", meta));
    let tables = [("samples.csv", samples_table(data))];
    write_run(directory, results, meta, &report, &tables)
}

/// Every job, a line each. Rounds are counted from 1, rates and jobs from 0.
fn samples_table(data: &RunData) -> String {
    let mut table = String::from(
        "method,round,rate_index,asked_packets_per_s,job,released_ns,finished_ns,response_us\n",
    );
    for method in &data.methods {
        for (round, measured) in method.rounds.iter().enumerate() {
            let rates = data.asked_packets_per_s.iter().zip(&measured.rates);
            for (rate, (asked, measured)) in rates.enumerate() {
                let what = format!("{},{},{rate},{asked}", method.name, round + 1);
                for (job, done) in measured.ran.done.iter().enumerate() {
                    let (released, finished) = (done.released_ns, done.finished_ns);
                    let response_us = done.response_ns() as f64 / 1e3;
                    // Writing to a string cannot fail.
                    let _ = writeln!(table, "{what},{job},{released},{finished},{response_us}");
                }
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nisp::udp::{MethodData, RateData, RoundData};
    use steadyvm_load::job::{Done, Ran};

    #[test]
    fn the_table_has_every_job_of_every_rate_and_round() {
        let done = |released_ns| Done {
            released_ns,
            finished_ns: released_ns + 12_345,
        };
        let rate = || RateData {
            ran: Ran {
                done: vec![done(0), done(30_000)],
                waited_ns: 0,
            },
            sent_packets_per_s: 0.0,
            received_packets_per_s: 0.0,
            cpu_busy_fraction: 0.0,
        };
        let round = || RoundData {
            rates: vec![rate(), rate()],
            alone_packets_per_s: 0.0,
        };
        let data = RunData {
            period_us: 0,
            execution_us: 0,
            deadlines_us: Vec::new(),
            asked_packets_per_s: vec![0.0, 1000.5],
            alone_asked_packets_per_s: 2000.0,
            methods: vec![MethodData {
                name: "vanilla".to_owned(),
                peak_packets_per_s: 1000.5,
                rounds: vec![round(), round()],
            }],
        };
        let samples = samples_table(&data);
        let lines: Vec<&str> = samples.lines().collect();
        assert_eq!(lines.len(), 9, "{samples}");
        let expected = [
            "vanilla,2,0,0,0,0,12345,12.345",
            "vanilla,2,0,0,1,30000,42345,12.345",
            "vanilla,2,1,1000.5,0,0,12345,12.345",
            "vanilla,2,1,1000.5,1,30000,42345,12.345",
        ];
        assert_eq!(lines[5..], expected);
    }
}
