//! Tests in the emulated host. They need root and what `steadyvm lab prepare` builds, and take
//! minutes: `make lab-tests` runs them, one at a time.

// A test's helper fails by panicking, as the test itself does.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use steadyvm_lab::artifact::Cache;
use steadyvm_lab::host::{EmulatedHost, HostSpecification, RT};
use steadyvm_lab::laboratory::{HostKernel, Laboratory, guest};
use steadyvm_lab::progress::Silent;

const STEADYVM: &str = env!("CARGO_BIN_EXE_steadyvm");

fn laboratory(logs: &Path) -> Laboratory {
    let cache = Cache::of_this_machine().unwrap();
    Laboratory::open(&cache, Path::new(STEADYVM), logs, &Silent).unwrap()
}

/// The network namespaces, devices and lab processes of this machine.
#[derive(Debug, PartialEq, Eq)]
struct Footprint {
    named_namespaces: String,
    /// Of processes; one that only a descriptor holds would be in the process that has it.
    namespaces: BTreeSet<PathBuf>,
    links: Vec<String>,
    processes: Vec<String>,
}

impl Footprint {
    fn now() -> Self {
        let text = |words: &[&str]| {
            let done = Command::new(words[0]).args(&words[1..]).output().unwrap();
            String::from_utf8(done.stdout).unwrap()
        };
        let lab_process = |line: &&str| {
            ["qemu-system", "iperf3"]
                .iter()
                .any(|name| line.contains(name))
        };
        Self {
            named_namespaces: text(&["ip", "netns"]),
            namespaces: std::fs::read_dir("/proc")
                .unwrap()
                .filter_map(|entry| std::fs::read_link(entry.ok()?.path().join("ns/net")).ok())
                .collect(),
            links: text(&["ip", "-brief", "link"])
                .lines()
                .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
                .collect(),
            processes: text(&["ps", "-eo", "pid=,comm="])
                .lines()
                .filter(lab_process)
                .map(str::to_owned)
                .collect(),
        }
    }
}

/// A comparison that has booted its hosts and is in its first round.
fn comparison_under_way(out: &Path) -> Child {
    let mut child = Command::new(STEADYVM)
        .args([
            "compare",
            "--samples",
            "100000",
            "--rounds",
            "1",
            "--methods",
            "vanilla,preempt-rt",
        ])
        .arg("--out")
        .arg(out)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(
        lines.any(|line| line.unwrap().starts_with("round 1 of 1")),
        "it ended early"
    );
    // What it says later is of no interest, but it must not block on a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    child
}

/// Waits until the children of a dead process are gone too.
fn wait_until_gone(before: &Footprint) {
    // They were sent SIGKILL before their parent could be collected; what is left to them is
    // to die, and the kernel tells of that only their own parent.
    while &Footprint::now() != before {
        std::thread::yield_now();
    }
}

/// Runs a comparison of one round with 150 requests a phase; gives results.json and meta.json.
fn short_comparison(options: &[&str], out: &Path) -> (Value, Value) {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(STEADYVM)
        .args(["compare", "--samples", "150", "--rounds", "1", "--json"])
        .args(options)
        .arg("--out")
        .arg(out)
        .output()
        .unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let read = |name| serde_json::from_slice(&std::fs::read(out.join(name)).unwrap()).unwrap();
    let results: Value = serde_json::from_slice(&stdout).unwrap();
    assert_eq!(read("results.json"), results);
    (results, read("meta.json"))
}

/// A method of a short comparison has plausible figures of every phase.
fn require_figures(method: &Value) {
    for phase in ["netrt", "netrt_equal", "netrt_idle"] {
        let figures = &method[phase];
        let (n, lost) = (
            figures["n"].as_u64().unwrap(),
            figures["lost"].as_u64().unwrap(),
        );
        assert_eq!(n + lost, 150, "{phase}: {figures}");
        assert!(
            figures["max_us"].as_f64() >= figures["p999_us"].as_f64(),
            "{figures}"
        );
        assert!(figures["sd_us"].as_f64().unwrap() > 0.0, "{figures}");
    }
    let stream = &method["netstream"];
    let (full, equal) = (&stream["mbit_per_s"], &stream["equal_mbit_per_s"]);
    assert!(
        full.as_f64().unwrap() > 1.0 && equal.as_f64().unwrap() > 1.0,
        "{stream}"
    );
    let busy = method["host"]["cpu_busy_fraction"].as_f64().unwrap();
    assert!(busy > 0.1 && busy <= 1.0, "{busy}");
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn without_vms_the_host_receives_both_loads() {
    let before = Footprint::now();
    let out = tempfile::tempdir().unwrap();
    let (results, meta) = short_comparison(&["--service", "host"], out.path());
    assert_eq!(
        (&results["service"], &meta["service"]),
        (&"host".into(), &"host".into())
    );
    assert!(meta["kernels"].get("guests").is_none(), "{meta}");
    let methods = results["methods"].as_array().unwrap();
    assert_eq!(methods.len(), 3);
    methods.iter().for_each(require_figures);
    let logs = out.path().join("logs");
    assert!(logs.join("dedicated.console").exists());
    assert_eq!(Footprint::now(), before);
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_short_comparison_measures_every_phase_and_leaves_nothing() {
    let before = Footprint::now();
    let out = tempfile::tempdir().unwrap();
    let (results, meta) = short_comparison(&[], out.path());
    assert_eq!(results["schema_version"], 1);
    assert_eq!(
        (&results["service"], &meta["service"]),
        (&"vm".into(), &"vm".into())
    );
    let methods = results["methods"].as_array().unwrap();
    let names: Vec<&str> = methods
        .iter()
        .map(|method| method["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["vanilla", "preempt-rt", "dedicated"]);
    for method in methods {
        require_figures(method);
        let name = method["name"].as_str().unwrap();
        assert!(out.path().join(format!("{name}.hgrm")).exists());
    }
    let report = std::fs::read_to_string(out.path().join("report.html")).unwrap();
    assert!(report.contains("preempt-rt") && report.contains("<svg"));
    assert!(
        meta["kernels"]["preempt-rt"]
            .as_str()
            .unwrap()
            .contains("6.12"),
        "{meta}"
    );
    assert_eq!(Footprint::now(), before);
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn nothing_is_left_after_control_c_or_kill() {
    let before = Footprint::now();
    for (signal, code) in [
        (libc::SIGINT, Some(130)),
        (libc::SIGTERM, Some(143)),
        (libc::SIGKILL, None),
    ] {
        let out = tempfile::tempdir().unwrap();
        let mut child = comparison_under_way(out.path());
        assert_ne!(Footprint::now().processes, before.processes);
        // SAFETY: a plain system call; the child is not collected yet, so the number is its own.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
        let status = child.wait().unwrap();
        assert_eq!(status.code(), code);
        if code.is_some() {
            assert_eq!(Footprint::now(), before, "after signal {signal}");
        } else {
            assert_eq!(status.signal(), Some(signal));
            wait_until_gone(&before);
        }
    }
    let next = Command::new(STEADYVM)
        .args(["lab", "run", "--", "true"])
        .status()
        .unwrap();
    assert!(next.success());
    assert_eq!(Footprint::now(), before);
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_command_in_the_lab_gets_input_and_gives_output_and_exit_code() {
    let mut child = Command::new(STEADYVM)
        .args([
            "lab",
            "run",
            "--kernel",
            "vanilla",
            "--",
            "sh",
            "-c",
            "cat; uname -v; echo no >&2; exit 7",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"from outside\n").unwrap();
    let (mut said, mut complained) = (String::new(), String::new());
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut complained)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert!(said.starts_with("from outside\n"), "{said}");
    assert!(
        said.contains("Debian") && !said.contains("PREEMPT_RT"),
        "{said}"
    );
    assert!(complained.ends_with("no\n"), "{complained}");
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn the_real_time_kernel_has_what_later_work_needs() {
    let logs = tempfile::tempdir().unwrap();
    let laboratory = laboratory(logs.path());
    let host = EmulatedHost::boot(&laboratory.host("features", HostKernel::PreemptRt)).unwrap();
    host.require_kvm().unwrap();
    let inside = |words: &[&str]| host.connection().text(words);
    assert!(inside(&["uname", "-v"]).unwrap().contains("PREEMPT_RT"));
    for file in [
        "/sys/kernel/btf/vmlinux",
        "/sys/kernel/sched_ext/state",
        "/dev/vhost-net",
        "/dev/net/tun",
    ] {
        inside(&["test", "-e", file]).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
    let driver = inside(&["readlink", "/sys/class/net/rt/device/driver"]).unwrap();
    assert!(driver.trim().ends_with("/igb"), "{driver}");
    let doctor: Value =
        serde_json::from_str(&inside(&["steadyvm", "doctor", "--json"]).unwrap()).unwrap();
    assert_eq!(doctor["schema_version"], 1);
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_host_without_kvm_says_so() {
    let logs = tempfile::tempdir().unwrap();
    let specification = HostSpecification {
        kernel_words: "initcall_blacklist=svm_init,vmx_init".to_owned(),
        ..laboratory(logs.path()).host("no-kvm", HostKernel::PreemptRt)
    };
    let host = EmulatedHost::boot(&specification).unwrap();
    let error = host.require_kvm().unwrap_err();
    assert!(
        error.to_string().contains("/dev/kvm") && !error.what_to_do.is_empty(),
        "{error}"
    );
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn methods_hold_on_a_real_kernel_and_undo_restores_everything() {
    let logs = tempfile::tempdir().unwrap();
    let laboratory = laboratory(logs.path());
    let host = EmulatedHost::boot(&laboratory.host("undo", HostKernel::PreemptRt)).unwrap();
    let _guest = host
        .start_guest(&guest("rt", 1, 2), &[RT], &Silent)
        .unwrap();
    let vm = format!("{}:1", host.guest_pid("rt").unwrap());
    let inside = |words: &str| host.connection().text(&["sh", "-euc", words]);
    inside("steadyvm host snapshot > /run/before.json").unwrap();
    for method in ["preempt-rt", "dedicated", "rt-profile"] {
        inside(&format!(
            "steadyvm host apply --method {method} --rt-nic rt --rt-vm {vm}"
        ))
        .unwrap();
        let again = inside(&format!(
            "steadyvm host apply --method {method} --rt-nic rt --rt-vm {vm}"
        ));
        assert!(
            again.unwrap_err().to_string().contains("undo"),
            "a second apply must be refused"
        );
        let policies =
            inside("ps -eLo cls=,rtprio=,comm= | grep -E ' irq/.*rt-rx|vhost-|KVM'").unwrap();
        let at_priority = |priority: &str, name: &str| {
            policies.lines().any(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words[0] == "FF" && words[1] == priority && line.contains(name)
            })
        };
        assert!(at_priority("80", "rt-rx"), "{policies}");
        assert!(at_priority("75", "vhost-"), "{policies}");
        assert!(at_priority("70", "CPU 1/KVM"), "{policies}");
        inside("steadyvm host undo").unwrap();
        inside("steadyvm host snapshot --compare /run/before.json").unwrap();
    }
}
