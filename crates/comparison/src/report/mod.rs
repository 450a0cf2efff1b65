//! report.html: one self-contained file. Inline style, inline SVG, no script, nothing fetched.
//!
//! [`render`] needs nothing but results.json's content and the facts of the run, so a report can be
//! made again from a run directory.

mod bars;
mod curves;
mod forest;

use crate::Service;
use crate::data::Phase;
use crate::published;
use crate::record::{Intervals, TRACED, ratios, service_of};
use crate::table::exits;
use crate::table::{
    FIGURE_HEADERS, GUEST_HEADERS, GUEST_TITLE, ROUND_TRIPS, WAKE_UPS, counted, guest_figures,
    latency_figures, traced,
};
use std::fmt::Write;
use steadyvm_report::page::{self, ReportMeta};
use steadyvm_report::results::{At, Record};
use steadyvm_report::text::figure;
use steadyvm_report::{escape, joined};

/// The report as HTML. All text is escaped: names, facts and notes may hold anything.
pub fn render(record: &Record, meta: &ReportMeta) -> String {
    let service = service_of(record);
    let mut page = page::begin(meta);
    let _ = writeln!(page, "<p>{}.</p>", service.title());
    page += &page::notes(meta);
    page += &page::facts(meta);
    page += &of_ratios(record);
    for &phase in service.phases() {
        page += &phase_section(record, phase);
    }
    page += &wake_ups(record);
    let title = match service {
        Service::Vm | Service::Host | Service::Container => "Traffic carried and CPU time",
        Service::Own => "CPU time",
    };
    let _ = write!(
        page,
        "<h2>{title}</h2>\n<div class=\"grid\">\n{}</div>\n",
        bars::cards(record)
    );
    page += &guests(record);
    page += &exit_costs(record);
    if let Some(grid) = published::grid(record) {
        let _ = writeln!(
            page,
            "{}<p class=\"quiet\">{}.</p>",
            grid.html(),
            published::SOURCE
        );
    }
    page += &reading(record);
    page += page::END;
    page
}

fn of_ratios(record: &Record) -> String {
    let notes = joined(&record.notes, |note| {
        format!("<p class=\"quiet\">Note: {}.</p>\n", escape(note))
    });
    if ratios(record).next().is_none() {
        return notes;
    }
    let basis = if Intervals::of(record).paired_rounds == 1 {
        "One round: the intervals cover the variation within it only."
    } else {
        "Intervals cover the variation within and between rounds."
    };
    format!(
        "<h2>Ratios between methods</h2>\n\
         <p>Below 1 the first method has the smaller figure. Lines are 95 % confidence intervals; \
         a filled dot means that the interval excludes 1. {basis}</p>\n\
         <div class=\"grid narrow\">\n{}</div>\n{notes}",
        forest::cards(record)
    )
}

fn phase_section(record: &Record, phase: Phase) -> String {
    let headers = joined(FIGURE_HEADERS, |name| format!("<th>{name}</th>"));
    let rows = joined(&record.rows, |row| {
        latency_row(record.at(row, phase.cell()))
    });
    format!(
        "<h2>NetRT round trips, {}</h2>\n\
         <div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th>µs</th><th>n</th><th>lost</th>\
         {headers}</tr></thead><tbody>{rows}</tbody></table></div>\n\
         <div class=\"grid\">\n{}</div>\n",
        escape(service_of(record).phase_title(phase)),
        curves::cards(record, phase)
    )
}

/// The receive path's times, a table a phase, where they were traced.
fn wake_ups(record: &Record) -> String {
    joined(Phase::ALL, |phase| {
        let rows = joined(traced(record, phase), |at| {
            figures_row(at.row, &[at.count(TRACED)], latency_figures(at, WAKE_UPS))
        });
        if rows.is_empty() {
            return rows;
        }
        let headers = joined(FIGURE_HEADERS, |name| format!("<th>{name}</th>"));
        format!(
            "<h2>Hard interrupt to the reader’s wake-up, {}</h2>\n\
             <p>Traced by the host itself in a repetition of the phase: the cost of tracing is \
             in these figures, and in no others.</p>\n\
             <div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th>µs</th><th>n</th>\
             {headers}</tr></thead><tbody>{rows}</tbody></table></div>\n",
            escape(phase.title())
        )
    })
}

/// What the RT guests and their KVMs counted, where there are any.
fn guests(record: &Record) -> String {
    let rows = joined(counted(record), |at| {
        let cells = joined(guest_figures(at), |cell| format!("<td>{cell}</td>"));
        let name = escape(at.row);
        format!("<tr><th scope=\"row\">{name}</th>{cells}</tr>")
    });
    if rows.is_empty() {
        return rows;
    }
    let headers = joined(GUEST_HEADERS, |name| format!("<th>{name}</th>"));
    format!(
        "<h2>Interrupts and exits of the RT guest</h2>\n<p>{GUEST_TITLE}. The guest’s own ticks and \
         housekeeping are among the exits; io and mmio went to its monitor.</p>\n\
         <div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th></th>{headers}</tr></thead>\
         <tbody>{rows}</tbody></table></div>\n"
    )
}

/// What exits cost, where they were traced.
fn exit_costs(record: &Record) -> String {
    let rows = joined(exits::of(record), |it| {
        let figures = joined(it.figures(), |value| format!("<td>{value:.2}</td>"));
        let (method, reason) = (escape(it.method), escape(it.reason));
        format!("<tr><th scope=\"row\">{method}</th><td>{reason}</td>{figures}</tr>")
    });
    if rows.is_empty() {
        return rows;
    }
    let headers = joined(exits::HEADERS, |name| format!("<th>{name}</th>"));
    format!(
        "<h2>What exits cost</h2>\n<p>{}.</p>\n\
         <div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th></th><th>reason</th>{headers}</tr></thead>\
         <tbody>{rows}</tbody></table></div>\n",
        escape(exits::TITLE)
    )
}

fn latency_row(at: At) -> String {
    let counts = [at.count("n"), at.count("lost")];
    figures_row(at.row, &counts, latency_figures(at, ROUND_TRIPS))
}

fn figures_row(name: &str, counts: &[u64], figures: [Option<f64>; 7]) -> String {
    let counts = joined(counts, |count| format!("<td>{count}</td>"));
    let figures = joined(figures, |value| {
        format!("<td>{}</td>", escape(&figure(value)))
    });
    let name = escape(name);
    format!("<tr><th scope=\"row\">{name}</th>{counts}{figures}</tr>")
}

fn reading(record: &Record) -> String {
    let intervals = Intervals::of(record);
    format!(
        "<h2>How to read this</h2>\n\
         <p class=\"quiet\">A round trip is timed at the NetRT client, from right before sending to \
         the kernel’s receive timestamp. Requests come at random intervals on a schedule of their \
         own: a slow reply delays no later request. Figures are exact, of every counted sample of \
         all rounds; percentiles are nearest-rank; SD is the sample standard deviation. A request \
         without a reply in time is lost, and in no figure but that one.</p>\n\
         <p class=\"quiet\">Intervals: hierarchical bootstrap over {} paired rounds and blocks of \
         consecutive samples, {} replicates, widened for the small number of rounds.</p>\n",
        intervals.paired_rounds, intervals.replicates
    )
}
