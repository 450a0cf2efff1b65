#![allow(clippy::float_cmp)] // these are exact by construction

use super::figures::{AFTER, BEFORE, DURING, FIRST_SECOND, LOADED, THROUGHPUT, UNLOADED};
use super::*;
use crate::engine::results::{At, Figure, Record};
use crate::engine::results_checks::{require_old_shape_refused, require_shown_from_json};
use steadyvm_load::job::{Done, Ran};
use steadyvm_report::ReportMeta;
use steadyvm_stats::bootstrap::BootstrapOptions;
use steadyvm_stats::bootstrap::Ratio;

/// Ten jobs of 12 ms every 30 ms, number n of them `later_ms` · n longer.
fn jobs(later_ms: u64) -> Ran {
    let done = |number| Done {
        released_ns: number * 30_000_000,
        finished_ns: number * 30_000_000 + 12_000_000 + number * later_ms * 1_000_000,
    };
    Ran {
        done: (0..10).map(done).collect(),
        waited_ns: 15_000_000,
    }
}

fn stream(mbit_per_s: &[f64], retransmitted: u64) -> StreamData {
    StreamData {
        mbit_per_s: mbit_per_s.to_vec(),
        durations_s: vec![1.0; mbit_per_s.len()],
        segments: Segments {
            segments: 1000,
            retransmitted,
            loss_probes: 1,
            timeouts: retransmitted / 50,
        },
    }
}

/// A round, whose throughput differs a little from the others'.
fn round(number: u64) -> RoundData {
    let by = 1.0 + number as f64 / 100.0;
    RoundData {
        unloaded: jobs(0),
        before: stream(&[390.0 * by, 410.0 * by], 0),
        loaded: jobs(1),
        during: stream(&[200.0 * by], 100),
        after: stream(&[100.0 * by, 500.0 * by], 2),
    }
}

const NAME: &str = "rt-poll-list";
const TIMES: Times = Times {
    period_us: 30_000,
    execution_us: 12_000,
    deadlines_us: [16_000, 30_000],
};

fn data(name: &str, rounds: u64) -> RowData<RoundData> {
    RowData {
        name: name.into(),
        rounds: (0..rounds).map(|number| vec![round(number)]).collect(),
    }
}

fn figures(data: &[RowData<RoundData>]) -> Option<Record> {
    assemble(data, &TIMES, BootstrapOptions::default())
}

fn results(rounds: u64) -> Record {
    figures(&[data(NAME, rounds)]).unwrap()
}

#[test]
fn the_stream_is_held_against_itself_before_the_jobs() {
    let results = results(3);
    let at = |phase| results.at(NAME, phase);
    let near = |ratio: Option<Ratio>, expected: f64| {
        let ratio = ratio.unwrap();
        assert!((ratio.estimate / expected - 1.0).abs() < 1e-9, "{ratio:?}");
        let (low, high) = (ratio.low.unwrap(), ratio.high.unwrap());
        assert!(low <= ratio.estimate && ratio.estimate <= high, "{ratio:?}");
    };
    near(at(DURING).ratio(THROUGHPUT), 0.5);
    near(at(AFTER).ratio(THROUGHPUT), 0.75);
    near(at(FIRST_SECOND).ratio(THROUGHPUT), 0.25);
    assert!((at(BEFORE).value(THROUGHPUT).unwrap() - 404.0).abs() < 1e-9);
    assert!((at(FIRST_SECOND).value(THROUGHPUT).unwrap() - 101.0).abs() < 1e-9);
    let rounds = at(AFTER).rounds(THROUGHPUT);
    assert!(
        (rounds[2] - 306.0).abs() < 1e-9 && rounds.len() == 3,
        "{rounds:?}"
    );
}

#[test]
fn segments_are_summed_over_rounds_and_shares_are_of_the_sum() {
    let results = results(3);
    let during = results.at(NAME, DURING);
    for (name, sum) in [
        ("segments", 3000),
        ("retransmitted", 300),
        ("loss_probes", 3),
        ("timeouts", 6),
    ] {
        assert_eq!(during.count(name), sum, "{name}");
    }
    let share = during.value("retransmitted_share").unwrap();
    assert!((share - 0.1).abs() < 1e-12);
}

#[test]
fn jobs_of_all_rounds_are_judged_together() {
    let results = results(2);
    let [unloaded, loaded] = [UNLOADED, LOADED].map(|load| results.at(NAME, load));
    assert_eq!((unloaded.count("n"), loaded.count("n")), (20, 20));
    let shares =
        |at: At| ["missed_share_16_ms", "missed_share_30_ms"].map(|name| at.value(name).unwrap());
    assert_eq!(shares(unloaded), [0.0, 0.0]);
    // Jobs 5 to 9 of ten take longer than 16 ms.
    assert_eq!(shares(loaded), [0.5, 0.0]);
    let waited = loaded.value("waited_mean").unwrap();
    assert!((waited - 1500.0).abs() < 1e-9);
    // Without any jitter there is nothing to hold the other against.
    assert!(loaded.over("jitter_sd").is_none());
}

#[test]
fn what_was_not_measured_is_no_figure_and_no_panic() {
    let mut none = data(NAME, 2);
    for round in none.rounds.iter_mut().flatten() {
        for stream in [&mut round.before, &mut round.after] {
            stream.mbit_per_s.clear();
            stream.segments = Segments::default();
        }
    }
    let found = figures(&[none]).unwrap();
    let before = found.at(NAME, BEFORE);
    for name in [THROUGHPUT, "retransmitted_share"] {
        assert_eq!(before.value(name), None, "{name}");
    }
    for phase in [DURING, FIRST_SECOND] {
        assert_eq!(found.at(NAME, phase).ratio(THROUGHPUT), None, "{phase}");
    }
    let text = page(&found).text();
    assert!(text.contains(" - "), "{text}");
    assert_eq!(figures(&[data(NAME, 0)]), None);
    let nothing = figures(&[]).unwrap();
    page(&nothing).text();
    page(&nothing).html(&ReportMeta::default());
}

#[test]
fn the_table_and_the_report_follow_from_results_json_alone() {
    let mut uneven = data(NAME, 3);
    for round in uneven.rounds.iter_mut().flatten() {
        round.unloaded.done[4].finished_ns += 1_000_000;
    }
    let results = figures(&[uneven]).unwrap();
    assert!(results.at(NAME, LOADED).over("jitter_sd").is_some());
    require_shown_from_json(&results, required, |it| {
        page(it).text() + &page(it).html(&ReportMeta::default())
    });
    let json = serde_json::to_string(&results).unwrap();
    for field in [
        r#"{"schema_version":5,"experiment":"nisp-tcp","#,
        r#""cell":"during","name":"retransmitted","unit":"segments","n":300,"value":300.0,"#,
    ] {
        assert!(json.contains(field), "{field}\n{json}");
    }
}

#[test]
fn a_file_of_the_shape_before_is_refused() {
    let old =
        r#"{"schema_version":1,"period_us":1,"execution_us":1,"deadlines_us":[],"methods":[]}"#;
    require_old_shape_refused(old);
}

#[test]
fn the_table_has_every_phase_with_n_and_fits() {
    let mut results = results(3);
    results.notes.push("a note\u{1b}".into());
    // As many figures as there may be.
    let largest = [
        (LOADED, "response_max", 123_456.0),
        (AFTER, "segments", 123_456_789.0),
        (AFTER, "retransmitted", 12_345_678.0),
    ];
    for (cell, name, value) in largest {
        let is_it = |it: &&mut Figure| it.cell == cell && it.name == name;
        results.figures.iter_mut().find(is_it).unwrap().value = Some(value);
    }
    let text = page(&results).text();
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest.unwrap() <= 100, "{widest:?}\n{text}");
    for label in [
        "unloaded",
        "loaded",
        "before",
        "during",
        "after",
        "1st second",
    ] {
        let rows = text.lines().filter(|line| {
            let label_of = line.get(13..).unwrap_or_default();
            label_of.starts_with(&format!("{label} "))
        });
        assert_eq!(rows.count(), 1, "{label}\n{text}");
    }
    assert_eq!(
        text.matches("rt-poll-list").count(),
        2,
        "once a table\n{text}"
    );
    assert!(text.contains("loaded   30 16.50"), "{text}");
    assert!(text.ends_with("note: a note\u{fffd}\n"), "{text}");
}

#[test]
fn the_report_has_a_plot_and_every_row_and_nothing_is_fetched() {
    let results = figures(&[data("<b>", 3)]).unwrap();
    let meta = ReportMeta {
        title: "nisp & more".into(),
        facts: vec![("Revision".into(), "abc".into())],
        notes: vec!["emulated".into()],
    };
    let page = page(&results).html(&meta);
    assert_eq!(page.matches("class=\"plot\"").count(), 1);
    for label in [
        "unloaded",
        "loaded",
        "before",
        "during",
        "after",
        "1st second",
    ] {
        assert_eq!(
            page.matches(&format!("<td>{label}</td>")).count(),
            1,
            "{label}"
        );
    }
    assert!(page.contains("nisp &amp; more") && page.contains("<th scope=\"row\">&lt;b&gt;</th>"));
    assert!(!page.contains("<b>") && !page.contains("http"));
    assert!(page.ends_with("</html>\n"));
}

/// Pages in docs/results are not written anew with each change of the code: they keep this form.
#[test]
fn what_is_printed_keeps_its_form() {
    let mut uneven = data("other", 3);
    for round in uneven.rounds.iter_mut().flatten() {
        for job in &mut round.unloaded.done {
            job.finished_ns += job.released_ns % 7_000_000;
        }
        round.unloaded.waited_ns = 5;
    }
    let mut results = figures(&[data(NAME, 3), uneven]).unwrap();
    results.notes.push("a note".into());
    let written = include_str!("../../../tests/pages/nisp-tcp.txt");
    assert_eq!(page(&results).text(), written);
}
