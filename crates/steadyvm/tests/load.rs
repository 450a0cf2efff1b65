//! The verb `load` as the lab uses it. Nothing here needs the lab.

#![allow(clippy::unwrap_used)] // helpers of tests

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicBool;
use steadyvm_latency::flood::Count;
use steadyvm_latency::stream;

/// `steadyvm load sink`, ready.
struct Sink {
    child: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Sink {
    fn start(words: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_steadyvm"))
            .args(["load", "sink"])
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

    fn count(&mut self) -> Count {
        writeln!(self.requests, "count").unwrap();
        let answer = self.answers.next().unwrap().unwrap();
        serde_json::from_str(&answer).unwrap()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// Each sink has a loopback address of its own, so that its port is free.

#[test]
fn a_sink_of_tcp_counts_bytes_and_tells_when() {
    let address = "127.77.0.1:7701";
    let mut sink = Sink::start(&[address, "--protocol", "tcp"]);
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
    let mut sink = Sink::start(&[address]);
    let sender = UdpSocket::bind("127.77.0.2:0").unwrap();
    for _ in 0..3 {
        sender.send_to(&[0; 64], address).unwrap();
    }
    // Loopback loses none, but the sink may have yet to read them.
    while sink.count().received < 3 {}
    assert_eq!(sink.count().received, 3);
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
