//! What is written for a collector, read by one: Debian's prometheus-node-exporter, in a network namespace of its own.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use steadyvm_sched::exposition::Format;
use steadyvm_sched::show::{DecisionTimes, GuestReport, Standing, VcpuStanding};

/// Starts the exporter, and asks it once it listens. With the shell all else of its process namespace ends.
const ASK: &str = r#"
ip link set lo up
mkfifo "$1/log" && exec 3<> "$1/log"
prometheus-node-exporter --web.listen-address=127.0.0.1:9100 --collector.disable-defaults --collector.textfile \
  --collector.textfile.directory="$1/metrics" 2>&3 &
while read -r line <&3; do
  case "$line" in *"Listening on"*) break ;; esac
done
curl -sSf http://127.0.0.1:9100/metrics
"#;

/// What the exporter makes of files, by their names.
fn exported(files: &[(&str, &str)]) -> String {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("metrics");
    fs::create_dir(&directory).unwrap();
    for (name, text) in files {
        fs::write(directory.join(name), text).unwrap();
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--net", "--pid", "--fork"]);
    unshare.args(["--kill-child", "timeout", "60", "bash", "-euc", ASK, "ask"]);
    let done = unshare.arg(place.path()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "tools/set-up for-tests? {said}");
    String::from_utf8(done.stdout).unwrap()
}

/// A VCPU and a guest of which all is known.
fn standing() -> Standing {
    let mut vcpu: VcpuStanding = serde_json::from_value(serde_json::json!({
        "vm": "we\"b\\\n", "vcpu": 1, "tid": 77, "alive": true, "server": "cbs", "budget_ns": 4_000_000,
        "period_ns": 10_000_000, "used_ns": 1_500_000_000, "preemptions": 4, "migrations": 5,
    }))
    .unwrap();
    let counted = [
        &mut vcpu.period_used_ns,
        &mut vcpu.last_period_used_ns,
        &mut vcpu.periods,
        &mut vcpu.short_periods,
        &mut vcpu.unexplained_periods,
        &mut vcpu.waited_ns,
        &mut vcpu.throttled_ns,
        &mut vcpu.throttles,
    ];
    for counter in counted {
        *counter = Some(3);
    }
    vcpu.guest = Some(GuestReport {
        jobs: 50,
        misses: 2,
    });
    Standing {
        attached: true,
        decisions: DecisionTimes {
            up_to_ns: vec![(1000, 3), (2000, 1)],
            max_ns: 1500,
            total_ns: 3600,
        },
        vcpus: vec![vcpu],
        ..Standing::nothing()
    }
}

fn top(format: &str, file: &Path) -> String {
    let words = [
        "top",
        "--once",
        "--interval",
        "0.1",
        "--format",
        format,
        "--out",
    ];
    let mut top = Command::new(env!("CARGO_BIN_EXE_steadyvm"));
    let done = top.args(words).arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    fs::read_to_string(file).unwrap()
}

/// Lines of a text that begin so.
fn lines<'t>(text: &'t str, start: &str) -> BTreeSet<&'t str> {
    text.lines()
        .filter(|line| line.starts_with(start))
        .collect()
}

#[test]
fn node_exporter_takes_all_of_what_top_writes_for_it() {
    let place = tempfile::tempdir().unwrap();
    let of_top = top("prometheus", &place.path().join("steadyvm.prom"));
    let of_sched = standing().metrics(Format::Prometheus);
    let files = [("steadyvm.prom", &*of_top), ("sched.prom", &*of_sched)];
    let exported = exported(&files);
    assert!(
        exported.contains("\nnode_textfile_scrape_error 0\n"),
        "{exported}"
    );
    let written = of_top.clone() + &of_sched;
    // Words and types are taken over as they are written; values may be written in another way.
    for start in ["# HELP steadyvm_", "# TYPE steadyvm_"] {
        assert_eq!(lines(&exported, start), lines(&written, start));
    }
    let names = |text| -> Vec<String> {
        let name = |line: &str| line.split(['{', ' ']).next().unwrap().to_owned();
        let mut names: Vec<String> = lines(text, "steadyvm_").into_iter().map(name).collect();
        names.sort();
        names
    };
    assert_eq!(names(&exported), names(&written));
    let counter = "steadyvm_vcpu_used_seconds_total{vcpu=\"1\",vm=\"we\\\"b\\\\\\n\"} 1.5\n";
    assert!(exported.contains(counter), "{exported}");
    assert!(exported.contains("# TYPE steadyvm_vcpu_used_seconds_total counter\n"));
}

/// Why there are two forms.
#[test]
fn node_exporter_takes_nothing_of_an_open_metrics_file_of_top() {
    let place = tempfile::tempdir().unwrap();
    let text = top("openmetrics", &place.path().join("steadyvm.prom"));
    let exported = exported(&[("steadyvm.prom", &text)]);
    assert!(
        exported.contains("\nnode_textfile_scrape_error 1\n"),
        "{exported}"
    );
    assert!(lines(&exported, "steadyvm_").is_empty());
}
