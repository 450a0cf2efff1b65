//! What the reader takes and refuses, and where it says a fault is.

#![allow(clippy::unwrap_used)] // helpers of tests

use proptest::prelude::*;
use steadyvm_config::page::markdown;
use steadyvm_config::{DropIn, File, Random, Request, Simulate, untyped};

fn refusal(text: &str) -> String {
    File::parse("f.toml", text).unwrap_err().to_string()
}

/// The keys of a section of the page, in its order.
fn described(heading: &str) -> Vec<String> {
    let page = markdown();
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let names = rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
    names.map(str::to_owned).collect()
}

/// A text with the key `zz` in a table, which no table has, and the section that describes the table.
const TABLES: [(&str, &str); 17] = [
    ("Top level", "zz = 1"),
    ("`[host]`", "[host]\nzz = 1"),
    ("`[host.overheads]`", "[host.overheads]\nzz = 1"),
    ("`[[vm]]` and `[class.NAME]`", "[[vm]]\nzz = 1"),
    ("`[[vm]]` and `[class.NAME]`", "[class.a]\nzz = 1"),
    ("`period` as a range", "[[vm]]\nperiod = { zz = 1 }"),
    ("`tasks`", "[[vm]]\ntasks = [{ zz = 1 }]"),
    ("`[[service]]`", "[[service]]\nzz = 1"),
    ("`receive`", "[[service]]\nvm = \"a\"\nreceive = { zz = 1 }"),
    ("`send`", "[[service]]\nvm = \"a\"\nsend = { zz = 1 }"),
    ("`[[flow]]`", "[[flow]]\nzz = 1"),
    ("`[net]`", "[net]\nzz = 1"),
    ("`[net.demux]`", "[net.demux]\nzz = 1"),
    ("`levels`", "[net.demux]\nlevels = [{ zz = 1 }]"),
    ("`[kernel]`", "[kernel]\nzz = 1"),
    ("`[[nic]]`", "[[nic]]\nzz = 1"),
    ("`queues`", "[[nic]]\nqueues = [{ zz = 1 }]"),
];

/// The same of files of their own.
const OWN: [(&str, &str); 6] = [
    ("`steer`", "[[nic]]\nsteer = [{ zz = 1 }]"),
    ("`[[host_service]]`", "[[host_service]]\nzz = 1"),
    ("simulate.toml", "zz = 1"),
    ("Random task sets", "zz = 1"),
    ("`periods`", "periods = { zz = 1 }"),
    ("`columns`", "columns = [{ zz = 1 }]"),
];

/// What reads the file that has a section's keys, says.
fn refusal_of(heading: &str, text: &str) -> String {
    match heading {
        "simulate.toml" => Simulate::parse("f.toml", text).unwrap_err().to_string(),
        "Random task sets" | "`periods`" | "`columns`" => {
            Random::parse("f.toml", text).unwrap_err().to_string()
        }
        _ => refusal(text),
    }
}

/// Nobody has to ask for a table: a file without `[host]` is as strict as one with it.
#[test]
fn an_unknown_key_is_an_error_with_its_line_in_every_table_and_the_page_has_the_known_ones() {
    for (heading, text) in TABLES.into_iter().chain(OWN) {
        let said = refusal_of(heading, text);
        let line = text.lines().count();
        assert!(
            said.starts_with(&format!("f.toml line {line} column ")),
            "{said}"
        );
        let (_, list) = said
            .split_once("unknown field `zz`, expected ")
            .unwrap_or_else(|| panic!("{said}"));
        let list = list.split(';').next().unwrap();
        let mut expected: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
        let mut described = described(heading);
        expected.sort_unstable();
        described.sort();
        assert_eq!(described, expected, "{heading}");
    }
}

#[test]
fn a_fault_of_a_value_is_at_the_value() {
    for (text, place, what) in [
        (
            "[[vm]]\nname = \"a\"\n  budget = \"2 months\"\n",
            "line 3 column 12",
            "a time such as",
        ),
        (
            "[host]\nscheduler = \"cfs\"\n",
            "line 2 column 13",
            "unknown variant `cfs`, expected one of `pedf`",
        ),
        (
            "[host]\nenforce = 7\n",
            "line 2 column 11",
            "expected a word: auto",
        ),
        (
            "\n[[service]]\nlimit = \"4ms\"\n",
            "line 2 column 1",
            "missing field `vm`",
        ),
        (
            "[[vm]]\nname = 1979-05-27\n",
            "line 2 column 8",
            "date or time 1979-05-27",
        ),
        ("[[vm]\n", "line 1 column 6", ""),
        (
            "[class.a]\ntap_batch = 65\n",
            "line 2 column 13",
            "65 is not one of 1 to 64",
        ),
        (
            "[[vm]]\nuser = [-1]\n",
            "line 2 column 8",
            "a user by name or number",
        ),
        (
            "[[host]]\npcpus = 1\n",
            "line 1 column 1",
            "expected an object that describes a host",
        ),
        ("\nnet = []\n", "line 2 column 7", "invalid type: sequence"),
        (
            "[net]\nbudget_packets = 99999999999999999999\n",
            "line 2 column 18",
            "too large",
        ),
        ("\u{feff}zz = 1\n", "line 1 column 1", "unknown field"),
    ] {
        let said = refusal(text);
        assert!(
            said.starts_with(&format!("f.toml {place}: ")),
            "{text}: {said}"
        );
        assert!(said.contains(what), "{text}: {said}");
    }
}

#[test]
fn vms_of_several_files_keep_the_places_of_their_own() {
    let owners = File::parse("owner", "\n[[vm]]\nname = \"own\"\n").unwrap();
    let one = DropIn::parse("one", "[[vm]]\nname = \"a\"\n").unwrap();
    let two = DropIn::parse("two", "# b\n\n[[vm]]\nname = \"b\"\nunit = \"b.service\"\n").unwrap();
    let all = owners.with([&one, &two]);
    assert_eq!(all.vm_names().collect::<Vec<_>>(), ["own", "a", "b"]);
    let places: Vec<String> = all.vm.iter().map(|vm| vm.place.to_string()).collect();
    assert_eq!(
        places,
        [
            "owner line 2 column 1",
            "one line 1 column 1",
            "two line 3 column 1"
        ]
    );
    let unit = all.vm[2].unit.as_ref().unwrap();
    assert_eq!(unit.place.to_string(), "two line 5 column 8");
}

#[test]
fn a_file_beside_the_owners_has_vms_alone() {
    for (text, place) in [
        ("[host]\n", "line 1 column 2"),
        ("[[vm]]\n[net]\n", "line 2 column 2"),
        ("vm = 1", "line 1 column 1"),
    ] {
        let said = DropIn::parse("d", text).unwrap_err().to_string();
        assert!(
            said.starts_with(&format!("d {place}: ")) && said.contains("[[vm]] tables"),
            "{said}"
        );
    }
    let said = DropIn::parse("d", "[[vm]]\ncpuz = [1]\n")
        .unwrap_err()
        .to_string();
    assert!(
        said.starts_with("d line 2 column 1: unknown field `cpuz`"),
        "{said}"
    );
}

/// JSON requests have the same tables; their readers say places themselves.
#[test]
fn the_same_tables_are_read_from_json() {
    let of = |text: &str| serde_json::from_str::<Request>(text).map(Request::into_file);
    for list in ["vms", "vm"] {
        let text = format!(r#"{{"{list}": [{{"name": "a", "tasks": [{{"c": 1, "t": 2}}]}}]}}"#);
        let file = of(&text).unwrap();
        assert_eq!(file.vm_names().collect::<Vec<_>>(), ["a"]);
        assert_eq!(file.vm[0].place.line, 0);
    }
    for wrong in ["[]", r#"{"random": {}}"#, r#"{"simulate": {}}"#] {
        assert!(of(wrong).is_err(), "{wrong}");
    }
}

/// Who writes 2000 means microseconds, or not; a text says it.
#[test]
fn a_time_is_a_text_in_every_table() {
    for (text, place, instead) in [
        ("[host]\nquantum = 1000000", "line 2 column 11", "\"1ms\""),
        (
            "[host.overheads]\ndecision = 3_000",
            "line 2 column 12",
            "\"3us\"",
        ),
        ("[[vm]]\nbudget = 2000000", "line 2 column 10", "\"2ms\""),
        ("[[vm]]\nperiod = 10", "line 2 column 10", "\"10ns\""),
        ("[[vm]]\nperiod = 1.5", "line 2 column 10", "\"10ms\""),
        (
            "[[vm]]\nperiod = { from = 1 }",
            "line 2 column 19",
            "\"1ns\"",
        ),
        ("[[vm]]\ntasks = [{ c = 0 }]", "line 2 column 16", "\"0ns\""),
        ("[[service]]\nsend = 5", "line 2 column 8", "\"5ns\""),
        ("[[flow]]\njitter = 0x10", "line 2 column 10", "\"16ns\""),
        ("[net]\nbudget_time = 2000", "line 2 column 15", "\"2us\""),
        (
            "[kernel]\nfair_server = 500000",
            "line 2 column 15",
            "\"500us\"",
        ),
    ] {
        let said = refusal(text);
        let expected = format!("f.toml {place}: a time is a text with its unit; write {instead}");
        assert_eq!(said, expected, "{text}");
    }
    let said = Simulate::parse("f.toml", "duration = 7")
        .unwrap_err()
        .to_string();
    assert!(
        said.starts_with("f.toml line 1 column 12: a time is a text"),
        "{said}"
    );
    let said = Random::parse("f.toml", "vcpu_periods = [7]")
        .unwrap_err()
        .to_string();
    assert!(
        said.starts_with("f.toml line 1 column 17: a time is a text"),
        "{said}"
    );
}

/// One word for one thing: a key has one row, and a name that several tables share is of this list.
#[test]
fn the_page_names_each_key_once() {
    /// Names of things that several tables have; each table has its own.
    const SHARED: [&str; 31] = [
        "name",
        "class",
        "vm",
        "task",
        "tasks",
        "c",
        "d",
        "t",
        "jitter",
        "on",
        "level",
        "packet",
        "batch",
        "interrupt",
        "from",
        "to",
        "step",
        "queue",
        "mac",
        "cpus",
        "nic",
        "host",
        "scheduler",
        // Of a service its parts of the way in, of a VM what they may cost.
        "receive",
        // A service of the host has them as a VM does.
        "unit",
        "user",
        "budget",
        "period",
        // Of rules that a card sorts by, and of frames that a program sorts.
        "ethertype",
        "vlan",
        "pcp",
    ];
    let page = markdown();
    // Files of their own: what they say is not the host's.
    let (own, _) = page.split_once("\n## simulate.toml\n").unwrap();
    let mut rows: Vec<(&str, &str)> = Vec::new();
    for section in own.split("\n## ").skip(1) {
        let heading = section.lines().next().unwrap();
        let keys = section.lines().filter_map(|line| line.strip_prefix("| `"));
        rows.extend(keys.map(|row| (row.split('`').next().unwrap(), heading)));
    }
    rows.sort_unstable();
    assert!(rows.len() > 80, "{rows:?}");
    for pair in rows.windows(2) {
        let ((key, one), (next, other)) = (pair[0], pair[1]);
        if key == next {
            assert_ne!(one, other, "{key} has two rows");
            assert!(SHARED.contains(&key), "{key} is in {one} and in {other}");
        }
    }
    for word in ["server", "enforce", "quantum", "deadline", "rcu", "vhost"] {
        let places = rows.iter().filter(|(key, _)| *key == word);
        assert_eq!(places.count(), 1, "{word}");
    }
}

/// One reader: no other crate reads TOML, but for another file (`vmm`: vm.toml, `calibration`: calibration.toml), and what writes cases of a test (`sim`).
#[test]
fn no_other_crate_reads_the_file_as_text() {
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut readers = Vec::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        let path = entry.unwrap().path();
        let Ok(manifest) = std::fs::read_to_string(path.join("Cargo.toml")) else {
            continue;
        };
        let used = manifest.split("[dev-dependencies]").next().unwrap();
        if used.lines().any(|line| line.starts_with("toml")) {
            readers.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    readers.sort();
    assert_eq!(readers, ["calibration", "config", "sim", "vmm"]);
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC*", words in prop::collection::vec(
        prop::sample::select(vec!["[host]", "[[vm]]", "[class.a]", "name = 'a'", "period = '1ms'", "cpus = [1]", "user = 1",
            "[sched]", "[sched.vm.a]", "budget_us = 1", "[net]", "[[nic]]", "zz = 1", "vm = {}", "unit = \"\u{fc}\"", "}", "\u{feff}"]), 0..8)) {
        let lines = words.join("\n");
        for text in [text.as_str(), lines.as_str()] {
            let _ = (File::parse("f", text), DropIn::parse("f", text), untyped::<serde_json::Value>(text));
            let _ = (Simulate::parse("f", text), Random::parse("f", text));
        }
    }
}
