use super::render_nisp_tcp;
use super::*;
use crate::engine::results::tests::{require_old_shape_refused, require_shown_from_json};
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

fn data(rounds: u64) -> RunData {
    RunData {
        period_us: 30_000,
        execution_us: 12_000,
        deadlines_us: vec![16_000, 30_000],
        methods: vec![MethodData {
            name: "rt-poll-list".into(),
            rounds: (0..rounds).map(round).collect(),
        }],
    }
}

fn results(rounds: u64) -> Results {
    assemble(&data(rounds), BootstrapOptions::default()).unwrap()
}

#[test]
fn the_stream_is_held_against_itself_before_the_jobs() {
    let results = results(3);
    let [method] = &results.methods[..] else {
        panic!("{results:?}");
    };
    let near = |ratio: Option<Ratio>, expected: f64| {
        let ratio = ratio.unwrap();
        assert!((ratio.estimate / expected - 1.0).abs() < 1e-9, "{ratio:?}");
        let (low, high) = (ratio.low.unwrap(), ratio.high.unwrap());
        assert!(low <= ratio.estimate && ratio.estimate <= high, "{ratio:?}");
    };
    near(method.during_to_before, 0.5);
    near(method.after_to_before, 0.75);
    near(method.first_second_to_before, 0.25);
    assert!((method.before.mbit_per_s.unwrap() - 404.0).abs() < 1e-9);
    assert!((method.first_second_mbit_per_s.unwrap() - 101.0).abs() < 1e-9);
    let rounds = &method.after.rounds_mbit_per_s;
    assert!(
        (rounds[2] - 306.0).abs() < 1e-9 && rounds.len() == 3,
        "{rounds:?}"
    );
}

#[test]
fn segments_are_summed_over_rounds_and_shares_are_of_the_sum() {
    let method = &results(3).methods[0];
    let during = &method.during;
    let expected = Segments {
        segments: 3000,
        retransmitted: 300,
        loss_probes: 3,
        timeouts: 6,
    };
    assert_eq!(during.segments, expected);
    assert!((during.retransmitted_fraction.unwrap() - 0.1).abs() < 1e-12);
}

#[test]
fn jobs_of_all_rounds_are_judged_together() {
    let method = &results(2).methods[0];
    let (unloaded, loaded) = (&method.unloaded, &method.loaded);
    assert_eq!(
        (unloaded.punctuality.jobs, loaded.punctuality.jobs),
        (20, 20)
    );
    assert_eq!(unloaded.punctuality.miss_ratios, [0.0, 0.0]);
    // Jobs 5 to 9 of ten take longer than 16 ms.
    assert_eq!(loaded.punctuality.miss_ratios, [0.5, 0.0]);
    assert!((loaded.waited_mean_us - 1500.0).abs() < 1e-9);
    // Without any jitter there is nothing to hold the other against.
    assert_eq!(method.jitter_sd_to_unloaded, None);
}

#[test]
fn what_was_not_measured_is_no_figure_and_no_panic() {
    let mut none = data(2);
    for round in &mut none.methods[0].rounds {
        for stream in [&mut round.before, &mut round.after] {
            stream.mbit_per_s.clear();
            stream.segments = Segments::default();
        }
    }
    let found = assemble(&none, BootstrapOptions::default()).unwrap();
    let method = &found.methods[0];
    assert_eq!(
        (
            method.before.mbit_per_s,
            method.before.retransmitted_fraction
        ),
        (None, None)
    );
    assert_eq!(
        (method.during_to_before, method.first_second_to_before),
        (None, None)
    );
    assert!(render(&found).contains(" - "), "{}", render(&found));
    assert_eq!(assemble(&data(0), BootstrapOptions::default()), None);
    none.methods.clear();
    let nothing = assemble(&none, BootstrapOptions::default()).unwrap();
    render(&nothing);
    render_nisp_tcp(&nothing, &ReportMeta::default());
}

#[test]
fn the_table_and_the_report_follow_from_results_json_alone() {
    let mut results = results(3);
    results.methods[0].jitter_sd_to_unloaded = Some(1.25);
    require_shown_from_json(&results, |it| {
        render(it) + &render_nisp_tcp(it, &ReportMeta::default())
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
    require_old_shape_refused::<Results>(old);
}

#[test]
fn the_table_has_every_phase_with_n_and_fits() {
    let mut results = results(3);
    results.notes.push("a note\u{1b}".into());
    let method = &mut results.methods[0];
    // As many figures as there may be.
    method.loaded.punctuality.response_max_us = 123_456.0;
    method.after.segments.segments = 123_456_789;
    method.after.segments.retransmitted = 12_345_678;
    let text = render(&results);
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
    let mut results = results(3);
    results.methods[0].name = "<b>".into();
    let meta = ReportMeta {
        title: "nisp & more".into(),
        facts: vec![("Revision".into(), "abc".into())],
        notes: vec!["emulated".into()],
    };
    let page = render_nisp_tcp(&results, &meta);
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
