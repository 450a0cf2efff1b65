//! What was measured, before any figure is computed.

use crate::engine::rounds::RowData;
use crate::nisp::Times;
use std::fmt::Write;
use steadyvm_load::job::Ran;

/// The whole run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunData {
    /// The jobs'.
    pub times: Times,
    /// The mean rates of the source, in packets a second, in ascending order; the first is 0.
    pub asked_packets_per_s: Vec<f64>,
    /// The rate of the source at which the best method's peak was found, in packets a second.
    pub alone_asked_packets_per_s: f64,
    /// The most packets a second that each method received at any rate, next to jobs of no length: looked for
    /// once, before the rounds.
    pub peaks_packets_per_s: Vec<f64>,
    /// Each round has all rates, and then `alone_asked_packets_per_s` next to jobs of no length.
    pub methods: Vec<RowData<RateData>>,
}

/// One rate in one round.
#[derive(Debug, Clone, PartialEq)]
pub struct RateData {
    /// The jobs.
    pub ran: Ran,
    /// What the source sent, in packets a second.
    pub sent_packets_per_s: f64,
    /// What the low-priority process received, in packets a second.
    pub received_packets_per_s: f64,
    /// CPU time that was not idle, of all CPUs: 0 to 1.
    pub cpu_busy_fraction: f64,
}

/// samples.csv: every job, a line each. Rounds are counted from 1, rates and jobs from 0.
pub fn samples_table(data: &RunData) -> String {
    let mut table = String::from(
        "method,round,rate_index,asked_packets_per_s,job,released_ns,finished_ns,response_us\n",
    );
    for method in &data.methods {
        for (round, turns) in (1..).zip(&method.rounds) {
            // The last turn has no jobs of a length.
            let rates = data.asked_packets_per_s.iter().zip(turns);
            for (rate, (asked, measured)) in rates.enumerate() {
                let what = format!("{},{round},{rate},{asked}", method.name);
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
    use crate::nisp::SCALE;
    use steadyvm_load::job::Done;

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
        let round = || vec![rate(), rate(), rate()];
        let data = RunData {
            times: Times::scaled(SCALE),
            asked_packets_per_s: vec![0.0, 1000.5],
            alone_asked_packets_per_s: 2000.0,
            peaks_packets_per_s: vec![1000.5],
            methods: vec![RowData {
                name: "vanilla".to_owned(),
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
