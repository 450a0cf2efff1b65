//! What is shown of the record: the tables, and windows.csv.

use super::condition::{Condition, Part};
use super::figures::{DOMAINS, PLAN, has, of_domain};
use super::quantum::{Asked, GRANTED_PERCENT, Quantum};
use super::{Plan, interval, paper, work};
use crate::engine::Page;
use crate::engine::results::{At, Record};
use crate::testbed::Mechanism;
use std::fmt::Write as _;
use steadyvm_report::text::figure;
use steadyvm_report::{Grid, headers};

const INTRODUCTION: &str = "RT VCPUs under four mechanisms, in turns on one emulated host of two CPUs: the \
    dissertation's tables 4.2, 4.3, 2.2 and 2.1 and figure 2.4 on KVM, and NetRT inside a planned budget. Threads of the host stand for \
    VCPUs, but where a VM is named.";

const READING: [&str; 9] = [
    "Beside N: N normal threads that compute. Beside 4 and a FIFO: a thread at FIFO 40, too, which takes 95 of every 100 ms of CPU 1.",
    "Share: mean over the windows and, in brackets, its 95 % interval (Student's t); per cent of one CPU, 40 granted. Stock \
     schedulers know no budget. windows.csv has each window.",
    "Misses: jobs that were done after their deadline, of all jobs; in brackets the 95 % interval of their share (Wilson), which takes \
     jobs as independent; worst: the longest response over the deadline. Domain 2 has two VCPUs; overloaded, each of their tasks asks \
     for 120 % of a CPU and misses all by construction, where the paper's overloaded domain misses 48 %.",
    "Decision: time in the callback dispatch of the ext scheduler, in steps of an eighth; the longest is since it was \
     loaded. Stock schedulers have no such clock: -.",
    "Done: what eight tasks that compute do in a window, four of them with the domains' budgets, per cent of what one on each \
     CPU does in the same round under the stock scheduler; mean and, in brackets, the least and the most. Lost: the rest, in \
     which are decisions, switches and cold caches; x stock fair: against its loss.",
    "Where it goes: CPU time of the tasks as the kernel counts it, of the ext scheduler's loader with irq_work/N, idle time, and the \
     rest: interrupts, switches and threads of the host. Decisions are part of tasks or rest. What tasks ran and did not do was lost \
     to cold caches, or to interrupts that the kernel counts as theirs.",
    "Switches/s: the host's context switches, all threads; mean over the windows and, in brackets, the least and the most.",
    "Work: what the RT VCPU's task has done where it asks for all of the CPU, per cent of what the CPU does, 50 granted; mean \
     and, in brackets, the least and the most of the rounds. Lost: what is missing to 50, per cent of it. CPU time: of both \
     VCPUs, as the kernel counts. 4 ms is the kernel's tick.",
    "Over bound: round trips that took longer than the plan's bound for the service. The CPU time that is planned for a request is \
     a fifth more than the longest of 200 at the start.",
];

/// The tables, the paper's own below ours.
pub fn page(record: &Record) -> Page {
    let mut grids = Vec::new();
    if has(record, Part::Share) {
        grids.extend([shares(record), paper::shares()]);
    }
    if has(record, Part::Domains) {
        grids.extend([misses(record), paper::misses(), cost(record), paper::cost()]);
    }
    if has(record, Part::Work) {
        grids.extend([work(record), spent(record)]);
    }
    if has(record, Part::Quantum) {
        grids.extend([quanta(record), paper::quanta()]);
    }
    if has(record, Part::NetRt) {
        grids.push(netrt(record));
    }
    Page {
        introduction: INTRODUCTION.to_owned(),
        plots: String::new(),
        grids,
        reading: &READING,
        notes: record.notes.clone(),
    }
}

/// A place in the tables: who schedules, the condition, and what was measured there.
type Place<'r> = (Mechanism, Condition, At<'r>);

/// Every mechanism under every condition of a part that was measured, and what to do with each.
fn each_place<T>(record: &Record, part: Part, mut of: impl FnMut(Place) -> T) -> Vec<T> {
    let mut found = Vec::new();
    for mechanism in Mechanism::ALL {
        for condition in Condition::of_part(part) {
            let cell = condition.to_string();
            let at = record.at(mechanism.title(), &cell);
            if at.figures().next().is_some() {
                found.push(of((mechanism, condition, at)));
            }
        }
    }
    found
}

/// windows.csv: a line a window.
pub fn windows_table(record: &Record) -> String {
    let mut table = String::from("mechanism,condition,round,share_percent\n");
    each_place(record, Part::Share, |(mechanism, condition, at)| {
        for (round, share) in (1..).zip(at.rounds("share")) {
            let (mechanism, condition) = (mechanism.title(), condition.short());
            // Writing to a String cannot fail.
            let _ = writeln!(table, "{mechanism},{condition},{round},{share}");
        }
    });
    table
}

fn with_spread(values: &[f64], digits: usize) -> String {
    let Some(mean) = steadyvm_stats::mean(values.iter().copied()) else {
        return "-".to_owned();
    };
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{mean:.digits$} [{least:.digits$}, {most:.digits$}]")
}

/// A mean and the interval of it.
fn with_interval(values: &[f64], digits: usize) -> String {
    match interval::of_mean(values) {
        None => "-".to_owned(),
        Some((mean, None)) => format!("{mean:.digits$}"),
        Some((mean, Some(half))) => format!(
            "{mean:.digits$} [{:.digits$}, {:.digits$}]",
            mean - half,
            mean + half
        ),
    }
}

fn shares(record: &Record) -> Grid {
    let conditions = Condition::of_part(Part::Share);
    let conditions = conditions.filter(|it| record.cells.contains(&it.to_string()));
    let conditions: Vec<Condition> = conditions.collect();
    let row = |mechanism: Mechanism| {
        let shares = conditions.iter().map(|condition| {
            let cell = condition.to_string();
            with_interval(&record.at(mechanism.title(), &cell).rounds("share"), 2)
        });
        let name = std::iter::once(mechanism.title().to_owned());
        name.chain(shares).collect()
    };
    let columns = conditions.iter().map(|it| it.short());
    let first = conditions
        .first()
        .map(ToString::to_string)
        .unwrap_or_default();
    let of = |it: Mechanism| record.at(it.title(), &first).rounds("share").len();
    let windows = Mechanism::ALL.map(of).into_iter().max().unwrap_or(0);
    Grid {
        title: format!(
            "Table 4.2: share of an RT VCPU with 4 ms granted in every 10 ms, %; n = {windows} windows"
        ),
        words: 1,
        headers: std::iter::once(String::new()).chain(columns).collect(),
        rows: Mechanism::ALL.map(row).into(),
    }
}

fn misses(record: &Record) -> Grid {
    let row = |(mechanism, condition, at): Place| {
        let mut row = vec![mechanism.title().to_owned(), condition.short()];
        row.extend(DOMAINS.map(|domain| missed(at, domain)));
        row.push(fixed(at.value("neighbours"), 1));
        row
    };
    Grid {
        title: "Tables 4.3 and 2.2: deadline misses of three domains, [their share, %] (worst response)"
            .to_owned(),
        words: 2,
        headers: headers(["", "", "domain 1", "domain 2", "domain 3", "others %"]),
        rows: each_place(record, Part::Domains, row),
    }
}

fn missed(at: At, domain: usize) -> String {
    let [jobs, misses] = ["jobs", "misses"].map(|what| at.count(&of_domain(domain, what)));
    let worst = at.value(&of_domain(domain, "worst_response"));
    let of = interval::of_share(misses, jobs);
    let of = of.map_or_else(String::new, |(low, high)| format!(" [{low:.1}, {high:.1}]"));
    format!("{misses}/{jobs}{of} ({})", fixed(worst, 2))
}

fn cost(record: &Record) -> Grid {
    let row = |(mechanism, condition, at): Place| {
        let mut row = vec![
            mechanism.title().to_owned(),
            condition.short(),
            with_spread(&at.rounds("context_switches"), 0),
            decisions(at),
        ];
        row.extend(["decision_p50", "decision_p99", "decision_max"].map(|it| figure(at.value(it))));
        row.push(fixed(at.value("decisions_share"), 2));
        row
    };
    Grid {
        title: "Table 2.1 and figure 3.3: context switches and time of a decision, us".to_owned(),
        words: 2,
        headers: headers([
            "",
            "",
            "switches/s",
            "decisions",
            "p50",
            "p99",
            "max",
            "% of CPUs",
        ]),
        rows: each_place(record, Part::Domains, row),
    }
}

/// How many decisions there were; stock schedulers have no such clock.
fn decisions(at: At) -> String {
    fixed(at.value("decisions"), 0)
}

fn fixed(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

/// Every mechanism's figures of the work that all tasks did together.
fn each_work(record: &Record, row: impl Fn(At) -> Vec<String>) -> Vec<Vec<String>> {
    let cell = Condition::Work(work::TOGETHER).to_string();
    let of = |mechanism: Mechanism| row(record.at(mechanism.title(), &cell));
    Mechanism::ALL.map(of).into()
}

fn work(record: &Record) -> Grid {
    let cell = Condition::Work(work::TOGETHER).to_string();
    let fair = record.at(Mechanism::Fair.title(), &cell).value("lost");
    let row = |at: At| {
        let lost = at.value("lost");
        let times = lost.zip(fair).filter(|(_, fair)| *fair > 0.0);
        vec![
            at.row.to_owned(),
            with_spread(&at.rounds("done"), 2),
            fixed(lost, 2),
            fixed(times.map(|(lost, fair)| lost / fair), 2),
        ]
    };
    Grid {
        title: "CPU time lost to scheduling, all mechanisms on the same load".to_owned(),
        words: 1,
        headers: headers(["", "done %", "lost %", "x stock fair"]),
        rows: each_work(record, row),
    }
}

fn spent(record: &Record) -> Grid {
    let row = |at: At| {
        let shares = ["tasks", "loader", "idle"].map(|name| at.value(name));
        let rest = shares
            .iter()
            .try_fold(100.0, |rest, share| Some(rest - (*share)?));
        let mut row = vec![at.row.to_owned()];
        row.extend(shares.map(|share| fixed(share, 2)));
        row.extend([fixed(rest, 2), fixed(at.value("decisions_share"), 2)]);
        row.extend(["context_switches", "interrupts"].map(|name| fixed(at.value(name), 0)));
        row
    };
    Grid {
        title: "The same load: where the CPU time goes, % of both CPUs".to_owned(),
        words: 1,
        headers: headers([
            "",
            "tasks",
            "loader",
            "idle",
            "rest",
            "decisions",
            "switches/s",
            "interrupts/s",
        ]),
        rows: each_work(record, row),
    }
}

fn quanta(record: &Record) -> Grid {
    let loads = Asked::ALL.into_iter().filter_map(Asked::percent);
    let loads = loads.map(|percent| format!("at {percent} %"));
    let names = headers([
        "",
        "switches/s",
        "decisions",
        "p50",
        "p99",
        "CPU time %",
        "work %",
        "lost %",
    ]);
    Grid {
        title: "Figure 2.4: one quantum granted in every two, beside a VCPU with two in every four, on one CPU, ext; \
             a decision, us; jobs missed"
            .to_owned(),
        words: 1,
        headers: names.into_iter().chain(loads).collect(),
        rows: Quantum::ALL.map(|it| quantum(record, it)).into(),
    }
}

fn quantum(record: &Record, quantum: Quantum) -> Vec<String> {
    let ext = Mechanism::Ext.title();
    let cell = |asked| Condition::Quantum { quantum, asked }.to_string();
    let all = cell(Asked::All);
    let at = record.at(ext, &all);
    let lost = at.value("work");
    let lost = lost.map(|mean| (GRANTED_PERCENT - mean) / GRANTED_PERCENT * 100.0);
    let mut row = vec![
        quantum.title(),
        with_spread(&at.rounds("context_switches"), 0),
        decisions(at),
        figure(at.value("decision_p50")),
        figure(at.value("decision_p99")),
        with_spread(&at.rounds("both"), 1),
        with_spread(&at.rounds("work"), 1),
        figure(lost),
    ];
    let loads = Asked::ALL.into_iter().filter(|it| *it != Asked::All);
    row.extend(loads.map(|asked| {
        let cell = cell(asked);
        let at = record.at(ext, &cell);
        format!("{}/{}", at.count("misses"), at.count("jobs"))
    }));
    row
}

fn netrt(record: &Record) -> Grid {
    let plan: Option<Plan> = record.setting(PLAN);
    let granted = plan.map_or_else(String::new, |plan| {
        format!(
            ": {} us in every {} us planned for {} us a request, bound {} us",
            plan.budget_us, plan.period_us, plan.execution_us, plan.bound_us
        )
    });
    let row = |(mechanism, condition, at): Place| {
        let mut row = vec![mechanism.title().to_owned(), condition.short()];
        row.extend(["n", "lost"].map(|name| at.count(name).to_string()));
        row.extend(["p50", "p99", "max"].map(|name| figure(at.value(name))));
        row.push(plan.map_or_else(|| "-".to_owned(), |plan| plan.bound_us.to_string()));
        row.push(at.count("over_bound").to_string());
        row
    };
    Grid {
        title: format!("NetRT in the RT VM, us{granted}"),
        words: 2,
        headers: headers([
            "",
            "",
            "n",
            "lost",
            "p50",
            "p99",
            "max",
            "bound",
            "over bound",
        ]),
        rows: each_place(record, Part::NetRt, row),
    }
}
