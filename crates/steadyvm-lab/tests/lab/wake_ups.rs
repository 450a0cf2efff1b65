//! The two ways to wake a VCPU for a socket (`crates/vmm/examples/wake_ups.rs`), measured in
//! the emulated host.

use crate::support::shared;
use std::path::Path;
use std::process::Command;

/// No time is asserted, but that both ways wake, every time.
#[test]
#[ignore = "needs the lab: make lab-tests"]
fn both_ways_wake_a_vcpu_and_their_times_are_told() {
    let place = tempfile::tempdir().unwrap();
    let lab = shared::lab(place.path());
    let words = "build --release --locked -p steadyvm-vmm --example wake_ups";
    let built = Command::new(env!("CARGO"))
        .args(words.split(' '))
        .status()
        .unwrap();
    assert!(built.success());
    let program = Path::new(env!("CARGO_BIN_EXE_steadyvm-lab"))
        .with_file_name("examples")
        .join("wake_ups");
    lab.upload(&program, "/tmp/wake_ups");
    lab.host.ip("link set lo up").unwrap();
    let said = lab.host.connection().text(&["/tmp/wake_ups"]).unwrap();
    println!("{said}");
    for what in ["wait: n 1000,", "halt: n 1000,", "wait / halt, mean: "] {
        assert!(said.contains(what), "{said}");
    }
}
