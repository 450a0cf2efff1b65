//! What the exits of the RT guest cost, by reason.

use super::NAME_WIDTH;
use crate::data::Phase;
use crate::figures::{TRACED_EXITS, exit_figures};
use steadyvm_report::results::{At, Record};
use steadyvm_report::text::{cut, line, wrapped};

/// What is rarer is not shown.
const LEAST_PER_REQUEST: f64 = 0.05;

/// The exits of one reason, of one method.
pub(crate) struct Exits<'r> {
    pub method: &'r str,
    pub reason: &'r str,
    pub per_request: f64,
    /// CPU time of the VCPU's thread for one of them.
    pub cpu_us: f64,
}

/// Titles of [`Exits::figures`].
pub(crate) const HEADERS: [&str; 3] = ["per request", "µs each", "µs per request"];

pub(crate) const TITLE: &str = "Exits of the RT guest without NetStream by reason, and the CPU time of the VCPU's thread from \
     each exit to the next entry; traced by the host itself: the cost of tracing is in it";

impl Exits<'_> {
    /// In the order of [`HEADERS`].
    pub fn figures(&self) -> [f64; 3] {
        let Self {
            per_request,
            cpu_us,
            ..
        } = self;
        [*per_request, *cpu_us, per_request * cpu_us]
    }
}

/// Those of every method that was traced, those first that cost most.
pub(crate) fn of(record: &Record) -> Vec<Exits<'_>> {
    let methods = record.rows.iter();
    let idle = Phase::Idle.cell();
    methods.flat_map(|it| exits(record.at(it, idle))).collect()
}

fn exits(at: At<'_>) -> Vec<Exits<'_>> {
    let traced = at.figures().filter_map(|figure| {
        let reason = figure.name.strip_prefix(TRACED_EXITS)?;
        Some(Exits {
            method: at.row,
            reason,
            per_request: figure.value?,
            cpu_us: at.value(&exit_figures(reason).1)?,
        })
    });
    let mut shown: Vec<Exits> = traced
        .filter(|it| it.per_request >= LEAST_PER_REQUEST)
        .collect();
    shown.sort_by(|one, other| other.figures()[2].total_cmp(&one.figures()[2]));
    shown
}

/// The table, if anything was traced.
pub(super) fn table(text: &mut String, record: &Record) {
    let all = of(record);
    if all.is_empty() {
        return;
    }
    line(text, "");
    wrapped(text, TITLE);
    let headers = HEADERS.map(|it| format!(" {it:>15}")).concat();
    line(
        text,
        &format!("  {:NAME_WIDTH$} {:20}{headers}", "method", "reason"),
    );
    for exits in all {
        let figures = exits.figures().map(|it| format!(" {it:>15.2}")).concat();
        let (name, reason) = (cut(exits.method, NAME_WIDTH), cut(exits.reason, 20));
        line(text, &format!("  {name} {reason}{figures}"));
    }
}
