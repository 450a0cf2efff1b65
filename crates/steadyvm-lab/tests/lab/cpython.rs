//! Python's own tests of sockets in a guest, on its ordinary stack and on outsourced sockets. As
//! `tests/lab/sockets.rs`.

use crate::support::outsourced::{Guest, Lab};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use steadyvm_lab::agent::{Process, Status};

/// Names other modules and classes to run, as `tools/test-cpython` does.
const NAMES_VARIABLE: &str = "STEADYVM_CPYTHON_TESTS";
/// Of their classes every Nth, beginning with the Kth: "K/N".
const PART_VARIABLE: &str = "STEADYVM_CPYTHON_PART";
/// A file that what the guest says is written to as it comes.
const CONSOLE_VARIABLE: &str = "STEADYVM_CPYTHON_CONSOLE";
/// What runs in some minutes even where a processor is emulated.
const SOME: &str = "test.test_socketserver test.test_selectors";
/// Cases whose result differs; docs/design/guest-sockets.md has each one's reason.
const EXCEPTIONS: &[&str] = &[];
/// Both runs together.
const PATIENCE: Duration = Duration::from_secs(4 * 3600);

/// Each case's result, of lines "case NAME: RESULT".
fn results(console: &str) -> BTreeMap<&str, &str> {
    console
        .lines()
        .filter_map(|line| line.strip_prefix("case ")?.rsplit_once(": "))
        .collect()
}

/// What a guest says until it ends.
fn console_of(guest: &Process) -> String {
    let mut live = std::env::var_os(CONSOLE_VARIABLE).map(|file| File::create(file).unwrap());
    let mut console = Vec::new();
    let ended = guest.follow_within(PATIENCE, |_, data| {
        console.extend_from_slice(data);
        if let Some(live) = &mut live {
            live.write_all(data).unwrap();
        }
    });
    let console = String::from_utf8_lossy(&console).replace('\r', "");
    let status = ended.unwrap_or_else(|why| panic!("{why}\n{console}"));
    assert_eq!(status, Status::Exited(0), "{console}");
    console
}

#[test]
#[ignore = "needs the lab: make cpython-tests"]
fn cpython_s_own_tests_see_what_they_see_on_the_ordinary_stack() {
    let place = tempfile::tempdir().unwrap();
    let logs = place.path();
    let names = std::env::var(NAMES_VARIABLE).unwrap_or_else(|_| SOME.to_owned());
    let part = std::env::var(PART_VARIABLE).unwrap_or_else(|_| "1/1".to_owned());
    let lab = Lab::boot_with_programs("cpython", logs);
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let places = ["/etc/passwd", "/etc/group", "/etc/hosts", "/cpython.py"];
    let files = places.map(|place| (place, scripts.join(place.rsplit('/').next().unwrap())));
    let run = |policy| {
        format!(
            "echo {policy} > /sys/module/steadyvm_sockets/parameters/policy\n\
         echo policy {policy}\n\
         python3 /cpython.py --patience 300 --part {part} {names} 2>&1\n\
         echo {policy} took $(cut -d ' ' -f 1 /proc/uptime) s since the boot\n"
        )
    };
    let script = format!("ip link set lo up\n{}{}echo ended", run("none"), run("all"));
    let files: Vec<(&str, &Path)> = files.iter().map(|(to, from)| (*to, &**from)).collect();
    lab.upload_guest(&script, &files);
    let guest = Guest {
        vcpus: 2,
        memory_mib: 512,
        namespace: "new",
    };
    let console = console_of(&lab.start_guest(guest));
    assert!(console.contains("\nended"), "{console}");
    assert!(!console.contains("Call Trace"), "{console}");

    let (ordinary, outsourced) = console.split_once("\npolicy all\n").unwrap();
    assert!(
        ordinary.contains("\nsockets: the guest's own\n"),
        "{console}"
    );
    assert!(outsourced.starts_with("sockets: outsourced\n"), "{console}");
    let (ordinary, outsourced) = (results(ordinary), results(outsourced));
    let passed = ordinary.values().filter(|result| **result == "ok").count();
    println!(
        "{passed} of {} cases pass on the ordinary stack",
        ordinary.len()
    );
    let mut counts = BTreeMap::new();
    for result in ordinary.values() {
        *counts.entry(*result).or_insert(0) += 1;
    }
    println!("all of them: {counts:?}");
    for line in console
        .lines()
        .filter(|line| line.ends_with("since the boot"))
    {
        println!("{line}");
    }
    // The smallest of the modules has 27 that do.
    assert!(passed > 20, "{console}");
    let cases: BTreeSet<&str> = ordinary.keys().chain(outsourced.keys()).copied().collect();
    let differ = |case: &&str| ordinary.get(*case) != outsourced.get(*case);
    let different: Vec<&str> = cases.iter().copied().filter(differ).collect();
    let expected: Vec<&str> = EXCEPTIONS
        .iter()
        .copied()
        .filter(|case| cases.contains(case))
        .collect();
    let told = different.iter().map(|case| {
        let [ordinary, outsourced] = [&ordinary, &outsourced].map(|results| results.get(case));
        format!("{case}: {ordinary:?} on the ordinary stack, {outsourced:?} outsourced\n")
    });
    let told: String = told.collect();
    assert_eq!(different, expected, "{told}");
}
