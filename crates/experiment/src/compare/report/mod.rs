//! report.html: one self-contained file. Inline style, inline SVG, no script, nothing fetched.
//!
//! [`render`] needs nothing but results.json's content and the facts of the run, so a report can be
//! made again from a run directory.

mod bars;
mod curves;
mod forest;
mod paper;

use crate::compare::results::{LatencyResult, Phase, Results, Service};
use crate::compare::table::{
    FIGURE_HEADERS, GUEST_HEADERS, GUEST_TITLE, guest_figures, latency_figures, wake_up_figures,
};
use std::fmt::Write;
use steadyvm_report::page::{self, ReportMeta};
use steadyvm_report::text::figure;
use steadyvm_report::{escape, joined};

/// The report as HTML. All text is escaped: names, facts and notes may hold anything.
pub fn render(results: &Results, meta: &ReportMeta) -> String {
    let mut page = page::begin(meta);
    let _ = writeln!(page, "<p>{}.</p>", results.service.title());
    page += &page::notes(meta);
    page += &page::facts(meta);
    page += &ratios(results);
    for &phase in results.service.phases() {
        page += &phase_section(results, phase);
    }
    page += &wake_ups(results);
    let title = match results.service {
        Service::Vm | Service::Host | Service::Container => "Traffic carried and CPU time",
        Service::Own => "CPU time",
    };
    let _ = write!(
        page,
        "<h2>{title}</h2>\n<div class=\"grid\">\n{}</div>\n",
        bars::cards(results)
    );
    page += &guests(results);
    let names: Vec<&str> = results.methods.iter().map(|method| &*method.name).collect();
    // The paper has no measurement without VMs.
    if results.service == Service::Vm {
        page += &paper::section(&names);
    }
    page += &reading(results);
    page += page::END;
    page
}

fn ratios(results: &Results) -> String {
    let notes = joined(&results.notes, |note| {
        format!("<p class=\"quiet\">Note: {}.</p>\n", escape(note))
    });
    if results.ratios.is_empty() {
        return notes;
    }
    let basis = if results.bootstrap.paired_rounds == 1 {
        "One round: the intervals cover the variation within it only."
    } else {
        "Intervals cover the variation within and between rounds."
    };
    format!(
        "<h2>Ratios between methods</h2>\n\
         <p>Below 1 the first method has the smaller figure. Lines are 95 % confidence intervals; \
         a filled dot means that the interval excludes 1. {basis}</p>\n\
         <div class=\"grid narrow\">\n{}</div>\n{notes}",
        forest::cards(results)
    )
}

fn phase_section(results: &Results, phase: Phase) -> String {
    let headers = joined(FIGURE_HEADERS, |name| format!("<th>{name}</th>"));
    let rows = joined(&results.methods, |it| {
        latency_row(&it.name, it.latency(phase))
    });
    format!(
        "<h2>NetRT round trips, {}</h2>\n\
         <div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th>µs</th><th>n</th><th>lost</th>\
         {headers}</tr></thead><tbody>{rows}</tbody></table></div>\n\
         <div class=\"grid\">\n{}</div>\n",
        escape(results.service.phase_title(phase)),
        curves::cards(results, phase)
    )
}

/// The receive path's times, a table a phase, where they were traced.
fn wake_ups(results: &Results) -> String {
    joined(Phase::ALL, |phase| {
        let traced = results.methods.iter();
        let rows = joined(traced, |method| {
            method.wake_up(phase).map_or_else(String::new, |wake_up| {
                figures_row(&method.name, &[wake_up.n], wake_up_figures(wake_up))
            })
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
fn guests(results: &Results) -> String {
    let rows = joined(&results.methods, |method| {
        method
            .guest_idle
            .as_ref()
            .map_or_else(String::new, |guest| {
                let cells = joined(guest_figures(guest), |cell| format!("<td>{cell}</td>"));
                let name = escape(&method.name);
                format!("<tr><th scope=\"row\">{name}</th>{cells}</tr>")
            })
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

fn latency_row(name: &str, latency: &LatencyResult) -> String {
    figures_row(name, &[latency.n, latency.lost], latency_figures(latency))
}

fn figures_row(name: &str, counts: &[u64], figures: [Option<f64>; 7]) -> String {
    let counts = joined(counts, |count| format!("<td>{count}</td>"));
    let figures = joined(figures, |value| {
        format!("<td>{}</td>", escape(&figure(value)))
    });
    let name = escape(name);
    format!("<tr><th scope=\"row\">{name}</th>{counts}{figures}</tr>")
}

fn reading(results: &Results) -> String {
    let bootstrap = &results.bootstrap;
    format!(
        "<h2>How to read this</h2>\n\
         <p class=\"quiet\">A round trip is timed at the NetRT client, from right before sending to \
         the kernel’s receive timestamp. Requests come at random intervals on a schedule of their \
         own: a slow reply delays no later request. Figures are exact, of every counted sample of \
         all rounds; percentiles are nearest-rank; SD is the sample standard deviation. A request \
         without a reply in time is lost, and in no figure but that one.</p>\n\
         <p class=\"quiet\">Intervals: hierarchical bootstrap over {} paired rounds and blocks of \
         consecutive samples, {} replicates, widened for the small number of rounds.</p>\n",
        bootstrap.paired_rounds, bootstrap.replicates
    )
}
