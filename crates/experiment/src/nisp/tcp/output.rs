//! The files of the experiment with TCP.

use crate::engine::{Meta, report_meta, write_run};
use crate::nisp::tcp::render_nisp_tcp;
use crate::nisp::tcp::{Results, RoundData, RunData};
use std::fmt::Write;
use std::path::Path;
use steadyvm_lab::Result;

/// Writes results.json, meta.json, samples.csv, stream.csv and report.html.
pub fn write_output(
    directory: &Path,
    data: &RunData,
    results: &Results,
    meta: &Meta,
) -> Result<()> {
    let report = render_nisp_tcp(results, &report_meta("nisp --protocol tcp", meta));
    let tables = [
        ("samples.csv", samples_table(data)),
        ("stream.csv", stream_table(data)),
    ];
    write_run(directory, results, meta, &report, &tables)
}

/// Every round with its method and its number from 1.
fn rounds(data: &RunData) -> impl Iterator<Item = (&str, usize, &RoundData)> {
    data.methods.iter().flat_map(|method| {
        let rounds = method.rounds.iter().enumerate();
        rounds.map(|(index, round)| (&*method.name, index + 1, round))
    })
}

/// Every job, a line each.
fn samples_table(data: &RunData) -> String {
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

/// What the stream carried in every second, but next to the jobs: in all their time.
fn stream_table(data: &RunData) -> String {
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
    use crate::nisp::tcp::{MethodData, Segments, StreamData};
    use steadyvm_load::job::{Done, Ran};

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
        let data = RunData {
            period_us: 0,
            execution_us: 0,
            deadlines_us: Vec::new(),
            methods: vec![MethodData {
                name: "vanilla".to_owned(),
                rounds: vec![round.clone(), round],
            }],
        };
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
