//! The tables, and the files of a run.

use super::condition::{Beside, Mechanism};
use super::quantum::{GRANTED_PERCENT, QuantumResult};
use super::results::{
    DomainsResult, MissesResult, NetRtResult, Results, ShareResult, least_and_most,
};
use super::work::{Spent, WorkResult};
use crate::engine::{Meta, report_meta, write_run};
use std::fmt::Write as _;
use std::path::Path;
use steadyvm_lab::Result;
use steadyvm_report::text::figure;
use steadyvm_report::{Grid, document, headers, page};

const INTRODUCTION: &str = "RT VCPUs under four mechanisms, in turns on one emulated host of two CPUs: the \
    dissertation's tables 4.2, 4.3, 2.2 and 2.1 and figure 2.4 on KVM, and NetRT inside a planned budget. Threads of the host stand for \
    VCPUs, but where a VM is named.";

const READING: [&str; 9] = [
    "Beside N: N normal threads that compute. Beside 4 and a FIFO: a thread at FIFO 40, too, which takes 95 of every 100 ms of CPU 1.",
    "Share: mean over the windows and, in brackets, the least and the most; per cent of one CPU, 40 granted. Stock \
     schedulers know no budget.",
    "Misses: jobs that were done after their deadline, of all jobs; worst: the longest response over the deadline. Domain \
     2 has two VCPUs; overloaded, each of their tasks asks for 120 % of a CPU.",
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

/// The tables of what was measured, the paper's own below ours.
fn grids(results: &Results) -> Vec<Grid> {
    let mut grids = Vec::new();
    if !results.shares.is_empty() {
        grids.extend([shares(results), paper_shares()]);
    }
    if !results.domains.is_empty() {
        grids.extend([misses(results), paper_misses(), cost(results), paper_cost()]);
    }
    if !results.work.is_empty() {
        grids.extend([work(results), spent(results)]);
    }
    if !results.quanta.is_empty() {
        grids.extend([quanta(results), paper_quanta()]);
    }
    if !results.netrt.is_empty() {
        grids.push(netrt(results));
    }
    grids
}

/// For a terminal. Ends with a newline.
pub fn render(results: &Results) -> String {
    document(INTRODUCTION, &grids(results), &READING, &results.notes)
}

/// Writes results.json, meta.json, windows.csv and report.html.
///
/// # Errors
/// A file that cannot be written.
pub fn write_output(directory: &Path, results: &Results, meta: &Meta) -> Result<()> {
    let about = report_meta("vcpu", meta);
    let mut report = page::introduced(&about, INTRODUCTION, &results.notes);
    for grid in grids(results) {
        report += &grid.html();
    }
    report += &page::reading(&READING);
    write_run(
        directory,
        results,
        meta,
        &report,
        &[("windows.csv", windows(results))],
    )
}

/// A line a window.
fn windows(results: &Results) -> String {
    let mut table = String::from("mechanism,condition,round,share_percent\n");
    for it in &results.shares {
        for (round, share) in it.shares_percent.iter().enumerate() {
            let (mechanism, condition) = (it.mechanism.title(), place(it));
            // Writing to a String cannot fail.
            let _ = writeln!(table, "{mechanism},{condition},{},{share}", round + 1);
        }
    }
    table
}

fn place(it: &ShareResult) -> String {
    let what = if it.is_vm { "VM " } else { "" };
    format!("{what}{}", it.beside)
}

/// Names in the order they first come.
fn columns<T>(items: &[T], name: impl Fn(&T) -> String) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for name in items.iter().map(name) {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// A row for each mechanism, a column for each condition.
fn by_mechanism<T>(
    title: &str,
    items: &[T],
    mechanism: impl Fn(&T) -> Mechanism,
    condition: impl Fn(&T) -> String,
    cell: impl Fn(&T) -> String,
) -> Grid {
    let columns = columns(items, &condition);
    let row = |of: Mechanism| {
        let cells = columns.iter().map(|column| {
            let found = items
                .iter()
                .find(|it| mechanism(it) == of && condition(it) == *column);
            found.map_or_else(|| "-".to_owned(), &cell)
        });
        std::iter::once(of.title().to_owned())
            .chain(cells)
            .collect()
    };
    Grid {
        title: title.to_owned(),
        words: 1,
        headers: std::iter::once(String::new())
            .chain(columns.clone())
            .collect(),
        rows: Mechanism::ALL.map(row).into(),
    }
}

fn with_spread(values: &[f64], digits: usize) -> String {
    let Some((least, most)) = least_and_most(values) else {
        return "-".to_owned();
    };
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    format!("{mean:.digits$} [{least:.digits$}, {most:.digits$}]")
}

fn shares(results: &Results) -> Grid {
    let title = format!(
        "Table 4.2: share of an RT VCPU with 4 ms granted in every 10 ms, %; n = {} windows",
        results.rounds
    );
    by_mechanism(
        &title,
        &results.shares,
        |it| it.mechanism,
        place,
        |it| with_spread(&it.shares_percent, 2),
    )
}

fn paper_shares() -> Grid {
    Grid {
        title: "The dissertation's table 4.2, on hardware, one core: the RT VM's share, %"
            .to_owned(),
        words: 1,
        headers: headers([
            "", "alone", "beside 1", "beside 2", "beside 3", "beside 4", "beside 5",
        ]),
        rows: vec![headers([
            "RT-Xen 2.1",
            "40.3",
            "40.2",
            "40.2",
            "40.2",
            "40.2",
            "40.2",
        ])],
    }
}

fn condition(it: &DomainsResult) -> String {
    let overloaded = if it.overloaded { ", overload" } else { "" };
    format!("{}{overloaded}", it.beside)
}

fn misses(results: &Results) -> Grid {
    let mut rows = Vec::new();
    for mechanism in Mechanism::ALL {
        for it in results
            .domains
            .iter()
            .filter(|it| it.mechanism == mechanism)
        {
            let mut row = vec![mechanism.title().to_owned(), condition(it)];
            row.extend(it.domains.iter().map(missed));
            row.push(format!("{:.1}", it.neighbours_percent));
            rows.push(row);
        }
    }
    Grid {
        title: "Tables 4.3 and 2.2: deadline misses of three domains, (worst response)".to_owned(),
        words: 2,
        headers: headers(["", "", "domain 1", "domain 2", "domain 3", "others %"]),
        rows,
    }
}

fn missed(it: &MissesResult) -> String {
    format!("{}/{} ({:.2})", it.misses, it.jobs, it.worst_response)
}

fn paper_misses() -> Grid {
    let row = |words: [&str; 6]| headers(words);
    Grid {
        title: "The dissertation's, on hardware: table 4.3 (alone, beside 1, beside 2) and 2.2 (overload)".to_owned(),
        words: 2,
        headers: headers(["", "", "1", "2", "3", "4, 5"]),
        rows: vec![
            row(["RT-Xen 2.1", "beside 0 to 2", "0", "0", "", ""]),
            row(["credit", "alone", "0.01 %", "0.5 %", "", ""]),
            row(["credit", "beside 1", "3.4 %", "15.3 %", "", ""]),
            row(["credit", "beside 2", "73.7 %", "40.7 %", "", ""]),
            row(["deferrable", "3 overloaded", "0", "0", "48 %", "0"]),
            row(["credit", "3 overloaded", "100 %", "0", "1.6 %", "0"]),
        ],
    }
}

fn cost(results: &Results) -> Grid {
    let mut rows = Vec::new();
    for mechanism in Mechanism::ALL {
        for it in results
            .domains
            .iter()
            .filter(|it| it.mechanism == mechanism)
        {
            let mut row = vec![
                mechanism.title().to_owned(),
                condition(it),
                with_spread(&it.context_switches_per_s, 0),
            ];
            row.extend(decision(it));
            rows.push(row);
        }
    }
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
        rows,
    }
}

fn decision(it: &DomainsResult) -> [String; 5] {
    let Some(decisions) = &it.decisions else {
        return [(); 5].map(|()| "-".to_owned());
    };
    let us = |ns: Option<u64>| figure(ns.map(|ns| ns as f64 / 1e3));
    // Of the two CPUs while it was measured.
    let share = decisions.total_ns as f64 / 1e9 / (2.0 * it.measured_s) * 100.0;
    [
        decisions.count().to_string(),
        us(decisions.percentile_ns(50.0)),
        us(decisions.percentile_ns(99.0)),
        us(Some(decisions.max_ns)),
        format!("{share:.2}"),
    ]
}

fn paper_cost() -> Grid {
    let row = |words: [&str; 5]| headers(words);
    Grid {
        title: "The dissertation's table 2.1, on hardware: do_schedule, us, and the CPU time lost with it".to_owned(),
        words: 1,
        headers: headers(["", "p50", "p99", "max", "% of a CPU"]),
        rows: vec![
            row(["deferrable", "0.121", "0.250", "5.642", "0.21"]),
            row(["credit", "0.108", "0.328", "0.382", "0.04"]),
        ],
    }
}

fn work(results: &Results) -> Grid {
    let fair = results.work.iter();
    let fair = fair
        .filter(|it| it.mechanism == Mechanism::Fair)
        .find_map(WorkResult::lost_percent);
    let row = |it: &WorkResult| {
        let lost = it.lost_percent();
        let times = lost.zip(fair).filter(|(_, fair)| *fair > 0.0);
        vec![
            it.mechanism.title().to_owned(),
            with_spread(&it.done_percent, 2),
            lost.map_or_else(|| "-".to_owned(), |lost| format!("{lost:.2}")),
            times.map_or_else(
                || "-".to_owned(),
                |(lost, fair)| format!("{:.2}", lost / fair),
            ),
        ]
    };
    Grid {
        title: "CPU time lost to scheduling, all mechanisms on the same load".to_owned(),
        words: 1,
        headers: headers(["", "done %", "lost %", "x stock fair"]),
        rows: results.work.iter().map(row).collect(),
    }
}

fn spent(results: &Results) -> Grid {
    let row = |it: &WorkResult| {
        let mean = it.mean_spent();
        let percent = |of: fn(&Spent) -> f64| {
            mean.as_ref()
                .map_or_else(|| "-".to_owned(), |it| format!("{:.2}", of(it)))
        };
        let per_s = |of: fn(&Spent) -> f64| {
            mean.as_ref()
                .map_or_else(|| "-".to_owned(), |it| format!("{:.0}", of(it)))
        };
        vec![
            it.mechanism.title().to_owned(),
            percent(|it| it.tasks_percent),
            percent(|it| it.loader_percent),
            percent(|it| it.idle_percent),
            percent(|it| 100.0 - it.tasks_percent - it.loader_percent - it.idle_percent),
            percent(|it| it.decisions_percent),
            per_s(|it| it.context_switches_per_s),
            per_s(|it| it.interrupts_per_s),
        ]
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
        rows: results.work.iter().map(row).collect(),
    }
}

fn quanta(results: &Results) -> Grid {
    let loads = results.quanta.first().map_or(&[][..], |it| &*it.misses);
    let loads = loads.iter().map(|(percent, ..)| format!("at {percent} %"));
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
        rows: results.quanta.iter().map(quantum).collect(),
    }
}

fn quantum(it: &QuantumResult) -> Vec<String> {
    let us = |ns: Option<u64>| figure(ns.map(|ns| ns as f64 / 1e3));
    let decisions = it.decisions.as_ref();
    let percentile = |percent| us(decisions.and_then(|them| them.percentile_ns(percent)));
    let mean = steadyvm_stats::mean(it.work_percent.iter().copied());
    let lost = mean.map(|mean| (GRANTED_PERCENT - mean) / GRANTED_PERCENT * 100.0);
    let mut row = vec![
        it.quantum.title(),
        with_spread(&it.context_switches_per_s, 0),
        decisions.map_or_else(|| "-".to_owned(), |them| them.count().to_string()),
        percentile(50.0),
        percentile(99.0),
        with_spread(&it.both_percent, 1),
        with_spread(&it.work_percent, 1),
        figure(lost),
    ];
    let misses = it.misses.iter();
    row.extend(misses.map(|(_, missed, jobs)| format!("{missed}/{jobs}")));
    row
}

fn paper_quanta() -> Grid {
    let row = |words: [&str; 3]| headers(words);
    Grid {
        title: "The dissertation's figure 2.4, on hardware: the first load with a miss, and what is lost of 50 %"
            .to_owned(),
        words: 1,
        headers: headers(["", "load %", "lost %"]),
        rows: vec![
            row(["1 ms", "48", "4"]),
            row(["100 us", "44", "12"]),
            row(["10 us", "30", "40"]),
            row(["1 us", "does not boot", ""]),
        ],
    }
}

fn netrt(results: &Results) -> Grid {
    let plan = results.plan;
    let granted = plan.map_or_else(String::new, |plan| {
        format!(
            ": {} us in every {} us planned for {} us a request, bound {} us",
            plan.budget_us, plan.period_us, plan.execution_us, plan.bound_us
        )
    });
    let row = |it: &NetRtResult| {
        vec![
            it.mechanism.title().to_owned(),
            beside(it.beside),
            it.n.to_string(),
            it.lost.to_string(),
            figure(it.p50_us),
            figure(it.p99_us),
            figure(it.max_us),
            plan.map_or_else(|| "-".to_owned(), |plan| plan.bound_us.to_string()),
            it.over_bound.to_string(),
        ]
    };
    let of = |mechanism| {
        let all = results.netrt.iter();
        all.filter(move |it| it.mechanism == mechanism).map(row)
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
        rows: Mechanism::ALL.into_iter().flat_map(of).collect(),
    }
}

fn beside(it: Beside) -> String {
    it.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vcpu::{Decisions, Plan};

    fn results() -> Results {
        let share = |mechanism, is_vm| ShareResult {
            mechanism,
            is_vm,
            beside: Beside::Computing(4),
            shares_percent: vec![40.0, 39.5],
            neighbours_percent: Some((30.0, 31.0)),
            together_percent: 99.0,
        };
        Results {
            schema_version: 1,
            rounds: 2,
            shares: vec![share(Mechanism::Ext, false), share(Mechanism::Ext, true)],
            domains: vec![DomainsResult {
                mechanism: Mechanism::Ext,
                beside: Beside::Computing(4),
                overloaded: true,
                domains: vec![
                    MissesResult {
                        jobs: 80,
                        misses: 3,
                        worst_response: 1.5,
                    };
                    3
                ],
                neighbours_percent: 20.0,
                context_switches_per_s: vec![900.0, 1100.0],
                decisions: Some(Decisions {
                    up_to_ns: vec![(2000, 99), (4000, 1)],
                    max_ns: 3500,
                    total_ns: 200_000,
                }),
                measured_s: 10.0,
            }],
            netrt: vec![NetRtResult {
                mechanism: Mechanism::Ext,
                beside: Beside::Computing(4),
                n: 100,
                lost: 0,
                p50_us: Some(1500.0),
                p99_us: Some(2500.0),
                max_us: Some(12_000.0),
                over_bound: 1,
            }],
            plan: Some(Plan {
                budget_us: 1250,
                period_us: 5000,
                bound_us: 11_000,
                execution_us: 1000,
            }),
            quanta: vec![QuantumResult {
                quantum: crate::vcpu::Quantum::ALL[2],
                misses: vec![(40, 0, 20), (48, 7, 20)],
                work_percent: vec![44.0, 46.0],
                both_percent: vec![90.0, 92.0],
                context_switches_per_s: vec![2000.0, 2200.0],
                decisions: None,
            }],
            work: vec![
                WorkResult {
                    mechanism: Mechanism::Fair,
                    done_percent: vec![97.0, 99.0],
                    spent: Vec::new(),
                },
                WorkResult {
                    mechanism: Mechanism::Ext,
                    done_percent: vec![96.0, 98.0],
                    spent: vec![Spent {
                        tasks_percent: 91.0,
                        loader_percent: 3.5,
                        ..Spent::default()
                    }],
                },
            ],
            notes: Vec::new(),
        }
    }

    #[test]
    fn every_table_has_its_figures_and_fits() {
        let text = render(&results());
        for part in [
            "39.75 [39.50, 40.00]",
            "VM beside 4",
            "3/80 (1.50)",
            "1000 [900, 1100]",
            "1250 us in every 5000 us planned for 1000 us a request, bound 11000 us",
            "45.0 [44.0, 46.0]",
            " 10.0 ",
            "at 48 %",
            "7/20",
            "97.00 [96.00, 98.00]",
            "91.00   3.50",
            "1.50",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        let too_long = text.lines().find(|line| line.chars().count() > 160);
        assert_eq!(too_long, None);
    }

    #[test]
    fn a_window_is_a_line() {
        let table = windows(&results());
        assert_eq!(table.lines().count(), 5);
        assert!(table.contains("ext,VM beside 4,2,39.5\n"), "{table}");
    }

    #[test]
    fn results_are_read_as_they_were_written() {
        let text = serde_json::to_string(&results()).unwrap();
        assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results());
    }
}
