//! The loads of one phase: NetRT and NetStream from outside, into their receivers.

use super::receivers::Receiver;
use crate::agent::Process;
use crate::child::{self, Child};
use crate::error::{At, Result};
use crate::namespace::Namespace;
use crate::scheduling;
use std::io::Read;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use steadyvm_latency::netrt::{self, ClientOptions, ClientRun, End};
use steadyvm_latency::netstream::{self, ClientCommand, NetStreamRun, ServerCommand};

/// The NetRT service's UDP port.
pub const NETRT_PORT: u16 = 7700;
/// A service starts within this time, on a loaded machine too.
pub const SERVICE_PATIENCE: Duration = Duration::from_secs(60);
/// Requests before the counted ones: about a second, in which translated code is cached and
/// TCP finds its speed.
const WARMUP_REQUESTS: u64 = 200;
/// A reply that takes longer is lost. The worst seen under `vanilla` is well below.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How much NetRT load a phase has.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Seed of the request schedule.
    pub seed: u64,
    /// Counted requests.
    pub samples: u64,
}

impl Load {
    fn client_options(&self) -> ClientOptions {
        ClientOptions {
            seed: self.seed,
            warmup: WARMUP_REQUESTS,
            end: End::Requests(self.samples),
            timeout: TIMEOUT,
            ..ClientOptions::default()
        }
    }

    /// How long the stream must flow so that it ends after NetRT: the mean interval is 5.5 ms.
    fn stream_seconds(&self) -> u32 {
        let requests = (WARMUP_REQUESTS + self.samples) as f64;
        (requests * 0.0055 * 1.05).ceil() as u32 + 1
    }
}

/// Sends requests from outside at real-time priority until all are answered or lost.
pub fn run_netrt(outside: &Namespace, server: Ipv4Addr, load: &Load) -> Result<ClientRun> {
    outside.enter(|| {
        scheduling::make_fifo(0, scheduling::CLIENT_PRIORITY)?;
        let what = "send NetRT requests";
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).doing(what)?;
        socket.connect((server, NETRT_PORT)).doing(what)?;
        let never = AtomicBool::new(false);
        netrt::run(&socket, &load.client_options(), &never, &mut |_| {}).doing(what)
    })
}

/// A NetStream that flows.
pub struct Stream {
    client: Child,
    server: Process,
}

/// Starts iperf3 at the receiver and, when it listens, a client outside; returns when the stream
/// is accepted.
pub fn start_stream(
    outside: &Namespace,
    receiver: &Receiver,
    rate_mbit_per_s: Option<f64>,
    load: &Load,
) -> Result<Stream> {
    let one_connection = ServerCommand {
        one_off: true,
        ..ServerCommand::default()
    };
    let arguments = one_connection.arguments();
    let mut argv = vec!["iperf3", "--forceflush"];
    argv.extend(arguments.iter().map(String::as_str));
    let mut server = receiver.connection.spawn(&argv)?;
    server.wait_for_line("listening", SERVICE_PATIENCE)?;
    let stream = ClientCommand {
        total_mbit_per_s: rate_mbit_per_s,
        ..ClientCommand::to_server(receiver.address.into(), load.stream_seconds())
    };
    let mut command = Command::new("nice");
    command
        .args(["-n", "19", "iperf3"])
        .args(stream.arguments());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    outside.hold(&mut command)?;
    let client = child::spawn(command)?;
    server.wait_for_line("Accepted connection", SERVICE_PATIENCE)?;
    Ok(Stream { client, server })
}

impl Stream {
    /// Waits for its end and gives what it carried.
    pub fn finish(mut self) -> Result<NetStreamRun> {
        let what = "receive the iperf3 stream";
        let mut said = String::new();
        if let Some(mut output) = self.client.streams().stdout.take() {
            output.read_to_string(&mut said).doing(what)?;
        }
        self.client.wait()?;
        // The next stream's server wants the same port.
        self.server.follow(|_, _| {})?;
        netstream::parse(&said).doing(what)
    }
}
