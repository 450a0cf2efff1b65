//! What was measured, before any figure is computed.

use super::segments::Segments;
use crate::engine::rounds::RowData;
use std::fmt::Write;
use steadyvm_load::job::Ran;

/// One round of one method, in the order of measuring.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundData {
    /// Jobs without a stream.
    pub unloaded: Ran,
    /// The stream without jobs.
    pub before: StreamData,
    /// Jobs next to the stream.
    pub loaded: Ran,
    /// The stream next to them.
    pub during: StreamData,
    /// The stream, the same connection, when the jobs are done.
    pub after: StreamData,
}

/// The stream in one phase.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamData {
    /// Payload that the low-priority process received, in Mbit/s (10^6 bit/s): of each second where
    /// there are no jobs, of all the jobs' time where there are.
    pub mbit_per_s: Vec<f64>,
    /// How long each of these was, in seconds: a receiver that answers late makes them longer.
    pub durations_s: Vec<f64>,
    /// What the sender's TCP did.
    pub segments: Segments,
}

/// Each method's rounds, numbered from 1.
fn rounds(data: &[RowData<RoundData>]) -> impl Iterator<Item = (&str, usize, &RoundData)> {
    data.iter().flat_map(|method| {
        let rounds = (1..).zip(method.of_cell(0));
        rounds.map(|(number, round)| (&*method.name, number, round))
    })
}

/// samples.csv: every job, a line each.
pub fn samples_table(data: &[RowData<RoundData>]) -> String {
    let mut table = String::from("method,round,load,job,released_ns,finished_ns\n");
    for (method, number, round) in rounds(data) {
        for (load, jobs) in [("unloaded", &round.unloaded), ("loaded", &round.loaded)] {
            for (job, done) in jobs.done.iter().enumerate() {
                let (released, finished) = (done.released_ns, done.finished_ns);
                // Writing to a string cannot fail.
                let _ = writeln!(
                    table,
                    "{method},{number},{load},{job},{released},{finished}"
                );
            }
        }
    }
    table
}

/// stream.csv: what the stream carried in every second, but next to the jobs: in all their time.
pub fn stream_table(data: &[RowData<RoundData>]) -> String {
    let mut table = String::from("method,round,phase,part,duration_s,mbit_per_s\n");
    for (method, number, round) in rounds(data) {
        let phases = [
            ("before", &round.before),
            ("during", &round.during),
            ("after", &round.after),
        ];
        for (phase, stream) in phases {
            let parts = stream.durations_s.iter().zip(&stream.mbit_per_s);
            for (part, (duration_s, mbit_per_s)) in parts.enumerate() {
                let what = format!("{method},{number},{phase},{part}");
                let _ = writeln!(table, "{what},{duration_s},{mbit_per_s}");
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadyvm_load::job::Done;

    #[test]
    fn the_tables_have_every_job_and_every_second() {
        let jobs = |finished_ns| Ran {
            done: vec![Done {
                released_ns: 5,
                finished_ns,
            }],
            waited_ns: 0,
        };
        let stream = |mbit_per_s: &[f64]| StreamData {
            mbit_per_s: mbit_per_s.to_vec(),
            durations_s: vec![1.25; mbit_per_s.len()],
            segments: Segments::default(),
        };
        let round = RoundData {
            unloaded: jobs(17),
            before: stream(&[1.5, 2.0]),
            loaded: jobs(18),
            during: stream(&[0.25]),
            after: stream(&[3.0]),
        };
        let data = [RowData {
            name: "vanilla".to_owned(),
            rounds: vec![vec![round.clone()], vec![round]],
        }];
        let samples = samples_table(&data);
        let lines: Vec<&str> = samples.lines().collect();
        assert_eq!(lines.len(), 5, "{samples}");
        assert_eq!(
            lines[1..3],
            ["vanilla,1,unloaded,0,5,17", "vanilla,1,loaded,0,5,18"]
        );
        let stream = stream_table(&data);
        let lines: Vec<&str> = stream.lines().collect();
        assert_eq!(lines.len(), 9, "{stream}");
        let expected = [
            "vanilla,2,before,0,1.25,1.5",
            "vanilla,2,before,1,1.25,2",
            "vanilla,2,during,0,1.25,0.25",
            "vanilla,2,after,0,1.25,3",
        ];
        assert_eq!(lines[5..], expected);
    }
}
