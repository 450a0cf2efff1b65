//! What a user gets for wrong use: one message that says what, where and what to do, and the
//! exit code that the documentation promises. None of this needs the lab.

// A test's helper fails by panicking, as the test itself does.
#![allow(clippy::unwrap_used)]

#[path = "../../steadyvm/tests/support/public_copy.rs"]
mod public_copy;

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use steadyvm_methods::Method;

fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steadyvm-lab"));
    command.args(arguments);
    command
}

/// Runs it and checks exit code and every part of the message.
fn refused(mut command: Command, code: i32, parts: &[&str]) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let message = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(code), "{message}");
    assert!(
        stdout.is_empty(),
        "data on standard output: {}",
        String::from_utf8_lossy(&stdout)
    );
    for part in parts {
        assert!(
            message.contains(part),
            "\"{part}\" is missing in: {message}"
        );
    }
}

#[test]
fn an_unknown_method_is_refused_with_the_known_ones() {
    let command = lab(&["compare", "--methods", "vanilla,magic"]);
    let known: Vec<&str> = Method::ALL.into_iter().map(Method::name).collect();
    refused(command, 2, &["magic", &known.join(", ")]);
}

#[test]
fn a_name_that_a_method_or_a_kernel_had_is_told_the_new_one() {
    for (words, name) in [
        (["compare", "--methods", "steadyvm"], "levels-sockets"),
        (
            ["compare", "--methods", "vanilla,no-patch"],
            "profile-sockets",
        ),
        (
            ["compare", "--methods", "preempt-rt@rt-levels"],
            "6.12-rt-patched",
        ),
        (
            ["compare", "--kernel", "rt-levels"],
            "it is called 6.12-rt-patched",
        ),
        (["prepare", "--kernel", "vanilla"], "it is called 6.12"),
        (["shell", "--kernel", "preempt-rt"], "it is called 6.12-rt"),
    ] {
        let old = words[2].rsplit([',', '@']).next().unwrap();
        refused(lab(&words), 2, &[old, name]);
    }
}

#[test]
fn methods_about_guests_are_refused_where_there_are_none() {
    let nisp = ["experiment", "nisp", "--methods", "rt-sockets"];
    refused(lab(&nisp), 2, &["rt-sockets", "on a host it is preempt-rt"]);
}

#[test]
fn zero_samples_or_rounds_are_refused() {
    refused(lab(&["compare", "--samples", "0"]), 2, &["--samples", "0"]);
    refused(lab(&["compare", "--rounds", "0"]), 2, &["--rounds", "0"]);
    let command = lab(&["compare", "--samples", "2", "--rounds", "3"]);
    refused(command, 2, &["one sample a round", "--help"]);
    let command = lab(&["compare", "--rounds", "3", "--boots", "4"]);
    refused(command, 2, &["a round for each", "--boots"]);
}

#[test]
fn options_of_the_other_protocol_are_refused() {
    let nisp = ["experiment", "nisp"];
    for (protocol, option, other) in [
        ("udp", "--stream-s", "tcp"),
        ("tcp", "--rates", "udp"),
        ("tcp", "--seed", "udp"),
        ("tcp", "--peak-up-to", "udp"),
    ] {
        let options = ["--protocol", protocol, option, "2"];
        let command = lab(&[&nisp[..], &options].concat());
        refused(command, 2, &[option, &format!("--protocol {other} only")]);
    }
    let options = ["--protocol", "sctp"];
    let command = lab(&[&nisp[..], &options].concat());
    refused(command, 2, &["sctp", "udp, tcp"]);
    for protocol in ["udp", "tcp"] {
        let options = ["--protocol", protocol, "--rounds", "0"];
        let command = lab(&[&nisp[..], &options].concat());
        refused(command, 2, &["--rounds", "0"]);
    }
}

#[test]
fn too_few_jobs_for_the_rounds_are_refused() {
    let nisp = ["experiment", "nisp"];
    let command = lab(&[&nisp[..], &["--jobs", "11", "--rounds", "4"]].concat());
    refused(command, 2, &["11 jobs in 4 rounds", "3 a round", "--jobs"]);
}

#[test]
fn a_scale_by_which_no_job_makes_sense_is_refused() {
    for scale in ["0", "9", "201", "4294967396"] {
        let command = lab(&["experiment", "nisp", "--scale", scale]);
        refused(command, 2, &["--scale", "10..=200"]);
    }
}

#[test]
fn a_method_about_guests_is_refused_without_guests() {
    let command = lab(&["compare", "--service", "host", "--methods", "rt-sockets"]);
    refused(command, 2, &["rt-sockets", "--service vm", "preempt-rt"]);
}

#[test]
fn a_kernel_that_lacks_what_is_measured_is_refused() {
    let compare = ["compare", "--service", "host", "--methods", "rt-poll-list"];
    let nisp = ["experiment", "nisp", "--methods", "preempt-rt"];
    let rtca = ["experiment", "rtca", "--methods", "rt-poll-list:1"];
    for (options, kernel, parts) in [
        (&compare[..], "6.12-rt", ["no levels", "rt-poll-list"]),
        (
            &compare[..],
            "6.12-patched-debug",
            ["PREEMPT_RT", "rt-poll-list"],
        ),
        (&nisp[..], "6.12", ["PREEMPT_RT", "preempt-rt"]),
        (
            &rtca[..],
            "6.12-patched-debug",
            ["PREEMPT_RT", "rt-poll-list"],
        ),
    ] {
        let command = lab(&[options, &["--kernel", kernel]].concat());
        refused(command, 2, &[&parts[..], &["--kernel"]].concat());
    }
}

#[test]
fn a_kernel_image_that_cannot_be_booted_is_refused_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("vmlinux");
    std::fs::write(&file, "\x7fELF").unwrap();
    let file = file.to_str().unwrap();
    for (options, parts) in [
        (&["--kernel", "./nowhere"][..], ["./nowhere", "bzImage"]),
        (&["--kernel", file], [file, "HdrS"]),
        (&["--kernel", "7.4"], ["7.3-rt", "such as ./bzImage"]),
        (&["--modules", "/"], ["the kernel 6.12-rt", "--kernel ./"]),
        (&["--module", "./a.ko"], ["./a.ko", "No such file"]),
    ] {
        refused(lab(&[&["shell"], options].concat()), 2, &parts);
        let run = [&["run"][..], options, &["--", "true"]].concat();
        refused(lab(&run), 2, &parts);
    }
    // There is nothing to build or fetch of an image.
    let prepare = ["prepare", "--kernel", "./bzImage"];
    refused(lab(&prepare), 2, &["./bzImage", "possible values"]);
}

#[test]
fn a_directory_that_cannot_be_written_is_refused_before_any_work() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let inside = file.path().join("out");
    let inside = inside.to_str().unwrap();
    refused(lab(&["compare", "--out", inside]), 2, &[inside, "--out"]);
}

#[test]
fn a_cache_that_cannot_be_written_is_refused() {
    let out = tempfile::tempdir().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = lab(&["compare", "--out", out.path().to_str().unwrap()]);
    command.env("STEADYVM_CACHE", file.path().join("cache"));
    refused(command, 3, &["cache directory", "STEADYVM_CACHE"]);
}

/// A machine without the kernel's source package: its package manager says so.
#[test]
fn a_missing_kernel_source_is_named_with_what_installs_it() {
    let directory = tempfile::tempdir().unwrap();
    let tools = directory.path().join("tools");
    std::fs::create_dir(&tools).unwrap();
    let script = |name: &str, text: &str| {
        let path = tools.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    script(
        "dpkg-query",
        "#!/bin/sh\necho 'no packages found' >&2\nexit 1\n",
    );
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let mut command = lab(&["prepare"]);
    command
        .env("PATH", path)
        .env("STEADYVM_CACHE", directory.path().join("cache"));
    refused(
        command,
        3,
        &["linux-source-6.12", "not installed", "make setup"],
    );
}

#[test]
fn without_root_the_lab_says_what_it_needs() {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--clear-groups", "--inh-caps=-all"]);
    // The test's own binary lies where nobody may not look: a copy in a public place.
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = public_copy::program_in(directory.path(), env!("CARGO_BIN_EXE_steadyvm-lab"));
    let out = tempfile::tempdir().unwrap();
    std::fs::set_permissions(out.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    command
        .arg(program)
        .arg("compare")
        .arg("--out")
        .arg(out.path());
    refused(command, 3, &["root", "sudo"]);
}
