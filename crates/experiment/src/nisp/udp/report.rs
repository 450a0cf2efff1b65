//! The report of the experiment of NISP with bursts of UDP.

use super::rates;
use crate::nisp::udp::{READING, Results, grids, introduction};
use std::fmt::Write;
use steadyvm_report::joined;
use steadyvm_report::page::{self, ReportMeta};

/// The report as HTML: plots over the rates, and the tables.
pub fn render_nisp_udp(results: &Results, meta: &ReportMeta) -> String {
    let mut page = page::introduced(meta, &introduction(results), &results.notes);
    let _ = write!(
        page,
        "<h2>Over the rates</h2>\n<div class=\"grid\">\n{}</div>\n\
         <p class=\"quiet\">Figures are of all rounds; bars at the jitter are 95 % intervals, cut at the \
         plot’s edges.</p>\n",
        rates::cards(results)
    );
    page += &joined(grids(results), |grid| grid.html());
    page + &page::reading(&READING)
}
