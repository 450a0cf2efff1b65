//! The lab's program and that of hosts: two files of one build.

// A test's helper fails by panicking, as the test itself does.
#![allow(clippy::unwrap_used)]

#[path = "lab/support/host_program.rs"]
mod host_program;
#[path = "../../steadyvm/tests/support/public_copy.rs"]
mod public_copy;

use std::path::Path;
use std::process::Command;

const LAB: &str = env!("CARGO_BIN_EXE_steadyvm-lab");

/// The build that a program says it is of.
fn build(program: &Path) -> String {
    let output = Command::new(program).arg("--version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let build = text.lines().find_map(|line| line.strip_prefix("build "));
    build.unwrap().to_owned()
}

#[test]
fn both_programs_say_their_build() {
    assert_eq!(build(Path::new(LAB)), build(&host_program::host_program()));
}

/// The laboratory is opened by root alone; without root, that is what is said.
#[test]
fn without_the_program_of_hosts_nothing_is_booted() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let alone = public_copy::program_in(directory.path(), LAB);
    let done = Command::new(alone)
        .args(["run", "--", "true"])
        .env("STEADYVM_CACHE", directory.path().join("cache"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(3), "{said}");
    assert!(said.contains("it is not there; build both"), "{said}");
}
