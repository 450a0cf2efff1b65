//! The loads of one phase: NetRT and NetStream from outside, into their receivers.

use std::io::{self, Read};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use steadyvm_comparison::ReceivePathData;
use steadyvm_lab::Namespace;
use steadyvm_lab::agent::{Connection, Process, Status};
use steadyvm_lab::child::{self, Child};
use steadyvm_lab::host::RT;
use steadyvm_lab::scheduling;
use steadyvm_lab::{At, Error, Result};
use steadyvm_load::netrt::{self, ClientOptions, ClientRun, End};
use steadyvm_load::netstream::{self, ClientCommand, NetStreamRun, ServerCommand};
use steadyvm_trace::receive_path::Report;

/// `explain` shows so many of the slowest packets if it is not told.
pub const SLOWEST: u64 = 3;
/// The NetRT service's UDP port.
pub const NETRT_PORT: u16 = 7700;
/// A service starts within this time, on a loaded machine too.
pub const SERVICE_PATIENCE: Duration = Duration::from_secs(60);
/// The longest time that is traced; a longer phase is traced at its beginning.
const TRACING_PATIENCE: Duration = Duration::from_secs(600);
/// How long the emulated host may take to make a report of what it recorded.
const TRACING_END_PATIENCE: Duration = Duration::from_secs(120);
/// Requests before the counted ones: about a second, in which translated code is cached and
/// TCP finds its speed.
pub const WARMUP_REQUESTS: u64 = 200;
/// A reply that takes longer is lost. The worst seen under `vanilla` is well below.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A stream ends by itself; one that has not ended this long after its time hangs, because the
/// other end is gone.
const STREAM_PATIENCE: Duration = Duration::from_secs(60);

/// A machine of the lab, the host or a guest, that receives a load.
pub struct Receiver {
    /// Where its processes are started.
    pub connection: Connection,
    /// Its address in the load's network.
    pub address: Ipv4Addr,
}

/// How much NetRT load a phase has.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Seed of the request schedule.
    pub seed: u64,
    /// Counted requests.
    pub samples: u64,
    /// Whether the phase is repeated with the host's receive path traced.
    pub receive_path: bool,
    /// TCP streams of `NetStream`.
    pub streams: u32,
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

    /// How long the stream must flow so that it ends after NetRT.
    fn stream_seconds(&self) -> u32 {
        longest_s(self.samples).ceil() as u32 + 1
    }
}

/// How long counted requests take with those before them, in seconds: the mean interval is 5.5 ms.
pub fn longest_s(requests: u64) -> f64 {
    (WARMUP_REQUESTS + requests) as f64 * 0.0055 * 1.05
}

/// Sends requests from outside at real-time priority until all are answered or lost.
pub fn run_netrt(outside: &Namespace, server: Ipv4Addr, load: &Load) -> Result<ClientRun> {
    ask(outside, server, &load.client_options())
}

/// The same with a load of the caller's.
pub fn ask(outside: &Namespace, server: Ipv4Addr, options: &ClientOptions) -> Result<ClientRun> {
    outside.enter(|| {
        scheduling::make_fifo(0, scheduling::CLIENT_PRIORITY)?;
        let what = "send NetRT requests";
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).doing(what)?;
        socket.connect((server, NETRT_PORT)).doing(what)?;
        let never = AtomicBool::new(false);
        netrt::run(&socket, options, &never, &mut |_| {}).doing(what)
    })
}

/// The host's receive path, being traced.
pub struct Tracing(Process);

/// Starts to trace what the host does with the packets of the RT network. Of so many of the slowest it will
/// say what the CPU did, in order.
pub fn start_tracing(host: &Connection, slowest: u64) -> Result<Tracing> {
    let longest = TRACING_PATIENCE.as_secs().to_string();
    let mut tracing = host.spawn(&[
        "steadyvm",
        "explain",
        "--receive-path",
        "--device",
        RT.name,
        "--seconds",
        &longest,
        "--worst",
        &slowest.to_string(),
        "--buffer-mib",
        "32",
        "--json",
    ])?;
    tracing.wait_for_line("recording", SERVICE_PATIENCE)?;
    Ok(Tracing(tracing))
}

impl Tracing {
    /// Ends it and gives what it found.
    pub fn finish(self) -> Result<ReceivePathData> {
        let (found, report) = self.report()?;
        Ok(ReceivePathData {
            wake_ups_ns: found.samples_ns,
            report,
        })
    }

    /// Ends it and gives its report, read and as it was written.
    pub fn report(self) -> Result<(Report, String)> {
        let what = "trace the host's receive path";
        self.0.signal(libc::SIGINT)?;
        let finished = self.0.finish(TRACING_END_PATIENCE)?;
        if finished.status != Status::Exited(0) {
            let said = String::from_utf8_lossy(&finished.error);
            return Err(Error::machine(what, format!("{}: {said}", finished.status)));
        }
        let report = finished.text();
        let found: Report = serde_json::from_str(&report).doing(what)?;
        Ok((found, report))
    }
}

/// What a NetStream shall be.
#[derive(Debug, Clone, Copy)]
pub struct Bulk {
    /// Its rate; as fast as possible if `None`.
    pub mbit_per_s: Option<f64>,
    /// TCP streams.
    pub streams: u32,
    /// How long it flows.
    pub seconds: u32,
}

impl Bulk {
    /// One at this rate that flows until the requests have ended.
    pub fn beside(load: &Load, mbit_per_s: Option<f64>) -> Self {
        Self {
            mbit_per_s,
            streams: load.streams,
            seconds: load.stream_seconds(),
        }
    }
}

/// A NetStream that flows.
pub struct Stream {
    client: Child,
    server: Process,
    /// When it has to have ended.
    deadline: Instant,
}

/// Starts iperf3 at the receiver and, when it listens, a client outside; returns when the stream
/// is accepted.
pub fn start_stream(outside: &Namespace, receiver: &Receiver, bulk: Bulk) -> Result<Stream> {
    let one_connection = ServerCommand {
        one_off: true,
        ..ServerCommand::default()
    };
    let arguments = one_connection.arguments();
    let mut argv = vec!["iperf3", "--forceflush"];
    argv.extend(arguments.iter().map(String::as_str));
    let mut server = receiver.connection.spawn(&argv)?;
    server.wait_for_line("listening", SERVICE_PATIENCE)?;
    let seconds = bulk.seconds;
    let stream = ClientCommand {
        total_mbit_per_s: bulk.mbit_per_s,
        streams: bulk.streams,
        ..ClientCommand::to_server(receiver.address.into(), seconds)
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
    Ok(Stream {
        client,
        server,
        deadline: Instant::now() + Duration::from_secs(seconds.into()) + STREAM_PATIENCE,
    })
}

impl Stream {
    /// Waits for its end and gives what it carried.
    pub fn finish(mut self) -> Result<NetStreamRun> {
        let what = "receive the iperf3 stream";
        let left = || self.deadline.saturating_duration_since(Instant::now());
        let said = read_to_end_within(self.client.streams().stdout.take(), left()).doing(what)?;
        self.client.wait()?;
        // The next stream's server wants the same port.
        self.server.finish(left())?;
        netstream::parse(&said).doing(what)
    }
}

/// Everything that `source` says until its end, if that comes within `patience`.
fn read_to_end_within(
    source: Option<impl Read + Send + 'static>,
    patience: Duration,
) -> io::Result<String> {
    let Some(mut source) = source else {
        return Ok(String::new());
    };
    let (sender, said) = channel();
    thread::spawn(move || {
        let mut text = String::new();
        let _ = sender.send(source.read_to_string(&mut text).map(|_| text));
    });
    said.recv_timeout(patience)
        .unwrap_or_else(|_| Err(io::Error::other("it hangs, its other end does not answer")))
}
