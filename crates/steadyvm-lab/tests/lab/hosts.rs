//! Tests in the emulated host. They need root and what `steadyvm-lab prepare` builds, and take
//! minutes: `make lab-tests` runs them, one at a time.

use crate::support::comparison::{require_figures, short_comparison};
use crate::support::footprint::{Footprint, wait_until_gone};
use crate::support::shared;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;
use steadyvm_experiment::compare::{NAME, Phase, THROUGHPUT, required, service_of};
use steadyvm_experiment::engine::results::{Record, from_json_of};
use steadyvm_experiment::testbed::Service;
use steadyvm_lab::agent::Status;
use steadyvm_lab::artifact::{Cache, DistributionKernel, KernelPackage, sockets_module};
use steadyvm_lab::host::{EmulatedHost, HostSpecification, RT};
use steadyvm_lab::laboratory::{HostKernel, Laboratory, guest};
use steadyvm_lab::progress::Silent;
use steadyvm_load::netrt::{self, ClientOptions, End};
use steadyvm_trace::receive_path::Report;

const LAB: &str = env!("CARGO_BIN_EXE_steadyvm-lab");

fn laboratory(logs: &Path) -> Laboratory {
    let kernels = [HostKernel::V6_12Rt];
    let cache = Cache::of_this_machine().unwrap();
    Laboratory::open(&cache, Path::new(LAB), logs, &kernels, &Silent).unwrap()
}

/// A comparison that has booted its hosts and is in its first round, and what it will have said on
/// standard error from then on.
fn comparison_under_way(options: &[&str], out: &Path) -> (Child, JoinHandle<Vec<String>>) {
    let mut child = Command::new(LAB)
        .args(["compare", "--rounds", "1"])
        .args(options)
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
    let rest = std::thread::spawn(move || lines.map(Result::unwrap).collect());
    (child, rest)
}

/// samples.csv has every counted request of every method and phase once, with what it took.
fn require_every_sample(file: &Path, results: &Record) {
    let text = std::fs::read_to_string(file).unwrap();
    let mut lines = text.lines();
    let head = "method,round,phase,sequence,sent_ns,round_trip_ns";
    assert_eq!(lines.next(), Some(head));
    let mut seen = BTreeSet::new();
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let [method, "1", phase, sequence, sent, took] = fields[..] else {
            panic!("{line}");
        };
        assert!(sent.parse::<u64>().is_ok() && took.parse::<u64>().unwrap() > 0);
        assert!(seen.insert((method, phase, sequence)), "twice: {line}");
    }
    let mut counted = 0;
    for name in &results.rows {
        for phase in Phase::ALL {
            let (name, key) = (&**name, phase.key());
            let of_phase = seen
                .iter()
                .filter(|sample| (sample.0, sample.1) == (name, key));
            let n = results.at(name, phase.cell()).count("n");
            assert_eq!(of_phase.count() as u64, n, "{name} {key}");
            counted += n;
        }
    }
    assert_eq!(seen.len() as u64, counted);
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn without_vms_a_container_receives_the_service_by_its_veth() {
    let out = tempfile::tempdir().unwrap();
    let page = out.path().join("page.md");
    let options = [
        "--methods",
        "preempt-rt",
        "--service",
        "container",
        "--rounds",
        "1",
        "--markdown",
        page.to_str().unwrap(),
    ];
    let (results, meta) = short_comparison(&options, out.path());
    assert_eq!(service_of(&results), Service::Container);
    assert_eq!(meta["service"], "container");
    require_figures(&results, &results.rows[0]);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("behind a veth"), "{page}");
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn without_vms_the_host_receives_both_loads_in_every_boot() {
    let before = Footprint::now();
    let out = tempfile::tempdir().unwrap();
    // Two methods: with VMs, all three are compared below.
    let options = [
        "--methods",
        "preempt-rt,dedicated",
        "--service",
        "host",
        "--receive-path",
        "--rounds",
        "2",
        "--boots",
        "2",
        "--streams",
        "2",
        "--equal-rate",
        "40",
    ];
    let (results, meta) = short_comparison(&options, out.path());
    assert_eq!(service_of(&results), Service::Host);
    assert_eq!(meta["service"], "host");
    assert!(meta["kernels"].get("guests").is_none(), "{meta}");
    assert_eq!((&meta["boots"], &meta["streams"]), (&2.into(), &2.into()));
    assert_eq!(meta["equal_rate_mbit_per_s"], 40.0);
    assert_eq!(results.rows.len(), 2);
    for name in &results.rows {
        require_figures(&results, name);
        let carried = results.at(name, "equal").value(THROUGHPUT).unwrap();
        assert!((20.0..60.0).contains(&carried), "{carried}");
        for phase in Phase::ALL {
            let n = results.at(name, phase.cell()).count("wake_up.n");
            let phase = phase.wake_up_key();
            assert!(n > 100, "{name} {phase}: {n}");
            let traced = [1, 2].map(|round| {
                let file = out.path().join(format!("{name}.{phase}.{round}.json"));
                let report: Report = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
                assert_eq!(report.lost_events, 0);
                report.total.n
            });
            assert_eq!(traced.iter().sum::<u64>(), n, "{traced:?}");
        }
    }
    let logs = out.path().join("logs");
    assert!(logs.join("dedicated.console").exists());
    let log = std::fs::read_to_string(logs.join("dedicated.dmesg")).unwrap();
    assert!(log.contains("Linux version"), "{log}");
    assert_eq!(Footprint::now(), before);
}

/// The exits that the host traced are as many as KVM counts, and each cost something.
fn require_exit_costs(results: &Record, name: &str) {
    let at = results.at(name, "idle");
    let value = |name: &str| at.value(name).unwrap();
    let traced: Vec<&str> = (at.figures())
        .filter_map(|figure| figure.name.strip_prefix("guest.traced_exits."))
        .collect();
    assert!(traced.contains(&"hlt"), "{name}: {traced:?}");
    let number = |reason: &&str| value(&format!("guest.traced_exits.{reason}"));
    let all: f64 = traced.iter().map(number).sum();
    let counted = value("guest.exits");
    assert!(
        (0.5..2.0).contains(&(all / counted)),
        "{name}: {all} of {counted}"
    );
    for reason in traced {
        let cost_us = value(&format!("guest.exit_cpu.{reason}"));
        assert!(cost_us > 0.0, "{name}: {reason}");
    }
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_short_comparison_measures_every_phase_and_leaves_nothing() {
    let before = Footprint::now();
    let out = tempfile::tempdir().unwrap();
    let (results, meta) = short_comparison(&["--rounds", "1", "--receive-path"], out.path());
    assert_eq!(service_of(&results), Service::Vm);
    assert_eq!(meta["service"], "vm");
    assert_eq!(results.rows, ["vanilla", "preempt-rt", "dedicated"]);
    for name in &results.rows {
        require_figures(&results, name);
        assert!(out.path().join(format!("{name}.hgrm")).exists());
        require_exit_costs(&results, name);
    }
    require_every_sample(&out.path().join("samples.csv"), &results);
    let full_speed = |name: &String| results.at(name, "full").value(THROUGHPUT).unwrap();
    let slowest = results
        .rows
        .iter()
        .map(full_speed)
        .fold(f64::INFINITY, f64::min);
    let equal = meta["equal_rate_mbit_per_s"].as_f64().unwrap();
    assert!((equal - 0.9 * slowest).abs() < 1e-6 * slowest, "{equal}");
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
    // To this machine a guest is its host's emulator: one of the comparisons has guests.
    for (signal, code, methods, service) in [
        (libc::SIGINT, Some(130), "vanilla,preempt-rt", "vm"),
        (libc::SIGTERM, Some(143), "preempt-rt", "host"),
        (libc::SIGKILL, None, "preempt-rt", "host"),
    ] {
        let out = tempfile::tempdir().unwrap();
        let chosen = ["--methods", methods, "--service", service];
        let options = [&["--samples", "100000"][..], &chosen].concat();
        let (mut child, rest) = comparison_under_way(&options, out.path());
        assert_ne!(Footprint::now().processes, before.processes);
        // SAFETY: a plain system call; the child is not collected yet, so the number is its own.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
        let status = child.wait().unwrap();
        assert_eq!(status.code(), code);
        if code.is_some() {
            assert_eq!(Footprint::now(), before, "after signal {signal}");
            let mut said = rest.join().unwrap();
            let last = said.pop().unwrap();
            assert!(
                last.contains(&format!("ended by signal {signal}")),
                "{last}"
            );
            // Nothing tries to go on without the machines that it has just lost.
            let standstill = |line: &String| line.contains("stood still");
            assert!(said.iter().all(standstill), "{said:?}");
        } else {
            assert_eq!(status.signal(), Some(signal));
            wait_until_gone(&before);
        }
    }
    let next = Command::new(LAB)
        .args(["run", "--", "true"])
        .status()
        .unwrap();
    assert!(next.success());
    assert_eq!(Footprint::now(), before);
}

/// The process of this name that a process started.
fn child_named(parent: &Child, name: &str) -> i32 {
    let parent = parent.id().to_string();
    let mut pgrep = Command::new("pgrep");
    pgrep.args(["--parent", &parent, name]);
    let said = String::from_utf8(pgrep.output().unwrap().stdout).unwrap();
    said.trim().parse().unwrap()
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_round_whose_host_dies_is_dropped_and_measured_again() {
    let before = Footprint::now();
    let out = tempfile::tempdir().unwrap();
    let (samples, methods) = (["--samples", "30"], ["--methods", "preempt-rt"]);
    let options = [&samples[..], &methods, &["--service", "host"]].concat();
    let (mut child, rest) = comparison_under_way(&options, out.path());
    let emulator = child_named(&child, "qemu-system");
    // SAFETY: a plain system call; the comparison has not collected this child, so the number is its own.
    assert_eq!(unsafe { libc::kill(emulator, libc::SIGKILL) }, 0);
    assert!(child.wait().unwrap().success());
    let said = rest.join().unwrap().join("\n");
    let state = out.path().join("logs/preempt-rt.state");
    for words in [
        "booting that host again".to_owned(),
        format!("its state then: {}", state.display()),
    ] {
        assert!(said.contains(&words), "{words}: {said}");
    }
    let state = std::fs::read_to_string(state).unwrap();
    assert!(state.contains("its control channel ended"), "{state}");
    let meta = std::fs::read(out.path().join("meta.json")).unwrap();
    let meta: Value = serde_json::from_slice(&meta).unwrap();
    assert_eq!(
        meta["dropped_rounds"].as_array().unwrap().len(),
        1,
        "{meta}"
    );
    let results = std::fs::read_to_string(out.path().join("results.json")).unwrap();
    let results = from_json_of(&results, NAME, required).unwrap();
    let netrt = results.at(&results.rows[0], "full");
    assert_eq!(netrt.count("n") + netrt.count("lost"), 30, "{netrt:?}");
    assert_eq!(Footprint::now(), before);
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_command_in_the_lab_gets_input_and_gives_output_and_exit_code() {
    let mut child = Command::new(LAB)
        .args([
            "run",
            "--kernel",
            "6.12",
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

/// Image and modules of a kernel where a build and `make modules_install` put them: `build`/bzImage, and
/// lib/modules/RELEASE below `build`.
fn install(kernel: &DistributionKernel, build: &Path) {
    std::fs::copy(&kernel.image, build.join("bzImage")).unwrap();
    let modules = build.join("lib/modules").join(&kernel.release);
    std::fs::create_dir_all(&modules).unwrap();
    for directory in [
        kernel.host_modules.clone(),
        kernel.host_modules.join("later"),
    ] {
        for module in std::fs::read_dir(directory).unwrap() {
            let module = module.unwrap();
            let name = module.file_name().into_string().unwrap();
            // It has its number in the load order first; the directory of those that are loaded later has none.
            if let Some((_, name)) = name.split_once('-') {
                std::fs::copy(module.path(), modules.join(name)).unwrap();
            }
        }
    }
    let mut depmod = Command::new("depmod");
    depmod.arg("-b").arg(build).arg(&kernel.release);
    assert!(depmod.status().unwrap().success());
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_host_boots_a_users_kernel_with_its_modules_and_guests_get_a_users_module() {
    const MARK: &str = "built-by-the-user";
    let cache = Cache::of_this_machine().unwrap();
    let kernel = DistributionKernel::obtain(&cache, KernelPackage::STANDARD, &Silent).unwrap();
    let place = tempfile::tempdir().unwrap();
    let build = place.path();
    install(&kernel, build);
    let module = sockets_module(&cache, &kernel, &Silent).unwrap();
    let module = [&*std::fs::read(module).unwrap(), MARK.as_bytes()].concat();
    std::fs::write(build.join("a.ko"), module).unwrap();
    let script = format!("uname -r; grep -ac {MARK} /boot/guest-initramfs");
    let done = Command::new(LAB)
        .args(["run", "--kernel", "./bzImage"])
        .args(["--modules", ".", "--module", "a.ko"])
        .args(["--", "sh", "-c", &script])
        .current_dir(build)
        .output()
        .unwrap();
    let complaints = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{complaints}");
    let said = String::from_utf8_lossy(&done.stdout);
    assert_eq!(said, format!("{}\n1\n", kernel.release), "{complaints}");
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_kernel_without_a_driver_for_the_image_says_so() {
    let cache = Cache::of_this_machine().unwrap();
    let kernel = DistributionKernel::obtain(&cache, KernelPackage::STANDARD, &Silent).unwrap();
    let place = tempfile::tempdir().unwrap();
    let build = place.path();
    install(&kernel, build);
    let modules = build.join("lib/modules").join(&kernel.release);
    let dependencies = modules.join("modules.dep");
    let text = std::fs::read_to_string(&dependencies).unwrap();
    let lines = text.lines().filter(|line| !line.contains("virtio_blk.ko"));
    let fewer: Vec<&str> = lines.collect();
    assert_eq!(fewer.len() + 1, text.lines().count());
    std::fs::write(&dependencies, fewer.join("\n")).unwrap();
    let done = Command::new(LAB)
        .args(["run", "--kernel", "./bzImage", "--modules", "."])
        .args(["--", "true"])
        .current_dir(build)
        .output()
        .unwrap();
    let complaints = String::from_utf8_lossy(&done.stderr);
    println!("{complaints}");
    assert!(!done.status.success(), "{complaints}");
    for words in ["this kernel has no virtio_blk", "--modules"] {
        assert!(complaints.contains(words), "{complaints}");
    }
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn the_real_time_kernels_have_what_other_work_needs() {
    // Debian's 6.12 has no sched_ext.
    let kernels = [
        (HostKernel::V6_12Rt, None),
        (HostKernel::V7_3Rt, Some("/sys/kernel/sched_ext/state")),
    ];
    for (kernel, own) in kernels {
        let host = shared::host(kernel);
        host.require_kvm().unwrap();
        let inside = |words: &[&str]| host.connection().text(words);
        assert!(inside(&["uname", "-v"]).unwrap().contains("PREEMPT_RT"));
        let files = ["/sys/kernel/btf/vmlinux", "/dev/vhost-net", "/dev/net/tun"];
        for file in files.into_iter().chain(own) {
            inside(&["test", "-e", file]).unwrap_or_else(|error| panic!("{file}: {error}"));
        }
        let driver = inside(&["readlink", "/sys/class/net/rt/device/driver"]).unwrap();
        assert!(driver.trim().ends_with("/igb"), "{driver}");
        let doctor: Value =
            serde_json::from_str(&inside(&["steadyvm", "doctor", "--json"]).unwrap()).unwrap();
        assert_eq!(doctor["schema_version"], 1);
    }
}

/// Requests from outside to the NetRT service on the host itself.
fn send_requests(host: &EmulatedHost, count: u64) {
    let options = ClientOptions {
        warmup: 0,
        end: End::Requests(count),
        timeout: Duration::from_secs(60),
        ..ClientOptions::default()
    };
    let send = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect((RT.host(), 7700)).unwrap();
        Ok(netrt::run(&socket, &options, &AtomicBool::new(false), &mut |_| {}).unwrap())
    };
    let run = host.outside().enter(send).unwrap();
    assert_eq!(run.counters.lost, 0);
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn packets_are_explained_from_interrupt_to_wake_up() {
    const REQUESTS: u64 = 60;
    let patience = Duration::from_secs(60);
    for kernel in [HostKernel::V6_12, HostKernel::V6_12Rt] {
        let host = shared::host(kernel);
        let inside = host.connection();
        let serve = ["steadyvm", "netrt", "serve", "0.0.0.0:7700"];
        let mut service = inside.spawn(&serve).unwrap();
        service.wait_for_line("ready", patience).unwrap();
        send_requests(&host, 5);
        // An emulated host takes long to load the programs: what does not depend on the kernel is shown once.
        let ways: &[[&str; 2]] = match kernel {
            HostKernel::V6_12Rt => &[["--device", "rt"]],
            _ => &[["--device", "rt"], ["--port", "7700"]],
        };
        for which in ways {
            let explain = [
                "steadyvm",
                "explain",
                "--receive-path",
                "--json",
                "--seconds",
                "600",
            ];
            let mut explain = inside.spawn(&[&explain[..], which].concat()).unwrap();
            explain.wait_for_line("recording", patience).unwrap();
            send_requests(&host, REQUESTS);
            // Ctrl-C ends it early, and it says what it has.
            explain.signal(libc::SIGINT).unwrap();
            let finished = explain.finish(std::time::Duration::from_secs(120)).unwrap();
            assert_eq!(finished.status, Status::Exited(0));
            let report: Report = serde_json::from_str(&finished.text()).unwrap();
            assert_eq!(report.lost_events, 0);
            assert!(report.missing.is_empty(), "{:?}", report.missing);
            let measured = report.total.n + report.followers;
            // Of a reader that is awake nobody knows whose packet it reads.
            let fewest = if which[0] == "--device" { REQUESTS } else { 1 };
            assert!((fewest..=REQUESTS).contains(&measured), "{report:?}");
            let shares: f64 = report.causes.iter().map(|cause| cause.share).sum();
            assert!((shares - 1.0).abs() < 1e-9, "{shares}");
            let own = |name| {
                let mut causes = report.causes.iter();
                causes.any(|cause| cause.kind == "own" && cause.name == name)
            };
            assert!(own("interrupt") && own("poll"), "{report:?}");
            assert_eq!(own("thread"), kernel == HostKernel::V6_12Rt);
            // Nobody is woken by a packet whose reader is awake.
            let woken: BTreeSet<&str> = report.worst.iter().map(|way| &*way.woken).collect();
            assert!(woken.contains("steadyvm"), "{woken:?}");
            assert!(woken.is_subset(&["", "steadyvm"].into()), "{woken:?}");
            let first = &report.worst[0].timeline[0];
            assert_eq!((&*first.kind, &*first.name), ("own", "interrupt"));
        }
        if kernel != HostKernel::V6_12Rt {
            continue;
        }
        let explain = ["steadyvm", "explain", "--receive-path", "--device", "rt"];
        let mut explain = inside
            .spawn(&[&explain[..], &["--packets", "20"]].concat())
            .unwrap();
        explain.wait_for_line("recording", patience).unwrap();
        send_requests(&host, REQUESTS);
        let said = explain
            .finish(std::time::Duration::from_secs(120))
            .unwrap()
            .text();
        assert!(said.starts_with("receive path of device rt"), "{said}");
        assert!(said.contains("that woke steadyvm"), "{said}");
        let none = inside.run(&["steadyvm", "explain", "--receive-path", "--port", "9"]);
        let error = none.unwrap_err().to_string();
        assert!(error.contains("port 9"), "{error}");
    }
}

/// What tracing has in force on a host, for whoever looks into tracefs; and the descriptors of perf
/// events, which tracefs does not show.
fn tracing(host: &EmulatedHost) -> (String, String) {
    let inside = |words: &str| host.connection().text(&["sh", "-euc", words]).unwrap();
    let tracefs = inside(
        "cd /sys/kernel/tracing; ls instances; grep -s . set_event set_event_pid current_tracer \
         trace_clock tracing_on buffer_size_kb dynamic_events kprobe_events uprobe_events || true; \
         grep -r . events --include=enable --include=filter --include=trigger | sort",
    );
    let events = inside("ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c '\\[perf_event\\]' || true");
    (tracefs, events)
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn an_explanation_that_is_killed_leaves_nothing_on_the_host() {
    let patience = Duration::from_secs(60);
    let host = shared::host(HostKernel::V6_12Rt);
    let inside = host.connection();
    let serve = ["steadyvm", "netrt", "serve", "0.0.0.0:7700"];
    let mut service = inside.spawn(&serve).unwrap();
    service.wait_for_line("ready", patience).unwrap();
    send_requests(&host, 5);
    let before = tracing(&host);
    // What is looked for is there to be seen.
    assert!(
        before.0.contains("events/irq/irq_handler_entry/enable:0"),
        "{}",
        before.0
    );
    assert_eq!(before.1.trim(), "0");
    for which in [["--device", "rt"], ["--port", "7700"]] {
        let explain = ["steadyvm", "explain", "--receive-path", "--seconds", "600"];
        let mut explain = inside.spawn(&[&explain[..], &which].concat()).unwrap();
        explain.wait_for_line("recording", patience).unwrap();
        send_requests(&host, 20);
        assert_ne!(tracing(&host).1, before.1, "it records nothing");
        explain.signal(libc::SIGKILL).unwrap();
        let finished = explain.finish(patience).unwrap();
        assert_eq!(finished.status, Status::Killed(libc::SIGKILL));
        assert_eq!(tracing(&host), before, "{which:?}");
        let left = inside
            .text(&["sh", "-c", "ps -eo args= | grep '[s]teadyvm explain'"])
            .unwrap_or_default();
        assert_eq!(left, "");
    }
    send_requests(&host, 20);
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_host_without_kvm_says_so() {
    let logs = tempfile::tempdir().unwrap();
    let specification = HostSpecification {
        kernel_words: "clearcpuid=svm,vmx".to_owned(),
        ..laboratory(logs.path())
            .host("no-kvm", HostKernel::V6_12Rt)
            .unwrap()
    };
    let host = EmulatedHost::boot(&specification).unwrap();
    let error = host.require_kvm().unwrap_err();
    assert!(
        error.to_string().contains("/dev/kvm") && !error.what_to_do.is_empty(),
        "{error}"
    );
}

/// How often a guest sleeps that shows whether its timers expire.
const SLEEPS: u64 = 20;

/// The rate of a host's TSC, in MHz, behind these words of its kernel.
fn tsc_mhz(host: &EmulatedHost, said: &str) -> f64 {
    let log = host.connection().text(&["dmesg"]).unwrap();
    let rate = log
        .lines()
        .find_map(|line| line.split_once(said))
        .unwrap()
        .1;
    rate.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn guests_have_timers_on_a_host_that_misjudged_its_tsc() {
    let logs = tempfile::tempdir().unwrap();
    let laboratory = laboratory(logs.path());
    let mut specification = laboratory.host("tsc", HostKernel::V6_12Rt).unwrap();
    let real_mhz = tsc_mhz(
        &EmulatedHost::boot(&specification).unwrap(),
        "tsc: Detected ",
    );
    // More than KVM tolerates by itself, less than makes a kernel doubt its second figure.
    let early_khz = (real_mhz * 996.0).round();
    specification.kernel_words = format!("tsc_early_khz={early_khz}");
    let host = EmulatedHost::boot(&specification).unwrap();
    let guest = host
        .start_guest(&guest("timers", 1, 1), &[RT], &Silent)
        .unwrap();
    let refined_mhz = tsc_mhz(&host, "Refined TSC clocksource calibration: ");
    let misjudged_ppm = 1e6 * (1.0 - early_khz / 1000.0 / refined_mhz);
    assert!((3000.0..5000.0).contains(&misjudged_ppm), "{misjudged_ppm}");

    let timer_interrupts = || -> u64 {
        let script = "grep -w LOC: /proc/interrupts";
        let line = guest.connection().text(&["sh", "-c", script]).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let before = timer_interrupts();
    let script = format!("for nap in $(seq {SLEEPS}); do sleep 0.01; done");
    guest.connection().run(&["sh", "-c", &script]).unwrap();
    let passed = timer_interrupts() - before;
    assert!(passed >= SLEEPS, "{passed} timer interrupts");
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn methods_hold_on_a_real_kernel_and_undo_restores_everything() {
    hold_and_are_undone(
        HostKernel::V6_12Rt,
        &["preempt-rt", "dedicated", "rt-profile"],
    );
}

#[test]
#[ignore = "needs the lab: make patched-tests"]
fn methods_with_levels_hold_on_a_real_kernel_and_undo_restores_everything() {
    hold_and_are_undone(HostKernel::V6_12RtPatched, &["rt-poll-list", "rt-levels"]);
}

fn hold_and_are_undone(kernel: HostKernel, methods: &[&str]) {
    let host = shared::host(kernel);
    let _guest = host
        .start_guest(&guest("rt", 1, 2), &[RT], &Silent)
        .unwrap();
    let vm = format!("{}:1", host.guest_pid("rt").unwrap());
    let inside = |words: &str| host.connection().text(&["sh", "-euc", words]);
    inside("steadyvm status --snapshot > /run/before.json").unwrap();
    for method in methods {
        inside(&format!(
            "steadyvm apply --method {method} --nic rt --vm rt:1"
        ))
        .unwrap();
        // The same VM by its process.
        let again = inside(&format!(
            "steadyvm apply --method {method} --nic rt --vm {vm}"
        ));
        assert!(again.unwrap().contains(" 0 of them changed"), "{method}");
        let other = methods.iter().find(|other| *other != method).unwrap();
        let refused = inside(&format!(
            "steadyvm apply --method {other} --nic rt --vm {vm}"
        ));
        assert!(refused.unwrap_err().to_string().contains("undo"), "{other}");
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
        if kernel == HostKernel::V6_12RtPatched {
            let from = inside("cat /proc/sys/net/core/rtnet_prio").unwrap();
            assert_eq!(from.trim(), "70", "{method}");
        }
        inside("steadyvm undo").unwrap();
        inside("steadyvm status --snapshot --compare /run/before.json").unwrap();
    }

    // Killed in the midst of it: apply, then the undo of what it had done.
    let kill = |command: &str, at_setting: u32| {
        let calls = "sched_setattr,sched_setaffinity";
        let said = inside(&format!(
            "strace -f -o /dev/null -e trace={calls} \
             -e inject={calls}:signal=KILL:when={at_setting} {command} || echo code $?"
        ));
        assert!(said.unwrap().contains("code 137"), "{command}");
    };
    let method = methods[1];
    for at_setting in [2, 5] {
        kill(
            &format!("steadyvm apply --method {method} --nic rt --vm {vm}"),
            at_setting,
        );
        inside("! steadyvm status --snapshot --compare /run/before.json").unwrap();
        kill("steadyvm undo", 1);
        inside("steadyvm undo").unwrap();
        inside("steadyvm status --snapshot --compare /run/before.json").unwrap();
    }
}
