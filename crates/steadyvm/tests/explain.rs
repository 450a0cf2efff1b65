//! `steadyvm explain` as a user calls it wrongly; what it measures is tested in the lab.

#![allow(clippy::unwrap_used)] // helpers of tests

use std::process::Command;

#[test]
fn wrong_use_ends_with_2_and_says_what_to_do() {
    for (arguments, said) in [
        (&[][..], "--receive-path"),
        (&["--receive-path"], "--device"),
        (
            &["--receive-path", "--device", "no-such-device"],
            "name one of",
        ),
        (&["--receive-path", "--device", "lo"], "physical interface"),
        (
            &["--receive-path", "--device", "lo", "--port", "5"],
            "cannot be used with",
        ),
        (&["--receive-path", "--port", "0"], "0"),
        (&["--receive-path", "--device", "lo", "--seconds", "0"], "0"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_steadyvm"))
            .arg("explain")
            .args(arguments)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty());
    }
}
