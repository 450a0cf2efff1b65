//! Who acts on a host knows of each other: `apply`, `undo`, `watch` and `measure`, in a place of their own on this machine.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

#[path = "support/place.rs"]
mod place;

use place::printed;

const WATCH: &str = r#"
watch() { "$S" watch /run/site.toml 2> /run/watched & watch=$!; await is 64; }
told() { await grep -q "$1" /run/watched; }
look() { kill -HUP $watch; }
"#;

fn with_a_watch(script: &str) -> String {
    printed(&format!("{WATCH}{script}"))
}

#[test]
fn a_second_watch_is_refused_and_names_the_first() {
    let said = with_a_watch(
        r#"watch; code "$S" watch /run/site.toml
        grep -o "another .steadyvm watch. runs (process $watch, /run/site.toml)" /run/said
        kill $watch; code wait $watch
        echo 99 > /proc/sys/net/core/netdev_budget; watch; kill $watch; code wait $watch"#,
    );
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "2", "{said}");
    assert!(lines[1].contains("another"), "{said}");
    // The next one is taken: SIGTERM ends it well.
    assert_eq!(lines[2..], ["0", "0"], "{said}");
}

#[test]
fn an_undo_under_a_watch_holds_until_the_next_apply() {
    let said = with_a_watch(
        r#"watch; code "$S" undo; grep -o "steadyvm watch. (process $watch" /run/said
        look; told 'keeping off: .steadyvm undo'; setting
        code "$S" status /run/site.toml; grep -o 'watches and hooks keep off' /run/said
        # After its death, too.
        kill -KILL $watch; code wait $watch
        "$S" watch /run/site.toml 2> /run/watched & watch=$!
        told 'keeping off'; setting
        code "$S" apply /run/site.toml; setting
        echo 99 > /proc/sys/net/core/netdev_budget
        look; await is 64; told 'going on'
        code "$S" status /run/site.toml; kill $watch"#,
    );
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[1].starts_with("steadyvm watch"), "{said}");
    let expected = [
        "0",
        lines[1],
        "300",
        "1",
        "watches and hooks keep off",
        "137",
        "300",
        "0",
        "64",
        "0",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn what_a_watch_would_take_back_is_refused() {
    let said = with_a_watch(
        r#"watch; printf '[net]\nbudget_packets = 65\n' > /run/other.toml
        code "$S" apply /run/other.toml; grep -o 'would take this back' /run/said
        code "$S" apply --method vanilla; setting
        code "$S" apply /run/site.toml; code "$S" apply --dry-run /run/other.toml; kill $watch"#,
    );
    assert_eq!(said, "2\nwould take this back\n2\n64\n0\n0\n");
}

#[test]
fn what_is_measured_nobody_changes_and_undo_can_end_it() {
    let said = printed(
        r#"serve; "$S" apply /run/site.toml >&2
        "$S" "${MEASURE[@]}" --rounds 2 --samples 1000000 > /run/measured 2>&1 & run=$!
        await is 300
        code "$S" apply /run/site.toml; grep -o "process $run, 10.99.7.1:7700" /run/said
        code "$S" undo; setting
        code "$S" apply --dry-run /run/site.toml
        code "$S" undo --end-measure --wait 60; setting
        code wait $run; code "$S" apply /run/site.toml; setting"#,
    );
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[1].contains("10.99.7.1:7700"), "{said}");
    let expected = ["3", lines[1], "3", "300", "0", "0", "300", "137", "0", "64"];
    assert_eq!(lines, expected);
}

/// Nothing is to be held where nothing is in force and nobody keeps anything so.
#[test]
fn an_undo_of_nothing_holds_nothing() {
    let said = with_a_watch(r#"code "$S" undo; watch; setting; kill $watch"#);
    assert_eq!(said, "0\n64\n");
}

#[test]
fn nothing_is_calibrated_into_a_measurement() {
    let said = printed(
        r#"mkdir -p /run/steadyvm/host; lock=/run/steadyvm/host/measure.lock; echo 1 > $lock
        code flock $lock "$S" calibrate --seconds 1 --out /run/calibration.toml
        grep -o "steadyvm measure. runs" /run/said; ls /run/calibration.toml 2>&1 | grep -o 'No such'"#,
    );
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "3", "{said}");
    assert!(lines[1].starts_with("steadyvm measure"), "{said}");
    assert_eq!(lines[2..], ["No such"], "{said}");
}

#[test]
fn packets_of_a_vm_that_does_not_run_are_refused_before_anything_is_measured() {
    let said = printed(
        r#"code "$S" calibrate --receive web --seconds 1 --out /run/calibration.toml
        grep -o "does not run" /run/said; ls /run/calibration.toml 2>&1 | grep -o 'No such'"#,
    );
    assert_eq!(said, "2\ndoes not run\nNo such\n");
}
