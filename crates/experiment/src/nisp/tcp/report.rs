//! The report of the experiment of NISP with TCP.

use crate::nisp::tcp::{MethodResult, READING, Results, grids, introduction};
use std::fmt::Write;
use steadyvm_report::bars::{Bar, draw};
use steadyvm_report::joined;
use steadyvm_report::page::{self, ReportMeta};

/// The report as HTML: a plot of what the stream carried, and the tables.
pub fn render_nisp_tcp(results: &Results, meta: &ReportMeta) -> String {
    let mut page = page::introduced(meta, &introduction(results), &results.notes);
    let _ = write!(
        page,
        "<h2>What the stream carried</h2>\n<div class=\"grid\">\n{}</div>\n",
        throughput(results)
    );
    page += &joined(grids(results), |grid| grid.html());
    page + &page::reading(&READING)
}

fn throughput(results: &Results) -> String {
    let methods = results.methods.iter();
    let groups: Vec<(&str, Vec<Bar>)> = methods.map(|it| (&*it.name, bars(it))).collect();
    draw(&groups, "Received by the low-priority process, Mbit/s")
}

fn bars(method: &MethodResult) -> Vec<Bar<'_>> {
    let phases = [
        ("before the jobs", &method.before),
        ("during them", &method.during),
        ("after them", &method.after),
    ];
    let bars = phases.map(|(name, stream)| Bar {
        name,
        value: stream.mbit_per_s,
        rounds: &stream.rounds_mbit_per_s,
    });
    bars.into()
}
