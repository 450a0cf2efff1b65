//! The verb `load` as the lab uses it. Nothing here needs the lab.

#![allow(clippy::unwrap_used)] // helpers of tests

use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicBool;
use steadyvm_load::end_to_end;
use steadyvm_load::flood::Count;
use steadyvm_load::job::{Ran, Task};
use steadyvm_load::stream;

/// `steadyvm load WORDS`, ready.
struct Load {
    child: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Load {
    fn start(words: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_steadyvm"))
            .arg("load")
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let requests = child.stdin.take().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(answers.next().unwrap().unwrap(), "ready");
        Self {
            child,
            requests,
            answers,
        }
    }

    fn ask<T: DeserializeOwned>(&mut self, request: &str) -> T {
        writeln!(self.requests, "{request}").unwrap();
        let answer = self.answers.next().unwrap().unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    fn count(&mut self) -> Count {
        self.ask("count")
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// Each sink has a loopback address of its own, so that its port is free.

#[test]
fn a_sink_of_tcp_counts_bytes_and_tells_when() {
    let address = "127.77.0.1:7701";
    let mut sink = Load::start(&["sink", address, "--protocol", "tcp"]);
    let before = sink.count();
    assert_eq!(before.received, 0);
    let connection = TcpStream::connect(address).unwrap();
    (&connection).write_all(&[0; 1234]).unwrap();
    // Nothing more; it returns when the sink has everything.
    stream::send(&connection, &AtomicBool::new(true)).unwrap();
    let after = sink.count();
    assert_eq!(after.received, 1234);
    assert!(after.at_ns > before.at_ns, "{before:?} {after:?}");
}

#[test]
fn a_sink_is_of_udp_unless_told_otherwise_and_counts_packets() {
    let address = "127.77.0.2:7701";
    let mut sink = Load::start(&["sink", address]);
    let sender = UdpSocket::bind("127.77.0.2:0").unwrap();
    for _ in 0..3 {
        sender.send_to(&[0; 64], address).unwrap();
    }
    // Loopback loses none, but the sink may have yet to read them.
    while sink.count().received < 3 {}
    assert_eq!(sink.count().received, 3);
}

#[test]
fn jobs_are_done_and_what_they_waited_is_told() {
    let mut load = Load::start(&["job"]);
    let units: u64 = load.ask("calibrate 100");
    let task = Task {
        period_us: 1000,
        work: units,
        jobs: 5,
        backlog: false,
    };
    let request = format!("run {}", serde_json::to_string(&task).unwrap());
    let ran: Ran = load.ask(&request);
    let last_ns = ran.done[4].finished_ns;
    assert_eq!(ran.done.len(), 5);
    assert!(last_ns > 4_000_000 && ran.waited_ns < last_ns, "{ran:?}");
}

#[test]
fn a_task_over_two_is_done_in_all_stages() {
    let address = "127.77.0.4:7702";
    let mut stage = Load::start(&["stage", address]);
    let units: u64 = stage.ask("calibrate 100");
    assert_eq!(stage.ask::<u64>(&format!("work {units}")), units);
    let mut pipeline = Load::start(&["pipeline", address]);
    let task = end_to_end::Task {
        period_us: 2000,
        work: pipeline.ask("calibrate 100"),
        jobs: 4,
        timeout_us: 60_000_000,
        run: 1,
    };
    let request = format!("run {}", serde_json::to_string(&task).unwrap());
    let ran: end_to_end::Ran = pipeline.ask(&request);
    assert_eq!((ran.done.len(), ran.lost), (4, 0), "{ran:?}");
}

#[test]
fn jobs_and_misses_are_reported() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("report");
    let mut load = Load::start(&["job", "--report", path.to_str().unwrap()]);
    // Longer than its period, whatever machine this is.
    let task = Task {
        period_us: 1,
        work: 1000,
        jobs: 5,
        backlog: false,
    };
    for runs in 1..=2 {
        let request = format!("run {}", serde_json::to_string(&task).unwrap());
        let _: Ran = load.ask(&request);
        let text = std::fs::read_to_string(&path).unwrap();
        let jobs = 5 * runs;
        let last = format!("{{\"jobs\":{jobs},\"misses\":{jobs}}}");
        assert_eq!(text.lines().last(), Some(last.as_str()), "{text}");
    }
}

#[test]
fn an_address_that_cannot_be_listened_on_is_named() {
    let taken = std::net::TcpListener::bind("127.77.0.3:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let done = Command::new(env!("CARGO_BIN_EXE_steadyvm"))
        .args(["load", "sink", &address, "--protocol", "tcp"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && said.contains(&address), "{said}");
}
