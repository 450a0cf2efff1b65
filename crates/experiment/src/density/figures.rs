//! Figures of each row by condition: the worst VM, fairness, the stream; of each row: held, admitted, memory.

use super::station::Sample;
use super::{ASKED, Asking, BOUND, CELLS};
use crate::engine::Figures;
use crate::engine::answer::code;
use crate::engine::results::{Figure, Record};
use steadyvm_report::text::figure;
use steadyvm_report::{Answer, Finding, Grid, headers};
use steadyvm_stats::{Summary, mean};

/// The condition that figures of a whole row stand under.
const ALL: &str = "all conditions";

/// Figures and tables of all rows, each with its samples by condition and round.
pub fn of<'s>(
    rows: impl Iterator<Item = (&'static str, Vec<Vec<&'s Sample>>)>,
) -> (Vec<Figure>, Vec<Grid>) {
    let mut figures = Figures::default();
    let mut by_condition = Grid {
        title: "the worst VM, fairness over VMs, and the stream".to_owned(),
        words: 2,
        headers: headers(["", "asked", "worst p99 µs", "fairness", "stream Mbit/s"]),
        rows: Vec::new(),
    };
    let mut asked = Grid {
        title: "with 20 VMs asked (asked for: none late, at most 2, at least 0.9, 0.6 to 1, at most 8, at most 1.5)".to_owned(),
        words: 1,
        headers: headers([
            "",
            "late of n",
            "worst p99/one VM's",
            "stream/one VM's",
            "admitted/held",
            "memory MiB",
            "fairness",
        ]),
        rows: Vec::new(),
    };
    let mut by_row = Grid {
        title: "VMs held and admitted, and a monitor's memory".to_owned(),
        words: 1,
        headers: headers(["", "held", "admitted", "work ms", "memory MiB"]),
        rows: Vec::new(),
    };
    for (row, cells) in rows {
        for (asking, samples) in CELLS.iter().zip(&cells) {
            let (worst_us, fairness) = worst_and_fairness(samples);
            let mbit = samples.iter().map(|it| it.mbit_per_s).sum::<f64>();
            let mbit = mbit / samples.len().max(1) as f64;
            let n = samples.len() as u64;
            figures.at(row, &asking.to_string());
            figures.value("worst p99", "us", n, worst_us);
            figures.value("fairness", "ratio", n, fairness);
            figures.value("stream", "Mbit/s", n, mbit);
            figures.rounds("stream", samples.iter().map(|it| it.mbit_per_s));
            let shown = [worst_us, fairness, Some(mbit)].map(figure);
            let words = [row.to_owned(), asking.0.to_string()];
            by_condition
                .rows
                .push(words.into_iter().chain(shown).collect());
        }
        let held = held(&cells);
        let first = cells.first().and_then(|samples| samples.first());
        let admitted = first.and_then(|sample| sample.admitted);
        let memory = first.map(|sample| sample.monitor_mib);
        figures.at(row, ALL);
        figures.count("held", "VMs", held as u64);
        if let Some(services) = admitted {
            figures.count("admitted", "VMs", services.vms as u64);
            figures.count("work", "us", services.work_us);
        }
        figures.value("memory", "MiB", 1, memory);
        asked.rows.push(beside_targets(
            row,
            &cells,
            (held, admitted.map(|it| it.vms)),
            memory,
        ));
        by_row.rows.push(vec![
            row.to_owned(),
            held.to_string(),
            admitted.map_or_else(|| "-".to_owned(), |it| it.vms.to_string()),
            admitted.map_or_else(
                || "-".to_owned(),
                |it| figure(Some(it.work_us as f64 / 1e3)),
            ),
            figure(memory),
        ]);
    }
    (figures.all(), vec![by_condition, by_row, asked])
}

/// How many VMs each row holds and the plan admits, and p99 with all of them asked.
pub fn answer(record: &Record) -> Answer {
    let of_rows = |name: &'static str, words: &'static str| {
        record.rows.iter().filter_map(move |row| {
            Some(Finding::Bound {
                of: code(row),
                figure: words.to_owned(),
                words: format!("{:.0}", record.at(row, ALL).value(name)?),
                bound: None,
            })
        })
    };
    let answer = ASKED.of_times(record);
    let held = of_rows("held", "VMs of which no reply is late");
    let admitted = of_rows("admitted", "VMs that the plan admits");
    Answer {
        findings: held.chain(admitted).chain(answer.findings).collect(),
        ..answer
    }
}

/// What the targets are of, with all VMs asked: a line.
fn beside_targets(
    row: &str,
    cells: &[Vec<&Sample>],
    (held, admitted): (usize, Option<usize>),
    memory_mib: Option<f64>,
) -> Vec<String> {
    let (first, last) = (cells.first(), cells.last());
    let worst = |cell: Option<&Vec<&Sample>>| worst_and_fairness(cell?).0;
    let stream = |cell: Option<&Vec<&Sample>>| mean(cell?.iter().map(|it| it.mbit_per_s));
    let over = |of: Option<f64>, to: Option<f64>| of.zip(to).map(|(of, to)| of / to);
    let runs = || {
        let samples = last.into_iter().flatten();
        samples.flat_map(|sample| &sample.by_vm)
    };
    let bound_ns = BOUND.as_nanos() as u64;
    let answered: usize = runs().map(|run| run.samples.len()).sum();
    let unanswered: u64 = runs().map(|run| run.counters.lost).sum();
    let after = runs().flat_map(|run| &run.samples);
    let after = after.filter(|it| it.rtt_ns > bound_ns).count() as u64;
    let of_held = admitted
        .filter(|_| held > 0)
        .map(|vms| vms as f64 / held as f64);
    let fairness = last.and_then(|cell| worst_and_fairness(cell).1);
    let mut line = vec![
        row.to_owned(),
        format!("{} of {}", after + unanswered, answered as u64 + unanswered),
    ];
    line.extend(
        [
            over(worst(last), worst(first)),
            over(stream(last), stream(first)),
            of_held,
            memory_mib,
            fairness,
        ]
        .map(|value| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))),
    );
    line
}

/// The largest p99 of a VM in microseconds, and that over the least.
fn worst_and_fairness(samples: &[&Sample]) -> (Option<f64>, Option<f64>) {
    let vms = samples.first().map_or(0, |sample| sample.by_vm.len());
    let p99s: Vec<f64> = (0..vms)
        .filter_map(|vm| {
            let runs = samples.iter().filter_map(|sample| sample.by_vm.get(vm));
            let all: Vec<u64> = runs
                .flat_map(|run| run.samples.iter().map(|it| it.rtt_ns))
                .collect();
            Some(Summary::of(&all)?.p99_ns as f64 / 1e3)
        })
        .collect();
    let worst = p99s.iter().copied().reduce(f64::max);
    let least = p99s.iter().copied().reduce(f64::min);
    (worst, worst.zip(least).map(|(worst, least)| worst / least))
}

/// The most VMs of the conditions up to which every reply of every VM came in time.
fn held(cells: &[Vec<&Sample>]) -> usize {
    let in_time = |samples: &&Vec<&Sample>| {
        let mut runs = samples.iter().flat_map(|sample| &sample.by_vm);
        let bound_ns = BOUND.as_nanos() as u64;
        runs.all(|run| run.counters.lost == 0 && run.samples.iter().all(|it| it.rtt_ns <= bound_ns))
    };
    let kept = cells.iter().take_while(in_time).count();
    kept.checked_sub(1)
        .map_or(0, |last| CELLS.get(last).map_or(0, |Asking(vms)| *vms))
}

#[cfg(test)]
mod tests {
    use super::super::file::Services;
    use super::*;
    use steadyvm_load::netrt::{ClientRun, Counters, EndedBy, Sample as RoundTrip};

    fn run(rtt_us: &[u64], lost: u64) -> ClientRun {
        let samples = (1..).zip(rtt_us).map(|(sequence, us)| RoundTrip {
            sequence,
            sent_ns: sequence * 1_000_000,
            rtt_ns: us * 1000,
        });
        ClientRun {
            samples: samples.collect(),
            counters: Counters {
                lost,
                ..Counters::default()
            },
            ended_by: EndedBy::Done,
            duration_ns: 1,
        }
    }

    fn sample(by_vm: Vec<ClientRun>) -> Sample {
        Sample {
            by_vm,
            mbit_per_s: 100.0,
            monitor_mib: 5.0,
            admitted: Some(Services {
                vms: 24,
                work_us: 3000,
            }),
        }
    }

    #[test]
    fn what_is_held_ends_with_the_first_late_or_lost_reply() {
        let good = sample(vec![run(&[100, 200], 0)]);
        let late_us = BOUND.as_micros() as u64 + 1;
        let late = sample(vec![run(&[100, late_us], 0)]);
        let lost = sample(vec![run(&[100], 1)]);
        let of = |bad: &Sample, at: usize| {
            let cells = (0..CELLS.len()).map(|cell| vec![if cell == at { bad } else { &good }]);
            held(&cells.collect::<Vec<_>>())
        };
        assert_eq!(of(&good, 0), 20);
        assert_eq!(of(&late, 0), 0);
        assert_eq!(of(&late, 3), 5);
        assert_eq!(of(&lost, 1), 1);
    }

    #[test]
    fn the_answer_has_what_is_held_and_admitted() {
        fn cells(one: &Sample) -> Vec<Vec<&Sample>> {
            CELLS.iter().map(|_| vec![one]).collect()
        }
        let of_plan = |admitted| Sample {
            admitted,
            ..sample(vec![run(&[100, 200], 0)])
        };
        let services = Services {
            vms: 18,
            work_us: 3000,
        };
        let samples = [of_plan(None), of_plan(Some(services))];
        let names = ["6.12", "6.12-rt-budgets"];
        let (figures, _) = of(names.into_iter().zip(samples.iter().map(cells)));
        let record = Record {
            rows: names.map(str::to_owned).into(),
            cells: vec![ALL.to_owned()],
            figures,
            ..Record::default()
        };
        let said = answer(&record).in_short();
        let expected = "VMs of which no reply is late: 20 with `6.12` and 20 with `6.12-rt-budgets`; VMs that the plan admits: 18 with \
                        `6.12-rt-budgets`";
        assert!(said.starts_with(expected), "{said}");
    }

    #[test]
    fn the_worst_vm_counts_over_all_rounds() {
        let rounds = [
            sample(vec![run(&[100], 0), run(&[300], 0)]),
            sample(vec![run(&[200], 0), run(&[400], 0)]),
        ];
        let samples: Vec<&Sample> = rounds.iter().collect();
        let (worst, fairness) = worst_and_fairness(&samples);
        assert_eq!((worst, fairness), (Some(400.0), Some(2.0)));
    }

    #[test]
    fn every_row_has_its_figures_and_a_line_in_both_tables() {
        let one = sample(vec![run(&[100, 200], 0)]);
        let cells: Vec<Vec<&Sample>> = CELLS.iter().map(|_| vec![&one]).collect();
        let (figures, tables) = of([("6.12", cells)].into_iter());
        let value = |name: &str| figures.iter().find(|it| it.name == name).unwrap().value;
        assert_eq!(value("held"), Some(20.0));
        assert_eq!(value("admitted"), Some(24.0));
        assert_eq!(value("work"), Some(3000.0));
        assert_eq!(
            (tables[0].rows.len(), tables[1].rows.len()),
            (CELLS.len(), 1)
        );
        let line: Vec<&str> = tables[2].rows[0].iter().map(String::as_str).collect();
        assert_eq!(
            line,
            ["6.12", "0 of 2", "1.00", "1.00", "1.20", "5.00", "1.00"]
        );
    }
}
