//! How payload of outsourced sockets is copied: once, by the host's kernel, where it is large; and
//! what the threshold below which the module copies it, too, is worth. As `tests/lab_sockets.rs`.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

#[path = "support/outsourced.rs"]
#[allow(dead_code, reason = "each test uses a part of it")]
mod outsourced;

use outsourced::{Guest, Lab, PATIENCE};
use std::path::PathBuf;
use std::process::Command;
use steadyvm_latency::bootstrap::{BootstrapOptions, draw_latency, ratio};
use steadyvm_latency::statistics::Summary;

/// The first of the figures that are drawn.
const MEAN: usize = 0;
const BYTES: u64 = 16 << 20;
const GUEST: Guest = Guest {
    vcpus: 2,
    memory_mib: 256,
    namespace: "new",
};
/// The functions by which a kernel copies payload from and to programs, with the argument that says how
/// much.
const COPIES: &str =
    "_copy_to_iter $arg2 _copy_from_iter $arg2 copy_page_to_iter $arg3 copy_page_from_iter $arg3";

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn large_payload_is_copied_once_and_by_the_host() {
    let place = tempfile::tempdir().unwrap();
    let lab = Lab::boot("copies", place.path());
    let program = build(&lab);
    // The second time on the guest's own stack, to see that a copy in the guest would be counted.
    let script = format!(
        "set -e\n\
         ip link set lo up\n\
         mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing\n\
         cd /sys/kernel/tracing\n\
         set -- {COPIES}\n\
         while [ $# -gt 0 ]; do\n\
           echo \"p:copies/$1 $1 bytes=$2:u64\" >> kprobe_events\n\
           echo 'hist:keys=common_pid:vals=bytes if comm == \"copies\"' > events/copies/$1/trigger\n\
           shift 2\n\
         done\n\
         /copies stream {BYTES}\n\
         cat events/copies/*/hist | sed 's/^/outsourced: /'\n\
         echo none > /sys/module/steadyvm_sockets/parameters/policy\n\
         /copies stream {BYTES}\n\
         cat events/copies/*/hist | sed 's/^/both: /'\n"
    );
    lab.upload_guest(&script, &[("/copies", &program)]);
    let host = lab.host.connection();
    let begin = format!(
        "mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing\n\
         cd /sys/kernel/tracing\n\
         echo 20000 > buffer_size_kb\n\
         set -- {COPIES}\n\
         while [ $# -gt 0 ]; do\n\
           echo \"p:copies/$1 $1 bytes=$2:u64\" >> kprobe_events\n\
           shift 2\n\
         done\n\
         echo 'comm ~ \"vcpu*\"' > events/copies/filter\n\
         echo 1 > events/copies/enable\n"
    );
    host.text(&["sh", "-euc", &begin]).unwrap();
    let console = lab.run_guest("/boot/guest-kernel", GUEST, PATIENCE);
    assert_eq!(console.matches("stream whole").count(), 2, "{console}");
    let trace = host.text(&["cat", "/sys/kernel/tracing/trace"]).unwrap();

    let in_host = |function: &str| sum(trace.lines().filter(|line| line.contains(function)));
    // "comm-pid [cpu] flags time: _copy_to_iter: (_copy_to_iter+0x0/0x100) bytes=65536"
    let (received, sent) = (in_host(": _copy_to_iter:"), in_host(": _copy_from_iter:"));
    let pages = in_host(": copy_page_to_iter:") + in_host(": copy_page_from_iter:");
    let in_guest = |title: &str| sum(console.lines().filter(|line| line.starts_with(title)));
    let outsourced = in_guest("outsourced: {");
    let both = in_guest("both: {");
    println!(
        "of {BYTES} bytes each way the host's kernel copied {sent} sent and {received} received, the guest's \
         {outsourced}; on its own stack it would copy {}",
        both - outsourced
    );
    for copied in [sent, received] {
        assert!((BYTES..BYTES + BYTES / 100).contains(&copied), "{copied}");
    }
    assert_eq!(pages, 0);
    assert!(outsourced < BYTES / 100, "{console}");
    assert!(both - outsourced >= 2 * BYTES, "{console}");
}

/// No time is asserted.
#[test]
#[ignore = "needs the lab: make lab-tests"]
fn small_payload_goes_both_ways_and_their_times_are_told() {
    let place = tempfile::tempdir().unwrap();
    let lab = Lab::boot("threshold", place.path());
    let program = build(&lab);
    let script = "/copies threshold /sys/module/steadyvm_sockets/parameters/copy_below 11";
    lab.upload_guest(script, &[("/copies", &program)]);
    let console = lab.run_guest("/boot/guest-kernel", GUEST, PATIENCE);
    for size in ["64", "128", "256", "384", "511"] {
        let rounds = ["512", "0"].map(|below| exchanges(&console, size, below));
        assert!(rounds.iter().all(|rounds| rounds.len() == 10), "{console}");
        let draws = [0, 1].map(|way| {
            let rounds: Vec<&[u64]> = rounds[way].iter().map(Vec::as_slice).collect();
            draw_latency(&rounds, BootstrapOptions::default(), way as u64)
        });
        let [copied, described] = rounds.map(|rounds| Summary::of(&rounds.concat()).unwrap());
        let ratio = ratio(&draws[0], &draws[1], MEAN).unwrap();
        println!(
            "{size} bytes sent and received: n {} of 20 each, copied {:.1} us in the mean, described {:.1}, ratio {:.2} {:.2?}",
            copied.n,
            copied.mean_ns / 1e3,
            described.mean_ns / 1e3,
            ratio.estimate,
            ratio.interval.unwrap(),
        );
    }
}

fn build(lab: &Lab) -> PathBuf {
    let program = lab.place.join("copies");
    let source = "tests/programs/copies.c";
    let built = Command::new("gcc")
        .args([
            "-O2", "-Wall", "-Werror", "-static", "-pthread", source, "-o",
        ])
        .arg(&program)
        .status();
    assert!(built.unwrap().success());
    program
}

/// The samples of each turn but the first, which warms up.
fn exchanges(console: &str, size: &str, below: &str) -> Vec<Vec<u64>> {
    let title = format!("exchanges {size} {below} ");
    let turns = console.lines().filter_map(|line| line.strip_prefix(&title));
    let samples = |turn: &str| turn.split(' ').map(|ns| ns.parse().unwrap()).collect();
    turns.skip(1).map(samples).collect()
}

/// The sum of the numbers behind "bytes=" and "bytes:".
fn sum<'l>(lines: impl Iterator<Item = &'l str>) -> u64 {
    let bytes = |line: &str| -> u64 {
        let (_, number) = line.split_once("bytes").unwrap();
        let number = number.trim_start_matches([':', '=', ' ']);
        let end = number.find(|c: char| !c.is_ascii_digit());
        number[..end.unwrap_or(number.len())].parse().unwrap()
    };
    lines.map(bytes).sum()
}
