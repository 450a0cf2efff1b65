//! The end of everything, which ends it for the whole process: one test in a program of its own.

// A test fails by panicking.
#![allow(clippy::unwrap_used)]

use std::process::Command;
use steadyvm_lab::child;

#[test]
fn once_all_children_are_killed_none_can_be_started() {
    let sleeper = || {
        let mut command = Command::new("sleep");
        command.arg("1000");
        child::spawn(command)
    };
    let children = [sleeper().unwrap(), sleeper().unwrap()];
    assert!(!child::all_are_killed());

    child::kill_all();

    assert!(child::all_are_killed());
    for child in &children {
        let its_directory = format!("/proc/{}", child.pid());
        assert!(!std::path::Path::new(&its_directory).exists());
    }
    // Whoever held one sees it end, and may try again at once, as a comparison does.
    let error = sleeper().unwrap_err();
    assert!(error.to_string().contains("about to end"), "{error}");
}
