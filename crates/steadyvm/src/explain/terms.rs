//! A bound's terms beside what was measured, as a table for people.

use std::fmt::Write;

use steadyvm_site::explain::Comparison;
use steadyvm_trace::receive_path::Figures;

/// For a terminal, at most 100 columns wide. Ends with a newline.
pub fn render(comparison: &Comparison) -> String {
    let mut text = format!(
        "service \"{}\" in VM \"{}\": what the plan allows, and what was measured\n",
        comparison.service.escape_default(),
        comparison.vm.escape_default()
    );
    let mut line = |content: &str| {
        let _ = writeln!(text, "{}", content.trim_end());
    };
    let names = ["planned", "n", "p50", "p99", "max"].map(|name| format!(" {name:>9}"));
    line(&format!("{:<40}{}", "µs", names.concat()));
    for term in &comparison.terms {
        let planned = shown(term.planned_us);
        let Some(measured) = &term.measured else {
            line(&format!(
                "{:<40} {planned}  not visible from the host:",
                term.name
            ));
            wrap(term.not_seen, &mut line);
            continue;
        };
        let over = if term.over { " OVER" } else { "" };
        line(&format!(
            "{:<40} {planned}{}{over}",
            term.name,
            figures(measured)
        ));
        for part in &term.parts {
            let figures = figures(&part.figures);
            line(&format!("  {:<38} {:>9}{figures}", part.part, ""));
        }
    }
    line(
        match (
            comparison.within,
            comparison.terms.iter().any(|term| term.over),
        ) {
            (true, _) => "No measured term is longer than planned.",
            (false, true) => {
                "OVER: the bound does not hold on this host. Enter larger terms, or see with --worst what ran."
            }
            (false, false) => "Nothing was measured: no packet was followed into this VM.",
        },
    );
    text
}

fn wrap(words: &str, line: &mut impl FnMut(&str)) {
    let mut current = String::new();
    for word in words.split(' ') {
        if current.len() + word.len() > 90 {
            line(&format!("      {current}"));
            current.clear();
        }
        current += word;
        current.push(' ');
    }
    line(&format!("      {current}"));
}

fn figures(figures: &Figures) -> String {
    let times = [figures.p50_us, figures.p99_us, figures.max_us];
    let times = times.map(|time| format!(" {}", shown(time)));
    format!(" {:>9}{}", figures.n, times.concat())
}

fn shown(time_us: Option<f64>) -> String {
    time_us.map_or_else(|| format!("{:>9}", "-"), |time| format!("{time:>9.1}"))
}
