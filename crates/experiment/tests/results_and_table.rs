//! results.json's promised shape, and the table a terminal shows of it.

mod common;

use serde_json::Value;
use steadyvm_experiment::compare::interim::{self, Extent};
use steadyvm_experiment::compare::report::render;
use steadyvm_experiment::compare::{
    BUSY, Intervals, NAME, Phase, RunData, THROUGHPUT, assemble, excludes_one, hgrm_of_method,
    ratio_of, required, service_of, table,
};
use steadyvm_experiment::engine::results::{
    Curve, Figure, Record, ResultsError, from_json_of, to_json,
};
use steadyvm_experiment::testbed::{ExitCost, ExitCosts, GuestCounts, ReceivePathData, Service};
use steadyvm_report::ReportMeta;
use steadyvm_stats::Summary;
use steadyvm_stats::bootstrap::BootstrapOptions;

fn options() -> BootstrapOptions {
    BootstrapOptions {
        replicates: 400,
        seed: 1,
    }
}

/// results.json, read as a comparison's.
fn from_json(text: &str) -> Result<Record, ResultsError> {
    from_json_of(text, NAME, required)
}

/// Every figure over another method's.
fn ratios(record: &Record) -> Vec<&Figure> {
    let figures = record.figures.iter();
    figures.filter(|it| it.over.is_some()).collect()
}

#[test]
fn the_promised_fields_are_there_with_their_names() {
    let results = assemble(&common::comparison(3, 700), options());
    let json: Value = serde_json::from_str(&to_json(&results).unwrap()).unwrap();
    assert_eq!(
        (&json["schema_version"], &json["rounds"]),
        (&5.into(), &3.into())
    );
    assert_eq!(
        json["rows"],
        serde_json::json!(["vanilla", "preempt-rt", "dedicated"])
    );
    assert_eq!(json["cells"], serde_json::json!(["full", "equal", "idle"]));
    let figures = json["figures"].as_array().unwrap();
    let find = |row: &Value, cell: &Value, name: &str| {
        let of = |it: &&Value| (&it["row"], &it["cell"]) == (row, cell) && it["name"] == name;
        let plain = |it: &&Value| of(it) && it.get("over").is_none();
        figures
            .iter()
            .find(plain)
            .unwrap_or_else(|| panic!("no {name} of {row} {cell}"))
    };
    for row in json["rows"].as_array().unwrap() {
        for cell in json["cells"].as_array().unwrap() {
            for name in [
                "n",
                "lost",
                "mean",
                "sd",
                "p50",
                "p90",
                "p99",
                "p99.9",
                "max",
                "host.cpu_busy",
            ] {
                let figure = find(row, cell, name);
                assert!(figure["value"].is_number(), "{figure}");
                assert!(
                    figure["unit"].is_string() && figure["n"].is_u64(),
                    "{figure}"
                );
            }
            assert_eq!(
                find(row, cell, "p99")["rounds"].as_array().unwrap().len(),
                3
            );
            if cell != "idle" {
                assert_eq!(find(row, cell, "netstream.throughput")["unit"], "Mbit/s");
            }
        }
    }
    let ratios: Vec<&Value> = figures
        .iter()
        .filter(|it| it.get("over").is_some())
        .collect();
    assert_eq!(ratios.len(), self::ratios(&results).len());
    for ratio in ratios {
        for value in ["median", "low", "high"] {
            assert!(ratio["interval"][value].is_number(), "{ratio}");
        }
        // What it is over is the same figure of another method under the same condition.
        let over = &ratio["over"];
        let value = |row: &Value| {
            let figure = find(row, &over["cell"], ratio["name"].as_str().unwrap());
            figure["value"].as_f64().unwrap()
        };
        let expected = value(&ratio["row"]) / value(&over["row"]);
        let found = ratio["value"].as_f64().unwrap();
        assert!((found / expected - 1.0).abs() < 1e-9, "{ratio}");
    }
}

#[test]
fn figures_are_exact_and_of_every_sample() {
    let data = common::comparison(3, 700);
    let results = assemble(&data, options());
    for method in &data.methods {
        for phase in Phase::ALL {
            let exact = Summary::of(&method.round_trips_ns(phase).concat()).unwrap();
            let latency = results.at(&method.name, phase.cell());
            assert_eq!((latency.count("n"), exact.n), (2100, 2100));
            assert_eq!(latency.count("lost"), 3);
            let max = latency.value("max");
            assert_eq!(max, Some(exact.max_ns as f64 / 1000.0));
            assert_eq!(latency.value("p99.9"), Some(exact.p999_ns as f64 / 1000.0));
            assert_eq!(latency.value("mean"), Some(exact.mean_ns / 1000.0));
            assert_eq!(latency.value("sd"), exact.sd_ns.map(|sd| sd / 1000.0));
            let is_it = |it: &&Curve| (&*it.row, &*it.cell) == (&*method.name, phase.cell());
            let points = &results.curves.iter().find(is_it).unwrap().points;
            let last = points.last().unwrap();
            assert_eq!((last.0, Some(last.1)), (1.0, max));
            assert!(points.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
        }
        assert!(
            hgrm_of_method(method, Phase::Full)
                .unwrap()
                .contains("Total count    =         2100")
        );
    }
}

#[test]
fn ratios_are_of_each_method_to_those_before_it() {
    let results = assemble(&common::comparison(3, 700), options());
    let pairs = [
        ("preempt-rt", "vanilla"),
        ("dedicated", "vanilla"),
        ("dedicated", "preempt-rt"),
    ];
    for (of, to) in pairs {
        let of_pair: Vec<_> = ratios(&results)
            .into_iter()
            .filter(|it| it.row == of && it.over.as_ref().unwrap().row == to)
            .collect();
        // Mean, SD, p50, p99 in three phases, two rates, three shares of CPU time.
        assert_eq!(of_pair.len(), 4 * 3 + 5, "{of} / {to}");
    }
    assert_eq!(ratios(&results).len(), 3 * 17);
    assert!(
        results
            .notes
            .iter()
            .any(|note| note.contains("netrt.p999_us")),
        "{:?}",
        results.notes
    );

    let pair = ("preempt-rt", "vanilla");
    let mean = ratio_of(&results, pair, Phase::Full, "mean").unwrap();
    let mean_of = |row| results.at(row, "full").value("mean").unwrap();
    let expected = mean_of(pair.0) / mean_of(pair.1);
    assert!((mean.estimate - expected).abs() < 1e-9);
    // The synthetic data's levels: 1.9 ms to 2.6 ms, and fewer bursts.
    assert!(excludes_one(&mean) && mean.high.unwrap() < 0.8, "{mean:?}");
    for pair in pairs {
        let equal = ratio_of(&results, pair, Phase::Equal, THROUGHPUT).unwrap();
        assert!(!excludes_one(&equal), "{equal:?}");
    }
}

#[test]
fn the_same_data_and_seed_give_the_same_results() {
    let data = common::comparison(3, 300);
    assert_eq!(assemble(&data, options()), assemble(&data, options()));
    let other_seed = BootstrapOptions {
        seed: 2,
        ..options()
    };
    assert_ne!(assemble(&data, other_seed), assemble(&data, options()));
}

#[test]
fn five_thousand_samples_have_a_ratio_of_p999() {
    let results = assemble(&common::comparison(2, 2500), options());
    let pair = ("preempt-rt", "vanilla");
    assert!(ratio_of(&results, pair, Phase::Full, "p99.9").is_some());
    assert!(results.notes.is_empty(), "{:?}", results.notes);
}

#[test]
fn one_round_gives_intervals_and_says_what_they_leave_out() {
    let results = assemble(&common::comparison(1, 700), options());
    let ratio = |name| ratio_of(&results, ("preempt-rt", "vanilla"), Phase::Full, name).unwrap();
    let mean = ratio("mean");
    assert!(mean.low.is_some() && mean.high.is_some());
    let paired = Intervals::of(&results).paired_rounds;
    assert_eq!((mean.rounds, paired), (1, 1));
    assert!(
        results
            .notes
            .iter()
            .any(|note| note.contains("one round only"))
    );
    assert!(table::render(&results).contains("within one round"));
    // A single value says nothing of its own variation.
    let busy = ratio(BUSY);
    assert_eq!((busy.low, busy.high), (None, None));
}

#[test]
fn an_interrupted_comparison_uses_the_rounds_every_method_has() {
    let mut data = common::comparison(3, 300);
    data.methods[2].rounds.pop();
    let results = assemble(&data, options());
    assert_eq!(Intervals::of(&results).paired_rounds, 2);
    assert!(
        results
            .notes
            .iter()
            .any(|note| note.contains("vanilla has 3 rounds"))
    );
    assert_eq!(results.at("vanilla", "full").count("n"), 900);

    data.methods[1].rounds.clear();
    let results = assemble(&data, options());
    assert!(ratios(&results).is_empty());
    assert_eq!(results.at("preempt-rt", "full").value("mean"), None);
    assert!(assemble(&RunData::default(), options()).rows.is_empty());
}

#[test]
fn what_was_not_measured_is_null_and_never_a_number() {
    let mut data = common::comparison(2, 300);
    for round in &mut data.methods[1].rounds {
        round.full.netrt.samples.clear();
        round.full.netstream = None;
        round.full.host_cpu_busy_fraction = f64::NAN;
    }
    let results = assemble(&data, options());
    let json: Value = serde_json::from_str(&to_json(&results).unwrap()).unwrap();
    let figures = json["figures"].as_array().unwrap();
    let value = |name: &str| {
        let is_it =
            |it: &&Value| it["row"] == "preempt-rt" && it["cell"] == "full" && it["name"] == name;
        let found = figures
            .iter()
            .find(|it| is_it(it) && it.get("over").is_none());
        &found.unwrap_or_else(|| panic!("no {name}"))["value"]
    };
    assert_eq!(*value("n"), 0.0);
    for name in ["mean", "max", "netstream.throughput", "host.cpu_busy"] {
        assert_eq!(*value(name), Value::Null, "{name}");
    }
    assert!(
        results
            .notes
            .iter()
            .any(|note| note.contains("preempt-rt / vanilla"))
    );
    assert_eq!(from_json(&to_json(&results).unwrap()).unwrap(), results);
}

#[test]
fn other_files_and_versions_are_refused_with_a_reason() {
    for text in ["", "{}", "[true]", "{\"schema_version\":5}", "not json"] {
        let error = from_json(text).unwrap_err();
        assert!(matches!(error, ResultsError::Json(_)), "{error}");
    }
    // The shape that a comparison had for itself, and one to come.
    for found in [1, 6] {
        let text = format!("{{\"schema_version\":{found},\"methods\":[],\"ratios\":[]}}");
        let said = from_json(&text).unwrap_err().to_string();
        let clear = said.contains(&format!("schema_version is {found}"));
        assert!(clear && said.contains("measure again"), "{said}");
    }
    let json = to_json(&assemble(&common::comparison(1, 50), options())).unwrap();
    let without = json.replace("\"p90\"", "\"p91\"");
    let said = from_json(&without).unwrap_err().to_string();
    assert!(
        said.contains("no `p90` of `vanilla` under `full`"),
        "{said}"
    );
}

/// Traced and counted or not: nothing but results.json is needed for what is shown.
#[test]
fn the_table_and_the_report_follow_from_results_json_alone() {
    let mut data = common::comparison(2, 100);
    data.methods[1].rounds[0].idle.guest = Some(GuestCounts {
        requests: 150,
        exits: 300,
        exit_reasons: [("mmio_exits".to_owned(), 60)].into(),
        ..GuestCounts::default()
    });
    data.methods[2].rounds[1].full.receive_path = Some(ReceivePathData {
        wake_ups_ns: (1..50).map(|it| it * 1000).collect(),
        report: "{}".to_owned(),
    });
    data.methods[2].rounds[1].idle.exit_costs = Some(exit_costs(100, [("hlt", 100, 900)]));
    for data in [data, common::comparison(1, 30), RunData::default()] {
        let results = assemble(&data, options());
        let again = from_json(&to_json(&results).unwrap()).unwrap();
        assert_eq!(again, results);
        let shown = |it: &Record| table::render(it) + &render(it, &ReportMeta::default());
        assert_eq!(shown(&again), shown(&results));
    }
}

/// Table 2 of the outsourcing paper has 32.6 µs and 91.8 µs in the mean.
#[test]
fn the_papers_figures_stand_beside_those_of_its_methods() {
    let mut data = common::comparison(1, 50);
    data.service = Service::Vm;
    data.methods[0].name = "preempt-rt".to_owned();
    data.methods[1].name = "outsourcing".to_owned();
    data.methods[2].name = "qemu-sockets".to_owned();
    let results = assemble(&data, options());
    let text = table::render(&results);
    let (_, paper) = text.split_once("The paper, on hardware").unwrap();
    let rows: Vec<Vec<&str>> = paper
        .lines()
        .skip(2)
        .take(2)
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows,
        [
            [
                "preempt-rt",
                "91.8",
                "11.8",
                "120.5",
                "16.0",
                "1.00",
                "1.00",
                "1.00"
            ],
            [
                "outsourcing",
                "32.6",
                "2.8",
                "49.5",
                "18.8",
                "0.36",
                "0.24",
                "0.41"
            ],
        ]
    );
    assert!(!paper.contains("qemu-sockets"));
    assert!(render(&results, &ReportMeta::default()).contains("<td>0.36</td>"));
}

#[test]
fn where_the_loads_were_received_is_said() {
    let data = RunData {
        service: Service::Host,
        ..common::comparison(1, 50)
    };
    let results = assemble(&data, options());
    let json = to_json(&results).unwrap();
    assert!(json.contains("\"service\": \"host\""), "{json}");
    assert_eq!(from_json(&json).unwrap(), results);
    let page = render(&results, &ReportMeta::default());
    for text in [table::render(&results), page.clone()] {
        assert!(text.contains(Service::Host.title()), "{text}");
    }
    assert!(
        !page.contains("The paper, on hardware"),
        "it has none of this"
    );
    let mut older: Value = serde_json::from_str(&json).unwrap();
    older["settings"].as_object_mut().unwrap().remove("service");
    let older = from_json(&older.to_string()).unwrap();
    assert_eq!(service_of(&older), Service::Vm);
}

fn exit_costs<const N: usize>(requests: u64, of: [(&str, u64, u64); N]) -> ExitCosts {
    let cost =
        |(reason, exits, cpu_us): (&str, _, _)| (reason.to_owned(), ExitCost { exits, cpu_us });
    ExitCosts {
        requests,
        reasons: of.map(cost).into(),
    }
}

/// Summed over rounds; the dearest first, and what is rare is left out.
#[test]
fn what_exits_cost_is_shown_by_reason() {
    let mut data = common::comparison(2, 100);
    let of_rounds = [
        exit_costs(
            100,
            [("hlt", 100, 900), ("msr", 400, 2000), ("cpuid", 1, 70)],
        ),
        exit_costs(100, [("hlt", 300, 1500)]),
    ];
    for (round, costs) in data.methods[1].rounds.iter_mut().zip(of_rounds) {
        round.idle.exit_costs = Some(costs);
    }
    let results = assemble(&data, options());
    let at = results.at("preempt-rt", "idle");
    let figures = |reason: &str| {
        let value = |name: &str| at.value(&format!("guest.{name}.{reason}"));
        (value("traced_exits"), value("exit_cpu"))
    };
    assert_eq!(figures("hlt"), (Some(2.0), Some(6.0)));
    assert_eq!(figures("msr"), (Some(2.0), Some(5.0)));
    assert_eq!(figures("cpuid"), (Some(0.005), Some(70.0)));
    assert_eq!(
        results.at("vanilla", "idle").value("guest.exit_cpu.hlt"),
        None
    );
    let text = table::render(&results);
    let rows: Vec<&str> = text
        .lines()
        .filter(|it| it.contains(" hlt ") || it.contains(" msr "))
        .collect();
    let words = |row: &str| {
        row.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        words(rows[0]),
        ["preempt-rt", "hlt", "2.00", "6.00", "12.00"]
    );
    assert_eq!(
        words(rows[1]),
        ["preempt-rt", "msr", "2.00", "5.00", "10.00"]
    );
    assert!(!text.contains("cpuid"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    let page = render(&results, &ReportMeta::default());
    assert!(page.contains("<td>hlt</td><td>2.00</td><td>6.00</td><td>12.00</td>"));
}

/// Counts are summed over rounds and shown a request, where there was a guest.
#[test]
fn what_the_guest_counted_is_shown_a_request() {
    let mut data = common::comparison(2, 100);
    for (round, exits) in data.methods[1].rounds.iter_mut().zip([300, 600]) {
        round.idle.guest = Some(GuestCounts {
            requests: 150,
            network_interrupts: 7,
            network_softirqs: 11,
            timer_interrupts: 30,
            injected_interrupts: 75,
            exits,
            exit_reasons: [("mmio_exits".to_owned(), 60), ("irq_exits".to_owned(), 9)].into(),
        });
    }
    let results = assemble(&data, options());
    let at = |row, cell| results.at(row, cell);
    for none in [at("vanilla", "idle"), at("preempt-rt", "full")] {
        assert!(none.figure("guest.requests").is_none());
    }
    let guest = at("preempt-rt", "idle");
    let count = |name| guest.count(name);
    let counted = (count("guest.requests"), count("guest.network_interrupts"));
    assert_eq!(counted, (300, 14));
    assert_eq!(guest.value("guest.exits"), Some(3.0));
    assert_eq!(guest.value("guest.exits.mmio_exits"), Some(0.4));

    let text = table::render(&results);
    let row = text.lines().find(|line| line.ends_with("2.60")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    let figures = [
        "14", "22", "0.20", "0.50", "3.00", "0.00", "0.40", "0.00", "2.60",
    ];
    assert_eq!(cells, [&["preempt-rt"][..], &figures].concat());
    let page = render(&results, &ReportMeta::default());
    assert!(
        page.contains("<td>14</td><td>22</td><td>0.20</td><td>0.50</td>"),
        "{page}"
    );
    let none = assemble(&common::comparison(2, 100), options());
    assert!(!table::render(&none).contains("softirqs"));
    assert!(!render(&none, &ReportMeta::default()).contains("softirqs"));
}

#[test]
fn the_table_fits_and_shows_every_method_with_n_and_max() {
    let results = assemble(&common::comparison(3, 700), options());
    let text = table::render(&results);
    assert!(
        text.lines()
            .all(|line| line.chars().count() <= steadyvm_report::text::WIDTH),
        "{text}"
    );
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("  vanilla "))
        .collect();
    // Three phases, and traffic.
    assert_eq!(rows.len(), 4, "{text}");
    let max_us = results.at("vanilla", "full").value("max").unwrap();
    let fields: Vec<&str> = rows[0].split_whitespace().collect();
    assert_eq!(fields[..3], ["vanilla", "2100", "3"]);
    assert_eq!(*fields.last().unwrap(), format!("{max_us:.0}"));
    // Three phases and traffic; the mean's ratio and interval come first.
    let ratios: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("  preempt-rt / vanilla "))
        .collect();
    assert_eq!(ratios.len(), 4, "{text}");
    let pair = ("preempt-rt", "vanilla");
    let mean = ratio_of(&results, pair, Phase::Full, "mean").unwrap();
    let (low, high) = (mean.low.unwrap(), mean.high.unwrap());
    let expected = format!("{:.2} [{low:.2}, {high:.2}]*", mean.median);
    assert!(ratios[0].contains(&expected), "{expected} in {}", ratios[0]);
}

#[test]
fn pairs_of_methods_that_differ_in_their_ends_are_told_apart() {
    let mut data = common::comparison(2, 60);
    data.methods[0].name = "preempt-rt-vmm".to_owned();
    data.methods[1].name = "rt-sockets".to_owned();
    let text = table::render(&assemble(&data, options()));
    let pair = "\n  rt-sockets / preempt-rt-vmm\n";
    assert_eq!(text.matches(pair).count(), 4, "{text}");
}

#[test]
fn hostile_names_and_huge_figures_do_not_break_the_table() {
    let mut data = common::comparison(2, 60);
    data.methods[0].name = "\u{1b}[2J\n".to_owned() + &"name".repeat(60);
    data.methods[1].rounds[0].full.netrt.samples[0].rtt_ns = 86_400_000_000_000;
    let text = table::render(&assemble(&data, options()));
    assert!(
        text.lines()
            .all(|line| line.chars().count() <= steadyvm_report::text::WIDTH),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'));
    assert!(text.contains("8.64e10"), "the maximum is not shown: {text}");
    assert!(table::render(&assemble(&RunData::default(), options())).ends_with('\n'));
}

#[test]
fn any_figures_in_results_json_are_shown_without_panic() {
    let json: Value =
        serde_json::from_str(&to_json(&assemble(&common::comparison(2, 60), options())).unwrap())
            .unwrap();
    for (float, integer) in [
        (0.0, 0),
        (-1.0, 1),
        (1e-308, 2),
        (1e308, u64::MAX),
        (f64::MIN, u64::MAX / 3),
    ] {
        let mut changed = json.clone();
        set_numbers(&mut changed, float, integer);
        changed["schema_version"] = 5.into();
        let results = from_json(&changed.to_string()).unwrap();
        let page = render(&results, &ReportMeta::default());
        assert!(
            !page.contains("NaN") && !page.contains("inf\""),
            "with {float} and {integer}"
        );
        assert!(table::render(&results).contains("vanilla"));
    }
}

fn set_numbers(value: &mut Value, float: f64, integer: u64) {
    match value {
        Value::Array(items) => items
            .iter_mut()
            .for_each(|it| set_numbers(it, float, integer)),
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|it| set_numbers(it, float, integer)),
        Value::Number(number) if number.is_u64() => *value = integer.into(),
        Value::Number(_) => *value = float.into(),
        _ => {}
    }
}

#[test]
fn an_interim_table_says_first_and_last_that_it_is_one() {
    let extent = Extent {
        samples: 100,
        rounds: 3,
    };
    let text = interim::render(&common::comparison(2, 33), 2, extent);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "interim: round 2 of 3, n = 67 of 100 per method and phase; the whole table follows"
    );
    assert_eq!(
        lines.last(),
        Some(&"interim: the figures above will change")
    );
    let results = assemble(&common::comparison(2, 33), BootstrapOptions::default());
    assert!(text.contains(&table::render(&results)), "{text}");
    assert!(
        lines.iter().all(|line| line.chars().count() <= 100),
        "{text}"
    );
}

/// Pages in docs/results are not written anew with each change of the code: they keep this form.
#[test]
fn what_is_printed_keeps_its_form() {
    let mut data = common::comparison(3, 700);
    for (round, exits) in data.methods[1].rounds.iter_mut().zip([300, 600]) {
        round.idle.guest = Some(GuestCounts {
            requests: 150,
            network_interrupts: 7,
            network_softirqs: 11,
            timer_interrupts: 30,
            injected_interrupts: 75,
            exits,
            exit_reasons: [("mmio_exits".to_owned(), 60), ("irq_exits".to_owned(), 9)].into(),
        });
    }
    for method in [1, 2] {
        for round in 0..2 {
            let times = (1..500).map(|it| it * 1000 * method as u64 + round as u64);
            data.methods[method].rounds[round].full.receive_path = Some(ReceivePathData {
                wake_ups_ns: times.collect(),
                report: "{}".to_owned(),
            });
        }
    }
    let text = table::render(&assemble(&data, options()));
    assert_eq!(text, include_str!("pages/compare.txt"));
    let own = RunData {
        service: Service::Own,
        ..common::comparison(2, 300)
    };
    let text = table::render(&assemble(&own, options()));
    assert_eq!(text, include_str!("pages/measure.txt"));
}
