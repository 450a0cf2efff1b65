//! The report of the experiment of NISP with TCP.

use super::bars::{Bar, draw};
use super::svg::{escape, joined};
use super::{ReportMeta, introduced};
use crate::nisp::tcp::{Grid, MethodResult, READING, Results, grids, introduction};
use std::fmt::Write;

/// The report as HTML: a plot of what the stream carried, and the tables.
pub fn render_nisp_tcp(results: &Results, meta: &ReportMeta) -> String {
    let mut page = introduced(meta, &introduction(results), &results.notes);
    let _ = write!(
        page,
        "<h2>What the stream carried</h2>\n<div class=\"grid\">\n{}</div>\n",
        throughput(results)
    );
    page += &joined(grids(results), |grid| table(&grid));
    page += "<h2>How to read this</h2>\n";
    page += &joined(READING, |sentence| {
        format!("<p class=\"quiet\">{}</p>\n", escape(sentence))
    });
    page += "</main>\n</body>\n</html>\n";
    page
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

fn table(grid: &Grid) -> String {
    let headers = joined(&grid.headers, |name| format!("<th>{}</th>", escape(name)));
    let rows = joined(&grid.rows, |row| {
        let (name, cells) = row
            .split_first()
            .map_or(("", &[][..]), |(name, cells)| (name, cells));
        let cells = joined(cells, |cell| format!("<td>{}</td>", escape(cell)));
        format!("<tr><th scope=\"row\">{}</th>{cells}</tr>", escape(name))
    });
    format!(
        "<h2>{}</h2>\n<div class=\"scroll\" tabindex=\"0\"><table><thead><tr>{headers}</tr></thead>\
         <tbody>{rows}</tbody></table></div>\n",
        grid.title
    )
}
