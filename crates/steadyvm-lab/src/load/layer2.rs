//! `steadyvm-lab load publish` and `load subscribe`: Sampled Values and GOOSE on an interface.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, PcapError, TsResolution};
use signal_hook::consts::{SIGINT, SIGTERM};
use steadyvm_cli::output;
use steadyvm_fault::Fault;
use steadyvm_load::layer2::{
    Limits, MOST_STREAMS, PacketSocket, Publication, Published, Tag, TallyReport, publish,
    subscribe,
};

/// What is sent or received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// IEC 61850-9-2 (0x88BA).
    SampledValues,
    /// IEC 61850-8-1 (0x88B8).
    Goose,
}

impl From<Protocol> for steadyvm_load::layer2::Protocol {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::SampledValues => Self::SampledValues,
            Protocol::Goose => Self::Goose,
        }
    }
}

/// Publish one to eight streams of Sampled Values or GOOSE on an interface.
///
/// Stream N is called steadyvmNN and goes to 01:0c:cd:04:00:NN (GOOSE: 01:0c:cd:01:00:NN). Each frame carries a sequence number
/// and when it was sent, for `load subscribe`. The frames are those of the standards, so that other subscribers read them, too.
/// Ctrl-C ends it early. Needs root (`CAP_NET_RAW`).
#[derive(Debug, clap::Args)]
pub struct Publish {
    /// The interface, such as eth0.
    interface: String,
    /// What to publish.
    #[arg(long, value_enum, default_value_t = Protocol::SampledValues)]
    protocol: Protocol,
    /// How many streams.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_STREAMS)))]
    streams: u8,
    /// For so many seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Samples per second and stream: 4000 where the network has 50 Hz, 4800 where it has 60 Hz.
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    rate: u32,
    /// GOOSE: milliseconds from an event to its first repetition. Each next pause is twice as long.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    shortest_ms: u64,
    /// GOOSE: the longest pause between two repetitions, in milliseconds.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    longest_ms: u64,
    /// GOOSE: milliseconds from one event to the next.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    event_ms: u64,
    /// Tag the frames with this VLAN; 0: with a priority alone.
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=4094))]
    vlan: Option<u16>,
    /// The priority code point of tagged frames; alone it makes a tag of VLAN 0.
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=7))]
    priority: Option<u8>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Receive Sampled Values or GOOSE on an interface, and tell what was lost, out of order and late.
///
/// Says "listening" on standard error as soon as no frame is missed. Counts the streams of `load publish`; other publishers'
/// frames are counted together. Latencies need one clock for both ends, as on one machine. Ctrl-C ends it early. Needs root
/// (`CAP_NET_RAW`).
#[derive(Debug, clap::Args)]
pub struct Subscribe {
    /// The interface, such as eth0.
    interface: String,
    /// What to receive.
    #[arg(long, value_enum, default_value_t = Protocol::SampledValues)]
    protocol: Protocol,
    /// For so many seconds at most.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// End after so many frames of `load publish`.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    frames: Option<u64>,
    /// Write all frames that come to this file, which must not exist: a capture as Wireshark reads it.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Publish {
    fn publication(&self) -> Publication {
        let ms = Duration::from_millis;
        match self.protocol {
            Protocol::SampledValues => Publication::SampledValues {
                per_second: self.rate,
            },
            Protocol::Goose => Publication::Goose {
                shortest: ms(self.shortest_ms),
                longest: ms(self.longest_ms),
                events_apart: ms(self.event_ms),
            },
        }
    }

    fn tag(&self) -> Option<Tag> {
        let is_tagged = self.vlan.is_some() || self.priority.is_some();
        is_tagged.then(|| Tag {
            vlan: self.vlan.unwrap_or_default(),
            priority: self.priority.unwrap_or_default(),
        })
    }

    /// Runs the verb.
    pub fn run(&self) -> Result<()> {
        let socket = PacketSocket::sending(&self.interface)
            .map_err(|error| refused("send on", &self.interface, &error))?;
        let duration = Duration::from_secs(self.seconds.into());
        let (publication, stop) = (self.publication(), stopped_by_signals()?);
        let published = publish(
            &socket,
            &publication,
            self.streams,
            self.tag(),
            duration,
            &stop,
        )
        .map_err(|error| refused("send on", &self.interface, &error))?;
        if self.json {
            return output::json(&published);
        }
        let Published {
            sent,
            refused,
            duration_s,
            latest_us,
        } = published;
        output::line(&format!(
            "sent {sent} frames in {duration_s:.1} s; {refused} had no room on the way out; the latest was {latest_us:.0} us late"
        ))
    }
}

impl Subscribe {
    /// Runs the verb.
    pub fn run(&self) -> Result<()> {
        let protocol = self.protocol.into();
        let addresses = (1..=MOST_STREAMS).map(|stream| {
            let protocol: steadyvm_load::layer2::Protocol = protocol;
            protocol.destination(stream)
        });
        let mut capture = self.pcap.as_deref().map(Capture::at).transpose()?;
        let stop = stopped_by_signals()?;
        let cannot = |error: &io::Error| refused("receive on", &self.interface, error);
        let socket = PacketSocket::receiving(&self.interface, protocol, addresses)
            .map_err(|error| cannot(&error))?;
        output::say(&format!("listening on {}", self.interface));
        let limits = Limits {
            duration: Duration::from_secs(self.seconds.into()),
            frames: self.frames,
        };
        let mut keep = |time, frame: &[u8]| match &mut capture {
            Some(capture) => capture.keep(time, frame),
            None => Ok(()),
        };
        let tally =
            subscribe(&socket, &limits, &stop, &mut keep).map_err(|error| cannot(&error))?;
        if let Some(capture) = capture {
            capture.end()?;
        }
        let report = tally.report();
        if self.json {
            return output::json(&report);
        }
        output::print(&table(&report))
    }
}

/// A flag that SIGINT and SIGTERM set.
pub(super) fn stopped_by_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .context("cannot hear of Ctrl-C on this machine")?;
    }
    Ok(stop)
}

pub(super) fn refused(what: &str, interface: &str, error: &io::Error) -> Fault {
    let what = format!("cannot {what} interface {interface}");
    match error.raw_os_error() {
        Some(nix::libc::ENODEV) => Fault::input(what, "this machine has none of that name")
            .what_to_do("`ip link` lists them"),
        Some(nix::libc::EPERM | nix::libc::EACCES) => {
            Fault::machine(what, error).what_to_do("run it as root, or with CAP_NET_RAW")
        }
        Some(nix::libc::ENETDOWN) => {
            Fault::machine(what, error).what_to_do(format!("ip link set {interface} up"))
        }
        _ => Fault::machine(what, error),
    }
}

/// A capture that is written.
struct Capture(PcapWriter<BufWriter<File>>);

impl Capture {
    fn at(path: &Path) -> Result<Self> {
        let file = File::create_new(path).map_err(|error| {
            Fault::input(
                format!("cannot write a capture to {}", path.display()),
                error,
            )
            .what_to_do("name a file that is not there yet, in a directory that is")
        })?;
        let header = PcapHeader {
            datalink: DataLink::ETHERNET,
            ts_resolution: TsResolution::NanoSecond,
            ..PcapHeader::default()
        };
        let writer = PcapWriter::with_header(BufWriter::new(file), header);
        Ok(Self(writer.context("cannot write the capture")?))
    }

    fn keep(&mut self, time: Duration, frame: &[u8]) -> io::Result<()> {
        let packet = PcapPacket::new(time, frame.len() as u32, frame);
        let written = self.0.write_packet(&packet);
        written.map(drop).map_err(|error| match error {
            PcapError::IoError(error) => error,
            other => io::Error::other(other),
        })
    }

    fn end(self) -> Result<()> {
        let mut file = self.0.into_writer();
        file.flush()
            .context("cannot write the end of the capture; is there room?")
    }
}

fn table(report: &TallyReport) -> String {
    let mut text = format!(
        "{:<12} {:>9} {:>7} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
        "stream", "received", "lost", "again", "disorder", "p50 us", "p99 us", "p99.9 us", "gap us"
    );
    for stream in &report.streams {
        let latency = stream.latency.as_ref().filter(|_| stream.clock_behind == 0);
        let figure = |of: Option<f64>| of.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}"));
        let _ = writeln!(
            text,
            "{:<12} {:>9} {:>7} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9.0}",
            stream.name,
            stream.received,
            stream.lost,
            stream.duplicates,
            stream.out_of_order,
            figure(latency.map(|it| it.p50_us)),
            figure(latency.map(|it| it.p99_us)),
            figure(latency.map(|it| it.p999_us)),
            stream.longest_gap_us,
        );
    }
    let _ = writeln!(
        text,
        "{} frames of other publishers, {} that are no such frames",
        report.foreign, report.malformed
    );
    if report.streams.iter().any(|stream| stream.clock_behind > 0) {
        text += "the clocks of both ends differ: no latencies\n";
    }
    text
}
