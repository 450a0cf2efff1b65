use super::figures::{ALONE, RECEIVED};
use super::*;
use crate::engine::results::{Interval, Record};
use crate::engine::results_checks::{require_old_shape_refused, require_shown_from_json};
use crate::engine::rounds::RowData;
use proptest::prelude::*;
use steadyvm_load::job::{Done, Ran};
use steadyvm_report::ReportMeta;
use steadyvm_stats::bootstrap::BootstrapOptions;
use steadyvm_stats::bootstrap::Ratio;

/// Jobs that are released every 30 ms and take so many milliseconds.
fn jobs(responses_ms: &[u64]) -> Ran {
    let done = |(number, response_ms): (usize, &u64)| Done {
        released_ns: number as u64 * 30_000_000,
        finished_ns: (number as u64 * 30 + response_ms) * 1_000_000,
    };
    Ran {
        done: responses_ms.iter().enumerate().map(done).collect(),
        waited_ns: responses_ms.len() as u64 * 1_500_000,
    }
}

fn rate(responses_ms: &[u64], packets_per_s: f64) -> RateData {
    RateData {
        ran: jobs(responses_ms),
        sent_packets_per_s: packets_per_s,
        received_packets_per_s: 0.9 * packets_per_s,
        cpu_busy_fraction: 0.5,
    }
}

/// Of 21 jobs: eleven of the shorter time and ten of the longer one, in turn.
fn alternating(shorter_ms: u64, longer_ms: u64) -> Vec<u64> {
    let times = [shorter_ms, longer_ms].into_iter().cycle();
    times.take(21).collect()
}

/// A method whose unloaded jobs take 11 and 13 ms in turn. With 1,000 packets a second, of which it gets
/// nine in ten times `receives`, they take 18 ms less and more `apart_ms`.
fn method(name: &str, apart_ms: u64, receives: f64, rounds: u64) -> RowData<RateData> {
    let round = |_| {
        let mut loaded = rate(&alternating(18 - apart_ms, 18 + apart_ms), 1000.0);
        loaded.received_packets_per_s *= receives;
        let mut alone = rate(&[], 0.0);
        alone.received_packets_per_s = 990.0 * receives;
        vec![rate(&alternating(11, 13), 0.0), loaded, alone]
    };
    RowData {
        name: name.into(),
        rounds: (0..rounds).map(round).collect(),
    }
}

fn data_of(first: &str, rounds: u64) -> RunData {
    RunData {
        times: Times {
            period_us: 30_000,
            execution_us: 12_000,
            deadlines_us: [16_000, 30_000],
        },
        asked_packets_per_s: vec![0.0, 1000.0],
        alone_asked_packets_per_s: 2000.0,
        peaks_packets_per_s: vec![1000.0, 750.0],
        methods: vec![
            method(first, 4, 1.0, rounds),
            method("rt-poll-list", 1, 0.75, rounds),
        ],
    }
}

fn data(rounds: u64) -> RunData {
    data_of("vanilla", rounds)
}

/// The conditions without packets and with 1,000 a second.
const UNLOADED: &str = "0 packets/s";
const LOADED: &str = "1000 packets/s";

fn results(rounds: u64) -> Record {
    assemble(&data(rounds), BootstrapOptions::default()).unwrap()
}

fn require_near(ratio: Option<Ratio>, expected: f64) {
    let ratio = ratio.unwrap();
    assert!((ratio.estimate / expected - 1.0).abs() < 1e-9, "{ratio:?}");
    let (low, high) = (ratio.low.unwrap(), ratio.high.unwrap());
    let room = 1.0 + 1e-9;
    assert!(
        low <= room * ratio.estimate && ratio.estimate <= room * high,
        "{ratio:?}"
    );
}

/// By hand: between the finishes of vanilla's jobs there are 32 and 28 ms in turn without packets, 38 and 22
/// with them, 20 times a round and nothing from one round to the next. So of two rounds all 40 deviate by 2
/// or 8 ms from 30.
#[test]
fn jobs_are_held_against_those_without_packets() {
    let results = results(2);
    let [unloaded, loaded] = [UNLOADED, LOADED].map(|cell| results.at("vanilla", cell));
    assert_eq!((unloaded.count("n"), loaded.count("n")), (42, 42));
    let bessel = (40.0_f64 / 39.0).sqrt();
    for (at, jitter_us) in [(unloaded, 2000.0), (loaded, 8000.0)] {
        let found = at.value("jitter_sd").unwrap();
        assert!((found - jitter_us * bessel).abs() < 1e-6);
    }
    require_near(loaded.ratio("jitter_sd"), 4.0);
    require_near(
        loaded.ratio("response_mean"),
        (11.0 * 14.0 + 10.0 * 22.0) / (11.0 * 11.0 + 10.0 * 13.0),
    );
    // Those of 22 ms.
    let missed = ["missed_16_ms", "missed_30_ms"].map(|name| loaded.count(name));
    assert_eq!(missed, [20, 0]);
    let shares = ["missed_share_16_ms", "missed_share_30_ms"].map(|name| loaded.value(name));
    assert_eq!(shares, [Some(20.0 / 42.0), Some(0.0)]);
    assert!((loaded.value("waited_mean").unwrap() - 1500.0).abs() < 1e-9);
    for name in ["jitter_sd", "response_mean"] {
        let none = unloaded.ratio(name);
        assert_eq!(none, None, "it is what the others are held against");
    }
}

#[test]
fn what_is_received_is_held_against_the_first_method() {
    let results = results(3);
    let other = |cell| results.at("rt-poll-list", cell);
    let received = other(LOADED).value(RECEIVED).unwrap();
    assert!((received - 675.0).abs() < 1e-9);
    let rounds = other(LOADED).rounds(RECEIVED);
    assert!(rounds.len() == 3 && rounds.iter().all(|it| (it - 675.0).abs() < 1e-9));
    require_near(other(LOADED).ratio(RECEIVED), 0.75);
    assert_eq!(other(UNLOADED).ratio(RECEIVED), None, "nothing was sent");
    require_near(other(ALONE).ratio(RECEIVED), 0.75);
    assert!((other(ALONE).value(RECEIVED).unwrap() - 742.5).abs() < 1e-9);
    assert_eq!(other(ALONE).rounds(RECEIVED).len(), 3);
    for cell in [ALONE, LOADED] {
        let none = results.at("vanilla", cell).ratio(RECEIVED);
        assert_eq!(none, None, "it is the first");
    }
    assert_eq!(results.setting("peak_packets_per_s"), Some(1000.0));
    assert_eq!(results.rounds, 3);
}

#[test]
fn a_rate_without_three_jobs_in_any_round_or_without_data_is_no_result() {
    let options = BootstrapOptions::default;
    let mut short = data(2);
    short.methods[1].rounds[0][1].ran.done.truncate(2);
    let found = assemble(&short, options()).unwrap();
    let jobs = found.at("rt-poll-list", LOADED).count("n");
    assert_eq!(jobs, 21, "the other round's");
    short.methods[1].rounds[1][1].ran.done.truncate(2);
    assert_eq!(assemble(&short, options()), None);
    let mut missing = data(2);
    missing.methods[0].rounds[1].pop();
    assert_eq!(assemble(&missing, options()), None);
    assert_eq!(assemble(&data(0), options()), None);
    let mut nothing = data(1);
    nothing.methods.clear();
    let nothing = assemble(&nothing, options()).unwrap();
    page(&nothing).text();
    page(&nothing).html(&ReportMeta::default());
}

#[test]
fn the_table_and_the_report_follow_from_results_json_alone() {
    let results = results(3);
    require_shown_from_json(&results, required, |it| {
        page(it).text() + &page(it).html(&ReportMeta::default())
    });
    let json = serde_json::to_string(&results).unwrap();
    for field in [
        r#"{"schema_version":5,"experiment":"nisp-udp","#,
        r#""rounds":3,"#,
        r#""name":"n","unit":"jobs","n":63,"value":63.0,"#,
        r#""name":"waited_mean","unit":"us","n":63,"value":1500.0,"#,
        r#""name":"missed_16_ms","unit":"jobs","n":30,"value":30.0,"#,
    ] {
        assert!(json.contains(field), "{field}\n{json}");
    }
}

#[test]
fn a_file_of_the_shape_before_is_refused() {
    let old =
        r#"{"schema_version":4,"period_us":1,"execution_us":1,"deadlines_us":[],"methods":[]}"#;
    require_old_shape_refused(old);
}

#[test]
fn the_table_has_a_row_a_rate_and_fits() {
    let mut results = results(3);
    results.notes.push("a note\u{1b}".into());
    let text = page(&results).text();
    let rows = |text: &str, start: &str| {
        let rows = text.lines().filter(|line| line.starts_with(start));
        rows.count()
    };
    // Once in each of the three tables.
    assert_eq!(
        (rows(&text, "vanilla "), rows(&text, "rt-poll-list ")),
        (3, 3),
        "{text}"
    );
    assert!(
        text.contains(" 30 47.6% "),
        "misses and their share\n{text}"
    );
    assert!(text.contains("0.75 [0.75, 0.75]"), "{text}");
    assert!(text.ends_with("note: a note\u{fffd}\n"), "{text}");
    // As many figures as there may be.
    for it in &mut results.figures {
        match (&*it.unit, &*it.name) {
            ("packets/s", _) => it.value = Some(999_999.0),
            ("us", "response_p99" | "response_max") => it.value = Some(123_456.0),
            ("jobs", _) => it.value = Some(100_000.0),
            ("fraction", name) if name.starts_with("missed") => it.value = Some(0.999),
            ("ratio", _) => {
                it.value = Some(1.2);
                it.interval = Some(Interval {
                    median: 1.2,
                    low: Some(0.2),
                    high: Some(1234.0),
                });
            }
            _ => {}
        }
    }
    let text = page(&results).text();
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest.unwrap() <= 100, "{widest:?}\n{text}");
}

#[test]
fn the_report_has_a_plot_a_figure_and_nothing_is_fetched() {
    let results = assemble(&data_of("<b>", 3), BootstrapOptions::default()).unwrap();
    let meta = ReportMeta {
        title: "nisp & more".into(),
        facts: vec![("Revision".into(), "abc".into())],
        notes: vec!["emulated".into()],
    };
    let page = page(&results).html(&meta);
    // Mean, p99, two deadlines, jitter, received; a line a method in each.
    assert_eq!(page.matches("class=\"plot\"").count(), 6);
    assert_eq!(page.matches("<polyline").count(), 12);
    assert!(page.contains("over unloaded (dashed: target 1.5)</h3>"));
    assert_eq!(page.matches("<line class=\"one\"").count(), 1);
    assert!(page.contains("Jobs that missed the deadline of 16 ms"));
    // A peak, and two rates in each of two tables.
    assert_eq!(
        page.matches("<th scope=\"row\">rt-poll-list</th>").count(),
        5
    );
    assert!(page.contains("nisp &amp; more") && page.contains("<th scope=\"row\">&lt;b&gt;</th>"));
    assert!(!page.contains("<b><b>") && !page.contains("http"));
    assert!(page.ends_with("</html>\n"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever was measured: no panic, ratios are those of the figures, all is shown and survives JSON.
    #[test]
    fn any_data_are_judged_and_shown(
        responses_ms in prop::collection::vec(prop::collection::vec(0_u64..1000, 0..8), 12),
        received in prop::collection::vec(0.0_f64..1e6, 12),
    ) {
        let mut data = data(3);
        let mut measured = responses_ms.iter().zip(received);
        for rounds in data.methods.iter_mut().flat_map(|it| &mut it.rounds) {
            // The last one is without jobs.
            for rate in rounds.iter_mut().take(2) {
                let (responses_ms, received) = measured.next().unwrap();
                rate.ran = jobs(responses_ms);
                rate.received_packets_per_s = received;
            }
        }
        let options = BootstrapOptions { replicates: 200, seed: 1 };
        let Some(found) = assemble(&data, options) else { return Ok(()) };
        for row in &found.rows {
            let [unloaded, loaded] = [UNLOADED, LOADED].map(|cell| found.at(row, cell));
            if let Some(ratio) = loaded.ratio("jitter_sd") {
                let exact = loaded.value("jitter_sd").unwrap() / unloaded.value("jitter_sd").unwrap();
                prop_assert!((ratio.estimate / exact - 1.0).abs() < 1e-6, "{ratio:?} {exact}");
            }
        }
        let shown = page(&found);
        prop_assert!(!shown.html(&ReportMeta::default()).contains("NaN"));
        let json = serde_json::to_string(&found).unwrap();
        let again: Record = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(page(&again).text(), shown.text());
    }
}

/// Pages in docs/results are not written anew with each change of the code: they keep this form.
#[test]
fn what_is_printed_keeps_its_form() {
    let mut results = results(3);
    results.notes.push("a note".into());
    let written = include_str!("../../../tests/pages/nisp-udp.txt");
    assert_eq!(page(&results).text(), written);
}
