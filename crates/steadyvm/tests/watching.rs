//! What the watch, `top` and `measure` cost while they are on: CPU time, and the round trips of a service that the first two watch.
//! On this machine.
//!
//! A process that holds a VM of KVM serves NetRT on loopback by the thread of its VCPU, so that the watch ranks it and `top` traces
//! each of its wake-ups. Both are on in one half of each round and off in the other; the ranks stay. Client and service have one
//! CPU: where the kernel puts them decides between round trips of 15 and of 70 us on this machine, and hides what is measured. At the
//! end both are on for two looks of an idle watch, which gives their CPU time; then `measure` runs. Needs root and /dev/kvm.
//! `STEADYVM_ROUNDS`: how many, 100 without it. `STEADYVM_PAGE`: where to write what came of it, as a page. `STEADYVM_WATCHER`:
//! `watch` or `top`, to see what one of them costs. By hand: `make watching-tests`.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

#[path = "support/kvm.rs"]
mod kvm;

use std::fmt::Write as _;
use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use kvm::Vm;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;
use steadyvm_load::netrt::{self, ClientOptions, End, Intervals};
use steadyvm_report::picture::{Bar, Group};
use steadyvm_report::results_page::{self, Details};
use steadyvm_report::{Answer, Finding, Over, Picture};
use steadyvm_stats::Summary;
use steadyvm_stats::bootstrap::{BootstrapOptions, draw_latency, ratio};

const PATIENCE: Duration = Duration::from_secs(30);
/// Per half of a round. At 0.6 ms each in the mean, 2.4 s.
const REQUESTS: u64 = 4000;
/// 63 s: a watch looks every 30 s if nothing happens.
const REQUESTS_AT_THE_END: u64 = 105_000;
/// Percent of a CPU that each of the two may take.
const MOST_CPU_PERCENT: f64 = 1.0;
/// Times the round trip of one request in a hundred may become.
const MOST_P99: f64 = 1.03;
const SERVES: &str = "serves at port";

#[test]
#[ignore = "changes ranks of threads on this machine; takes a quarter of an hour: make watching-tests"]
fn the_watch_and_top_take_less_than_a_hundredth_of_a_cpu() {
    let rounds: usize = std::env::var("STEADYVM_ROUNDS").map_or(100, |text| text.parse().unwrap());
    let place = Place::new();
    let (vm, port) = serve();
    let mut watch = place.watch();
    place.await_in_force(&mut watch);
    end(watch);
    let (mut off, mut on) = (Vec::new(), Vec::new());
    let only = std::env::var("STEADYVM_WATCHER").ok();
    let is_on = |name| only.as_ref().is_none_or(|only| only == name);
    let mut source = None;
    let start = |source: &mut Option<String>| {
        let mut watch = is_on("watch").then(|| place.watch());
        if let Some(watch) = &mut watch {
            place.await_in_force(watch);
        }
        let top = is_on("top").then(|| {
            let (top, from) = place.top();
            *source = Some(from);
            top
        });
        [watch, top]
    };
    for round in 0..rounds {
        let halves = if round % 2 == 0 {
            [false, true]
        } else {
            [true, false]
        };
        for are_on in halves {
            if !are_on {
                off.push(requests(port, round as u64, REQUESTS));
                continue;
            }
            let on_now = start(&mut source);
            on.push(requests(port, round as u64, REQUESTS));
            on_now.into_iter().flatten().for_each(end);
        }
    }
    let on_now = start(&mut source);
    let (began, before) = (
        Instant::now(),
        on_now.each_ref().map(|it| cpu_ns(it.as_ref())),
    );
    requests(port, rounds as u64, REQUESTS_AT_THE_END);
    let passed_ns = began.elapsed().as_nanos() as f64;
    let after = on_now.each_ref().map(|it| cpu_ns(it.as_ref()));
    let percent = |of: usize| (after[of] - before[of]) as f64 / passed_ns * 100.0;
    let (watch_percent, top_percent) = (percent(0), percent(1));
    on_now.into_iter().flatten().for_each(end);
    let (measure_percent, client_percent) = place.measure(port);
    place.undo();
    end(vm);
    let left: Vec<_> = std::fs::read_dir(place.file("state")).unwrap().collect();
    let is_journal = |name: &std::ffi::OsStr| name.to_string_lossy().contains("journal");
    assert!(
        !left.iter().flatten().any(|it| is_journal(&it.file_name())),
        "{left:?}"
    );

    let page = Page {
        watch_percent,
        top_percent,
        measure_percent,
        client_percent,
        source: source.unwrap_or_default(),
        ..Page::of(&off, &on)
    };
    let (answer, details) = (page.answer(), page.details());
    println!("{}\n{}", answer.in_short(), details.tables);
    if let Ok(file) = std::env::var("STEADYVM_PAGE") {
        results_page::write(Path::new(&file), &answer, &details).unwrap();
    }
    if only.is_some() {
        return;
    }
    for percent in [page.watch_percent, page.top_percent, page.measure_percent] {
        assert!(percent > 0.0 && percent < MOST_CPU_PERCENT, "{percent} %");
    }
    // Whether it is less than that one machine of two CPUs cannot always tell; that it is more, it can.
    assert!(page.p99.1 <= MOST_P99, "{:?}", page.p99);
}

/// A file and a journal for this test alone.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let text = format!(
            "[class.watched]\nvcpu = 65\n[[vm]]\nname = \"{}\"\nclass = \"watched\"\n",
            name()
        );
        std::fs::write(directory.path().join("site.toml"), text).unwrap();
        Self { directory }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn start(&self, words: &[&str], files: &[PathBuf]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steadyvm"));
        command.args(words).args(files);
        command.arg("--state-dir").arg(self.file("state"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null());
        command
    }

    fn watch(&self) -> Child {
        self.start(&["watch"], &[self.file("site.toml")])
            .spawn()
            .unwrap()
    }

    /// Waits until the file is in force under this watch.
    fn await_in_force(&self, watch: &mut Child) {
        let until = Instant::now() + PATIENCE;
        let site = [self.file("site.toml")];
        loop {
            let done = self
                .start(&["status", "--json"], &site)
                .stdout(Stdio::piped())
                .output()
                .unwrap();
            let said: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
            if done.status.success() && said["watch"] == true {
                return;
            }
            assert!(Instant::now() < until, "{said:#}");
            assert!(watch.try_wait().unwrap().is_none(), "the watch has ended");
        }
    }

    /// `top`, which has written its first frame, and where its figures of wake-ups are from.
    fn top(&self) -> (Child, String) {
        let frame = self.file("top.prom");
        let _ = std::fs::remove_file(&frame);
        let words = ["top", "--format", "openmetrics", "--out"];
        let mut top = self
            .start(&words, std::slice::from_ref(&frame))
            .spawn()
            .unwrap();
        let until = Instant::now() + PATIENCE;
        while !frame.exists() {
            assert!(Instant::now() < until, "no frame");
            assert!(top.try_wait().unwrap().is_none(), "top has ended");
            thread::yield_now();
        }
        let text = std::fs::read_to_string(&frame).unwrap();
        assert!(text.contains(&name()), "{text}");
        let from = text.split_once("steadyvm_wake_ups_source_info{from=\"");
        let from = from.unwrap().1.split('"').next().unwrap();
        (top, from.to_owned())
    }

    /// CPU time of `measure` and of its client, percent of a CPU. The client is told apart as one on another machine is.
    fn measure(&self, port: u16) -> (f64, f64) {
        let (remote, times) = (self.file("remote"), self.file("times"));
        // Its words are a command: `steadyvm` and what follows. The second line of `times` is of children.
        let text = format!(
            "#!/bin/bash\nPATH={}:$PATH\n\"$@\"\ncode=$?\ntimes >> {}\nexit $code\n",
            Path::new(env!("CARGO_BIN_EXE_steadyvm"))
                .parent()
                .unwrap()
                .display(),
            times.display()
        );
        std::fs::write(&remote, text).unwrap();
        std::fs::set_permissions(&remote, Permissions::from_mode(0o700)).unwrap();
        let service = format!("127.0.0.1:{port}");
        let words = ["measure", "--samples", "4000", "--service"];
        let mut measure = self.start(&words, &[service.into(), "--remote".into(), remote]);
        measure.arg("--out").arg(self.file("out"));
        let (began, before_s) = (Instant::now(), children_s());
        assert!(measure.status().unwrap().success());
        let (passed_s, both_s) = (began.elapsed().as_secs_f64(), children_s() - before_s);
        let times = std::fs::read_to_string(times).unwrap();
        let of_children = times.lines().skip(1).step_by(2);
        let client_s: f64 = of_children
            .flat_map(str::split_whitespace)
            .map(of_words)
            .sum();
        let percent = |of_s: f64| of_s / passed_s * 100.0;
        (percent(both_s - client_s), percent(client_s))
    }

    fn undo(&self) {
        assert!(self.start(&["undo"], &[]).status().unwrap().success());
    }
}

/// A name that no other VM of this machine has.
fn name() -> String {
    format!("watched-{}", std::process::id())
}

/// The VM, and where its VCPU's thread serves.
fn serve() -> (Child, u16) {
    let mut vm = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "vm", "--ignored", "--nocapture"])
        .args(["--", "-name", &name()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(vm.stdout.take().unwrap()).lines();
    let port = lines
        .find_map(|line| line.unwrap().split_once(SERVES)?.1.trim().parse().ok())
        .unwrap();
    // Until it is ended.
    thread::spawn(move || lines.for_each(drop));
    (vm, port)
}

#[test]
#[ignore = "no test: the VM of the other one"]
fn vm() {
    let _vm = Vm::create();
    let vcpu = thread::Builder::new().name("CPU 0/KVM".into()).spawn(|| {
        run_on_the_last_cpu();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        println!("{SERVES} {}", socket.local_addr().unwrap().port());
        netrt::serve(&socket, &AtomicBool::new(false)).unwrap();
    });
    vcpu.unwrap().join().unwrap();
}

fn run_on_the_last_cpu() {
    let cpus = thread::available_parallelism().unwrap().get();
    let mut last = CpuSet::new();
    last.set(cpus - 1).unwrap();
    sched_setaffinity(Pid::from_raw(0), &last).unwrap();
}

/// Round trips, ns, of a thread of its own.
fn requests(port: u16, seed: u64, count: u64) -> Vec<u64> {
    let client = thread::spawn(move || {
        run_on_the_last_cpu();
        round_trips(port, seed, count)
    });
    client.join().unwrap()
}

fn round_trips(port: u16, seed: u64, count: u64) -> Vec<u64> {
    let options = ClientOptions {
        seed,
        warmup: 50,
        end: End::Requests(count),
        intervals: Intervals {
            shortest: Duration::from_micros(200),
            longest: Duration::from_millis(1),
        },
        ..ClientOptions::default()
    };
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", port)).unwrap();
    let run = netrt::run(&socket, &options, &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!(run.counters.answered, count, "{:?}", run.counters);
    run.samples.iter().map(|sample| sample.rtt_ns).collect()
}

/// CPU time of all threads of a process; of none, 0.
fn cpu_ns(process: Option<&Child>) -> u64 {
    let Some(process) = process else { return 0 };
    let threads = std::fs::read_dir(format!("/proc/{}/task", process.id())).unwrap();
    let ran = threads.map(|thread| {
        let text = std::fs::read_to_string(thread.unwrap().path().join("schedstat")).unwrap();
        let ran = text.split_whitespace().next().unwrap();
        ran.parse::<u64>().unwrap()
    });
    ran.sum()
}

/// CPU time, s, of all that has ended of what this process has started.
fn children_s() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let times = [usage.user_time(), usage.system_time()];
    times
        .map(|it| it.num_microseconds() as f64 / 1e6)
        .iter()
        .sum()
}

/// Seconds of the shell's words: `1m2.345s`.
fn of_words(words: &str) -> f64 {
    let (minutes, seconds) = words.trim_end_matches('s').split_once('m').unwrap();
    minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
}

/// What is in force stays.
fn end(mut process: Child) {
    process.kill().unwrap();
    process.wait().unwrap();
}

struct Page {
    off: Summary,
    on: Summary,
    watch_percent: f64,
    top_percent: f64,
    /// Without its client.
    measure_percent: f64,
    client_percent: f64,
    /// On over off, with the ends of the 95 % interval.
    p50: (f64, f64, f64),
    p99: (f64, f64, f64),
    rounds: usize,
    /// Of `top`'s wake-ups.
    source: String,
}

impl Page {
    /// The round trips.
    fn of(off: &[Vec<u64>], on: &[Vec<u64>]) -> Self {
        let rounds = |of: &[Vec<u64>]| of.concat();
        let draws = |of: &[Vec<u64>], stream| {
            let rounds: Vec<&[u64]> = of.iter().map(Vec::as_slice).collect();
            draw_latency(&rounds, BootstrapOptions::default(), stream)
        };
        let (from, to) = (draws(on, 1), draws(off, 2));
        let ratio_of = |figure| {
            let ratio = ratio(&from, &to, figure).unwrap();
            let (low, high) = ratio.interval().unwrap();
            (ratio.estimate, low, high)
        };
        Self {
            off: Summary::of(&rounds(off)).unwrap(),
            on: Summary::of(&rounds(on)).unwrap(),
            watch_percent: 0.0,
            top_percent: 0.0,
            measure_percent: 0.0,
            client_percent: 0.0,
            p50: ratio_of(2),
            p99: ratio_of(3),
            rounds: off.len(),
            source: String::new(),
        }
    }

    fn answer(&self) -> Answer {
        let over = |of: &str, (value, low, high): (f64, f64, f64)| Finding::Ratio {
            of: "a service beside `watch` and `top`".to_owned(),
            over: format!("its own {of} without them"),
            ratio: Some(Over {
                value,
                low: Some(low),
                high: Some(high),
            }),
        };
        let cpu = |of: &str, percent: f64| Finding::Bound {
            of: format!("`{of}`"),
            figure: "CPU time, of one CPU".to_owned(),
            words: format!("{percent:.2} %"),
            bound: None,
        };
        let group = |name: &str, of: fn(&Summary) -> u64| Group {
            name: name.to_owned(),
            bars: [("off", &self.off), ("on", &self.on)]
                .map(|(name, it)| {
                    Bar::new(name, Some(of(it) as f64 / 1e3), |us| format!("{us:.1} µs"))
                })
                .into(),
        };
        Answer {
            question: "What do `watch` and `top` cost?".to_owned(),
            findings: vec![
                over("median round trip", self.p50),
                over("p99", self.p99),
                cpu("watch", self.watch_percent),
                cpu("top", self.top_percent),
            ],
            picture: Picture {
                title: "Round trips with `watch` and `top` off and on; shorter is better"
                    .to_owned(),
                groups: vec![
                    group("median", |it| it.p50_ns),
                    group("p99", |it| it.p99_ns),
                ],
            },
        }
    }

    fn details(&self) -> Details {
        let us = |ns: u64| ns as f64 / 1e3;
        let mut text =
            String::from("| round trips, us | n | p50 | p99 | max |\n|---|---|---|---|---|\n");
        for (name, of) in [("off", &self.off), ("on", &self.on)] {
            let _ = writeln!(
                text,
                "| {name} | {} | {:.1} | {:.1} | {:.1} |",
                of.n,
                us(of.p50_ns),
                us(of.p99_ns),
                us(of.max_ns)
            );
        }
        let of = |(value, low, high): (f64, f64, f64)| format!("{value:.2} [{low:.2}, {high:.2}]");
        let _ = writeln!(
            text,
            "\nOn over off, with 95 % intervals: p50 {}, p99 {}. CPU time over a minute, % of one CPU: watch {:.3}, top {:.3}. \
             `measure`, at its 180 requests per second: {:.3}, and its client {:.3}, which may run on another machine.",
            of(self.p50),
            of(self.p99),
            self.watch_percent,
            self.top_percent,
            self.measure_percent,
            self.client_percent
        );
        Details {
            command: "make watching-tests".to_owned(),
            warning: format!(
                "It runs on the machine itself, not in the lab. A process that holds a KVM VM serves NetRT on loopback by the \
                 thread of its VCPU. In one half of each of {} rounds `steadyvm watch` and `steadyvm top` (one frame per second, \
                 each wake-up traced, `wake_ups_from` is {}) are on, in the other they are off; the thread's rank stays. Client \
                 and service have one CPU.",
                self.rounds, self.source
            ),
            tables: text,
            facts: Vec::new(),
        }
    }
}
