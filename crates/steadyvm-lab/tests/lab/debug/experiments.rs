//! The experiments, short, in hosts whose kernel checks itself (lockdep, KASAN: kernel/config-debug), on which
//! no figure means anything: what counts is that they run to their end and that the kernel reports nothing. They need
//! root, build a kernel first and are slow: `make debug-tests` runs them, one at a time. Guests have their usual
//! kernel: what checks itself is the host's, with its KVM, vhost and taps.

use crate::support::comparison::require_figures;
use crate::support::kernel_log;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use steadyvm_experiment::compare::{self, Phase};
use steadyvm_experiment::engine::results::from_json_of;
use steadyvm_experiment::nisp::{tcp, udp};
use steadyvm_experiment::rtca;
use steadyvm_experiment::testbed::Interference;

/// Jobs of NISP's experiment, each time.
const JOBS: usize = 20;
/// … of 12 ms: no figure means anything here.
const NISP: [&str; 4] = ["experiment", "nisp", "--scale", "100"];
/// Round trips of RTCA's, a configuration and level.
const SAMPLES: u64 = 30;

/// A kernel that checks itself.
struct Kernel {
    name: &'static str,
    /// Methods that can be in force on it: one with the plain path, and the one with levels.
    methods: &'static [&'static str],
    /// The highest rate of bursts in packets a second, where more keep the process that receives them from answering:
    /// without PREEMPT_RT softirqs run before it whatever its priority, and so slow a kernel is then at nothing else.
    bursts_up_to: Option<&'static str>,
    /// What is compared with services of the host. Not `vanilla` under PREEMPT_RT: its service is a normal thread
    /// beside a card's FIFO thread, which on so slow a kernel leaves it less than it needs for a single answer at times.
    compared: &'static [&'static str],
    /// What is compared with services in guests.
    compared_with_guests: &'static [&'static str],
    /// RTCA's configurations between network namespaces.
    configurations: &'static [&'static str],
    /// … and between guests, of which a host has five: two take 4.5 min to boot under PREEMPT_RT.
    configurations_of_guests: &'static [&'static str],
}

impl Kernel {
    fn of_this_run() -> Self {
        match std::env::var("STEADYVM_TEST_KERNEL").as_deref() {
            Err(_) | Ok("6.12-rt-patched-debug") => Self {
                name: "6.12-rt-patched-debug",
                methods: &["vanilla", "rt-poll-list"],
                bursts_up_to: None,
                compared: &["preempt-rt", "rt-poll-list"],
                compared_with_guests: &["preempt-rt", "rt-poll-list", "outsourcing"],
                configurations: &["vanilla", "rt-poll-list:1", "rt-poll-list:64"],
                configurations_of_guests: &["rt-poll-list:1"],
            },
            Ok("6.12-patched-debug") => Self {
                name: "6.12-patched-debug",
                methods: &["vanilla"],
                bursts_up_to: Some("100"),
                compared: &["vanilla"],
                compared_with_guests: &["vanilla"],
                configurations: &["vanilla"],
                configurations_of_guests: &["vanilla"],
            },
            Ok(other) => panic!("STEADYVM_TEST_KERNEL: {other} is no kernel that checks itself"),
        }
    }

    /// Measures in hosts with this kernel; gives the figures.
    fn run(&self, options: &[&str], out: &Path) -> String {
        let done = Command::new(env!("CARGO_BIN_EXE_steadyvm-lab"))
            .args(options)
            .args(["--json", "--kernel", self.name, "--out"])
            .arg(out)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{said}");
        // What a kernel said before it died is lost.
        assert!(!said.contains("booting it again"), "{said}");
        assert!(!said.contains("booting that host again"), "{said}");
        String::from_utf8(done.stdout).unwrap()
    }
}

/// Every host's kernel checked itself until the end, and has reported nothing.
fn require_no_reports(out: &Path, hosts: &[&str]) {
    let logs = out.join("logs");
    for host in hosts {
        let read = |extension: &str| {
            let file = logs.join(format!("{host}.{extension}"));
            fs::read_to_string(&file).unwrap_or_else(|why| panic!("{}: {why}", file.display()))
        };
        let log = read("dmesg");
        if let Some(report) = kernel_log::reports(&log) {
            panic!("{host}: {report}");
        }
        assert!(log.contains("KernelAddressSanitizer initialized"), "{log}");
        let stats = read("lockdep_stats");
        assert!(kernel_log::lockdep_is_on(&stats), "{host}: {stats}");
    }
    let files = fs::read_dir(&logs)
        .unwrap()
        .map(|it| it.unwrap().file_name());
    let names: BTreeSet<String> = files
        .filter_map(|name| Some(name.to_str()?.strip_suffix(".dmesg")?.to_owned()))
        .collect();
    let hosts: BTreeSet<String> = hosts.iter().map(|&host| host.to_owned()).collect();
    assert_eq!(names, hosts, "a host is not looked at");
}

fn lines(out: &Path, file: &str) -> usize {
    let text = fs::read_to_string(out.join(file)).unwrap();
    text.lines().count()
}

#[test]
#[ignore = "needs the lab and a kernel that checks itself: make debug-tests"]
fn nisp_with_bursts_of_udp_runs_without_a_report() {
    let (kernel, out) = (Kernel::of_this_run(), tempfile::tempdir().unwrap());
    let (methods, jobs) = (kernel.methods.join(","), JOBS.to_string());
    let with = ["--methods", &methods];
    let size = ["--jobs", &jobs, "--rounds", "1", "--rates", "2"];
    let bound = kernel.bursts_up_to.map(|rate| ["--peak-up-to", rate]);
    let bound = bound.as_ref().map_or(&[][..], |it| &it[..]);
    let figures = kernel.run(&[&NISP[..], &with, &size, bound].concat(), out.path());
    let written = fs::read_to_string(out.path().join("results.json"));
    assert_eq!(written.unwrap(), figures);
    let results = from_json_of(&figures, udp::NAME, udp::required).unwrap();
    assert_eq!(results.rows, kernel.methods);
    let [alone, rates @ ..] = &results.cells[..] else {
        panic!("{results:?}");
    };
    assert_eq!(rates.len(), 3);
    for name in &results.rows {
        assert!(
            results.at(name, alone).value("peak").unwrap() > 0.0,
            "{name}"
        );
        for rate in rates {
            let jobs = results.at(name, rate).count("n");
            assert_eq!(jobs as usize, JOBS, "{name}, {rate}");
        }
    }
    let count = kernel.methods.len();
    assert_eq!(lines(out.path(), "samples.csv"), 1 + 3 * JOBS * count);
    for file in ["meta.json", "report.html"] {
        let text = fs::read_to_string(out.path().join(file)).unwrap();
        assert!(text.contains("lockdep"), "{file} says no kernel: {text}");
    }
    require_no_reports(out.path(), kernel.methods);
}

#[test]
#[ignore = "needs the lab and a kernel that checks itself: make debug-tests"]
fn nisp_with_a_tcp_stream_runs_without_a_report() {
    let (kernel, out) = (Kernel::of_this_run(), tempfile::tempdir().unwrap());
    let (methods, jobs) = (kernel.methods.join(","), JOBS.to_string());
    let with = ["--methods", &methods];
    let tcp = ["--protocol", "tcp", "--rounds", "1", "--stream-s", "2"];
    let size = ["--jobs", &jobs];
    let figures = kernel.run(&[&NISP[..], &with, &tcp, &size].concat(), out.path());
    let written = fs::read_to_string(out.path().join("results.json"));
    assert_eq!(written.unwrap(), figures);
    let results = from_json_of(&figures, tcp::NAME, tcp::required).unwrap();
    assert_eq!(results.rows, kernel.methods);
    for name in &results.rows {
        for phase in ["before", "during", "after"] {
            let carried = results.at(name, phase).value("throughput").unwrap();
            assert!(carried > 0.0, "{name}, {phase}");
        }
    }
    let count = kernel.methods.len();
    // The jobs without the stream and with it; its seconds before the jobs and after them, and their time.
    assert_eq!(lines(out.path(), "samples.csv"), 1 + 2 * JOBS * count);
    assert_eq!(lines(out.path(), "stream.csv"), 1 + 5 * count);
    for file in ["meta.json", "report.html"] {
        let text = fs::read_to_string(out.path().join(file)).unwrap();
        assert!(text.contains("lockdep"), "{file} says no kernel: {text}");
    }
    require_no_reports(out.path(), kernel.methods);
}

#[test]
#[ignore = "needs the lab and a kernel that checks itself: make debug-tests"]
fn rtca_between_namespaces_runs_without_a_report() {
    let kernel = Kernel::of_this_run();
    // Batches of a method share a host.
    let hosts: &[&str] = match kernel.configurations {
        [alone] => &[alone],
        _ => &["vanilla", "rt-poll-list-batches"],
    };
    rtca_without_a_report(&kernel, "namespaces", kernel.configurations, hosts);
}

#[test]
#[ignore = "needs the lab and a kernel that checks itself: make debug-tests"]
fn rtca_between_guests_runs_without_a_report() {
    let kernel = Kernel::of_this_run();
    let hosts: &[&str] = match kernel.configurations_of_guests {
        ["rt-poll-list:1"] => &["rt-poll-list-batches"],
        plain => plain,
    };
    rtca_without_a_report(&kernel, "vms", kernel.configurations_of_guests, hosts);
}

/// RTCA's experiment, short, on kernels that report nothing.
fn rtca_without_a_report(
    kernel: &Kernel,
    endpoints: &str,
    configurations: &[&str],
    hosts: &[&str],
) {
    let out = tempfile::tempdir().unwrap();
    let (methods, samples) = (configurations.join(","), SAMPLES.to_string());
    let with = ["experiment", "rtca", "--methods", &methods];
    let between = ["--endpoints", endpoints];
    let size = ["--samples", &samples, "--rounds", "1", "--stream-s", "1"];
    let figures = kernel.run(&[&with[..], &between, &size].concat(), out.path());
    let written = fs::read_to_string(out.path().join("results.json"));
    assert_eq!(written.unwrap(), figures);
    let results = from_json_of(&figures, rtca::NAME, rtca::required).unwrap();
    assert_eq!(results.rows, configurations);
    assert_eq!(results.cells, Interference::ALL.map(Interference::key));
    let mut answered = 0;
    for (name, level) in results.places() {
        let at = results.at(name, level);
        let n = at.count("n");
        assert_eq!(n + at.count("lost"), SAMPLES, "{name}, {level}");
        assert!(n > 0, "{name}, {level}");
        answered += n as usize;
    }
    assert_eq!(lines(out.path(), "samples.csv"), 1 + answered);
    require_no_reports(out.path(), hosts);
}

/// A short comparison of methods, with the service in a VM or on the host, on kernels that report nothing.
fn compare_without_a_report(kernel: &Kernel, service: &str, methods: &[&str]) {
    let out = tempfile::tempdir().unwrap();
    let compared = methods.join(",");
    let with = ["compare", "--service", service, "--methods", &compared];
    let size = ["--samples", "150", "--rounds", "1"];
    let figures = kernel.run(&[&with[..], &size].concat(), out.path());
    let written = fs::read_to_string(out.path().join("results.json"));
    assert_eq!(written.unwrap(), figures);
    let results = from_json_of(&figures, compare::NAME, compare::required).unwrap();
    let meta: Value =
        serde_json::from_slice(&fs::read(out.path().join("meta.json")).unwrap()).unwrap();
    assert_eq!(results.rows, methods);
    let mut answered = 0;
    for name in methods {
        require_figures(&results, name);
        for phase in Phase::ALL {
            answered += results.at(name, phase.cell()).count("n") as usize;
        }
        let built = meta["kernels"][name].as_str().unwrap();
        assert!(built.contains("lockdep"), "{built}");
    }
    assert_eq!(lines(out.path(), "samples.csv"), 1 + answered);
    assert!(lines(out.path(), "report.html") > 10);
    require_no_reports(out.path(), methods);
}

#[test]
#[ignore = "needs the lab and a kernel that checks itself: make debug-tests"]
fn a_comparison_of_services_of_the_host_runs_without_a_report() {
    let kernel = Kernel::of_this_run();
    compare_without_a_report(&kernel, "host", kernel.compared);
}

#[test]
#[ignore = "needs the lab and a kernel that checks itself: make debug-tests"]
fn a_comparison_of_services_in_vms_runs_without_a_report() {
    let kernel = Kernel::of_this_run();
    compare_without_a_report(&kernel, "vm", kernel.compared_with_guests);
}
