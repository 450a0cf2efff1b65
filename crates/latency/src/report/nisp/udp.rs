//! The report of the experiment of NISP with bursts of UDP.

use super::{rates, reading, table};
use crate::nisp::udp::{READING, Results, grids, introduction};
use crate::report::svg::joined;
use crate::report::{ReportMeta, introduced};
use std::fmt::Write;

/// The report as HTML: plots over the rates, and the tables.
pub fn render_nisp_udp(results: &Results, meta: &ReportMeta) -> String {
    let mut page = introduced(meta, &introduction(results), &results.notes);
    let _ = write!(
        page,
        "<h2>Over the rates</h2>\n<div class=\"grid\">\n{}</div>\n\
         <p class=\"quiet\">Figures are of all rounds; bars at the jitter are 95 % intervals, cut at the \
         plot’s edges.</p>\n",
        rates::cards(results)
    );
    page += &joined(grids(results), |grid| table(&grid));
    page + &reading(&READING)
}
