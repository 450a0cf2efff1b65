use super::*;
use crate::engine::results::Record;
use crate::engine::results_checks::{require_old_shape_refused, require_shown_from_json};
use steadyvm_load::netrt::{ClientRun, Counters, EndedBy, Sample};
use steadyvm_report::ReportMeta;
use steadyvm_stats::bootstrap::{BootstrapOptions, Ratio};

/// Round trips of 1 ms, those of one level `slower` times as long, every tenth three times that.
fn level(slower: f64, packets_per_s: f64, round: u64) -> LevelData {
    let samples: Vec<Sample> = (0..200)
        .map(|sequence| Sample {
            sequence,
            sent_ns: sequence * 5_000_000,
            rtt_ns: (1e6 * slower * if sequence % 10 == 0 { 3.0 } else { 1.0 }) as u64
                + 1000 * (sequence % 7)
                + round,
        })
        .collect();
    let cost = Cost {
        cpu_busy_fraction: 0.5,
        others_packets_per_s: packets_per_s,
    };
    LevelData {
        round_trips: ClientRun {
            samples,
            counters: Counters {
                lost: 1,
                ..Counters::default()
            },
            ended_by: EndedBy::Done,
            duration_ns: 1,
        },
        round_trips_cost: cost,
        stream: StreamData {
            mbit_per_s: vec![1000.0 / slower, 1010.0 / slower],
            cost,
        },
    }
}

fn configuration(name: &str, slower: f64, packets_per_s: f64) -> RowData<LevelData> {
    let round = |round| {
        let levels = Interference::ALL.map(|it| {
            let senders = it.senders() as f64;
            level(1.0 + senders * slower, senders * packets_per_s, round)
        });
        levels.into()
    };
    RowData {
        name: name.to_owned(),
        rounds: (0..3).map(round).collect(),
    }
}

fn results() -> Record {
    let data = [
        configuration("preempt-rt", 50.0, 100_000.0),
        configuration("rt-poll-list:64", 0.05, 50_000.0),
    ];
    assemble(&data, Endpoints::Vms, BootstrapOptions::default())
}

#[test]
fn figures_are_over_base_of_the_same_configuration() {
    let results = results();
    let plain = |cell| results.at("preempt-rt", cell);
    let levels = |cell| results.at("rt-poll-list:64", cell);
    let heavy = plain("heavy");
    assert_eq!((heavy.count("n"), heavy.count("lost")), (600, 3));
    let near = |ratio: Option<Ratio>, expected: f64| {
        let ratio = ratio.unwrap();
        assert!((ratio.estimate / expected - 1.0).abs() < 0.01, "{ratio:?}");
        let (low, high) = (ratio.low.unwrap(), ratio.high.unwrap());
        assert!(
            low <= ratio.estimate * 1.001 && ratio.estimate <= high * 1.001,
            "{ratio:?}"
        );
    };
    near(heavy.ratio("median"), 151.0);
    near(heavy.ratio("p95"), 151.0);
    near(heavy.ratio("throughput"), 1.0 / 151.0);
    near(levels("heavy").ratio("median"), 1.15);
    near(levels("heavy").ratio("others.round_trips"), 0.5);
    near(levels("light").ratio("others.stream"), 0.5);
    let none = heavy.ratio("others.round_trips");
    assert_eq!(none, None, "it is the first");
    assert_eq!(plain("base").ratio("median"), None, "it is Base");
    assert_eq!(levels("base").ratio("others.stream"), None);
}

#[test]
fn the_table_and_the_report_follow_from_results_json_alone() {
    let results = results();
    require_shown_from_json(&results, required, |it| {
        render(it) + &page(it).html(&ReportMeta::default())
    });
    let json = serde_json::to_string(&results).unwrap();
    for words in [
        r#"{"schema_version":5,"experiment":"rtca","settings":{"endpoints":"vms"},"rounds":3"#,
        r#""cells":["base","light","medium","heavy"]"#,
        r#""cell":"heavy","name":"median","unit":"us","n":600,"value":"#,
        r#""over":{"row":"preempt-rt","cell":"heavy"}"#,
    ] {
        assert!(json.contains(words), "{words}\n{json}");
    }
}

#[test]
fn a_file_of_the_shape_before_is_refused() {
    let old = r#"{"schema_version":1,"endpoints":"vms","rounds":3,"configurations":[],"notes":[]}"#;
    require_old_shape_refused(old);
}

#[test]
fn the_table_has_a_row_a_level_and_fits() {
    let mut results = results();
    results.notes.push("a note".into());
    let text = render(&results);
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest.unwrap() <= 100, "{widest:?}\n{text}");
    for title in ["Base", "Light", "Medium", "Heavy"] {
        let rows = text
            .lines()
            .filter(|line| line.get(16..).is_some_and(|it| it.starts_with(title)));
        assert_eq!(rows.count(), 4, "{title}\n{text}");
    }
    assert!(
        text.contains("151 [") && text.ends_with("note: a note\n"),
        "{text}"
    );
}

#[test]
fn a_level_without_an_answer_is_no_figure_and_no_panic() {
    let mut broken = configuration("vanilla", 1.0, 10.0);
    for round in &mut broken.rounds {
        round[3].round_trips.samples.clear();
        round[3].stream.mbit_per_s.clear();
    }
    let options = BootstrapOptions::default();
    let results = assemble(&[broken], Endpoints::Namespaces, options);
    let heavy = results.at("vanilla", "heavy");
    assert_eq!(heavy.count("n"), 0);
    for name in ["median", "throughput"] {
        assert_eq!(heavy.value(name), None, "{name}");
    }
    for name in ["p95", "throughput"] {
        assert_eq!(heavy.ratio(name), None, "{name}");
    }
    assert!(render(&results).contains('-'));
    let nothing = assemble(&[], Endpoints::Vms, options);
    assert_eq!(nothing.rounds, 0);
    render(&nothing);
    page(&nothing).html(&ReportMeta::default());
}

#[test]
fn the_report_has_plots_and_tables_and_nothing_is_fetched() {
    let data = [
        configuration("<b>", 50.0, 100_000.0),
        configuration("rt-poll-list:64", 0.05, 50_000.0),
    ];
    let results = assemble(&data, Endpoints::Vms, BootstrapOptions::default());
    let meta = ReportMeta {
        title: "rtca & more".into(),
        facts: vec![("Revision".into(), "abc".into())],
        notes: vec!["emulated".into()],
    };
    let page = page(&results).html(&meta);
    assert_eq!(page.matches("class=\"plot\"").count(), 4);
    assert_eq!(page.matches("<td>Heavy</td>").count(), 4);
    assert!(
        page.contains("rtca &amp; more") && page.contains("&lt;b&gt;") && !page.contains("<b><b>")
    );
    assert!(!page.contains("http"), "nothing is fetched");
    assert!(page.ends_with("</html>\n"));
}

/// Pages in docs/results are not written anew with each change of the code: they keep this form.
#[test]
fn what_is_printed_keeps_its_form() {
    let mut results = results();
    results.notes.push("a note".into());
    let page = include_str!("../../tests/pages/rtca.txt");
    assert_eq!(render(&results), page);
}
