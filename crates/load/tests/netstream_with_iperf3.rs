//! NetStream's command lines and parser against the real iperf3, on loopback.
//!
//! Needs the package `iperf3` (make test installs it).
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use steadyvm_load::netstream::{ClientCommand, NetStreamError, ServerCommand, parse};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[test]
fn a_stream_at_full_speed_is_measured() {
    let server = Server::start();
    let client = ClientCommand {
        omit_s: 1,
        ..server.client()
    };
    let run = parse(&output_of(&client)).unwrap();
    assert!(run.mbit_per_s > 100.0, "{run:?}");
    assert!((0.9..3.0).contains(&run.duration_s), "{run:?}");
    assert!(run.retransmits.is_some());
    // The omitted second is not among them.
    let covered_s: f64 = run.intervals.iter().map(|it| it.end_s - it.start_s).sum();
    assert!((covered_s - run.duration_s).abs() < 0.5, "{run:?}");
    assert!(run.intervals[0].mbit_per_s > 100.0);
    assert!(run.sender_cpu_fraction > 0.0 && run.receiver_cpu_fraction > 0.0);
}

#[test]
fn a_rate_is_the_rate_of_all_streams_together() {
    let server = Server::start();
    let client = ClientCommand {
        streams: 2,
        total_mbit_per_s: Some(80.0),
        duration_s: 2,
        ..server.client()
    };
    let run = parse(&output_of(&client)).unwrap();
    // 160 if the rate were each stream's.
    assert!((60.0..=100.0).contains(&run.mbit_per_s), "{run:?}");
}

#[test]
fn a_missing_server_is_iperfs_own_error() {
    let port = free_port();
    let client = ClientCommand {
        port,
        ..ClientCommand::to_server(LOOPBACK, 1)
    };
    let error = parse(&output_of(&client)).unwrap_err();
    assert!(matches!(error, NetStreamError::Iperf(_)), "{error}");
    assert!(error.to_string().contains("unable to connect"), "{error}");
}

/// iperf3 -s, killed when dropped.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    /// Returns when the server says that it listens.
    fn start() -> Self {
        let port = free_port();
        let command = ServerCommand {
            port,
            bind: Some(LOOPBACK),
            one_off: true,
        };
        let mut process = iperf3(&command.arguments())
            .arg("--forceflush")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}", not_started(&error)));
        let said = BufReader::new(process.stdout.take().unwrap());
        let listens = said
            .lines()
            .map_while(Result::ok)
            .any(|line| line.contains("Server listening"));
        let server = Self { process, port };
        assert!(listens, "iperf3's server ended before it listened");
        server
    }

    fn client(&self) -> ClientCommand {
        ClientCommand {
            port: self.port,
            omit_s: 0,
            ..ClientCommand::to_server(LOOPBACK, 1)
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn output_of(client: &ClientCommand) -> String {
    let output = iperf3(&client.arguments()).output();
    let output = output.unwrap_or_else(|error| panic!("{}", not_started(&error)));
    String::from_utf8(output.stdout).unwrap()
}

fn iperf3(arguments: &[String]) -> Command {
    let mut command = Command::new("iperf3");
    command.args(arguments).stdin(Stdio::null());
    command
}

fn not_started(error: &std::io::Error) -> String {
    if error.kind() == ErrorKind::NotFound {
        "iperf3 is not installed: apt-get install iperf3 (make test installs it)".to_owned()
    } else {
        format!("iperf3 cannot be started: {error}")
    }
}

fn free_port() -> u16 {
    TcpListener::bind((LOOPBACK, 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}
