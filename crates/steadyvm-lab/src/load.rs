//! `steadyvm-lab load`: the loads of the lab's experiments, for use by hand and by the lab.

mod attack;
mod job;
mod layer2;

use std::io::{self, BufRead};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Subcommand, ValueEnum};
use steadyvm_load::netrt::ClientOptions;
use steadyvm_load::{connections, end_to_end, flood, netrt, stream};

use steadyvm_cli::output;

/// The loads of the lab's experiments.
///
/// `attack`, `publish` and `subscribe` run for a time. The others serve the program that writes lines to their
/// standard input, until it ends, and answer each line with one line of JSON.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Attack(attack::Args),
    /// TCP connections of this machine to itself, by 127.0.0.1.
    ///
    /// Each line asks for some requests, such as {"requests": 100, "bytes": 64, "open": 1}: to so many connections that are
    /// open, in turn; with 0 each has its own, from connect to close. Answers how long each took, in nanoseconds.
    #[allow(clippy::doc_markdown)] // JSON for a terminal
    #[command(verbatim_doc_comment)]
    Connections,
    Job(job::Args),
    Publish(layer2::Publish),
    Subscribe(layer2::Subscribe),
    /// The first and the last stage of a task over two machines.
    ///
    /// "calibrate MICROSECONDS" answers how many units of work take that long. "run TASK" does the jobs of a task, such as
    /// {"period_us": 100000, "work": 1000, "jobs": 200, "timeout_us": 1000000, "run": 1}. For each job it computes, sends
    /// the job to the second stage, and computes again when the answer comes. It answers when each job was released and
    /// finished, and how many were lost.
    #[allow(clippy::doc_markdown)] // JSON for a terminal
    #[command(verbatim_doc_comment)]
    Pipeline {
        /// Address and port of the second stage, such as 10.0.0.2:7702.
        address: SocketAddr,
    },
    /// The second stage of such a task.
    ///
    /// "calibrate MICROSECONDS" answers how many units of work take that long, "work UNITS" sets how many it does.
    #[command(verbatim_doc_comment)]
    Stage {
        /// Address and port, such as 0.0.0.0:7702.
        address: SocketAddr,
    },
    /// Receive UDP packets, or TCP connections one after the other.
    ///
    /// "count" answers how many packets (of TCP: bytes) have come so far and when that was, in
    /// nanoseconds after the start: {"received": 1200, "at_ns": 34000000}.
    #[allow(clippy::doc_markdown)] // JSON for a terminal
    #[command(verbatim_doc_comment)]
    Sink {
        /// Address and port, such as 0.0.0.0:7701.
        address: SocketAddr,
        /// What to receive.
        #[arg(long, value_enum, default_value_t = Protocol::Udp)]
        protocol: Protocol,
    },
    /// Send UDP packets as fast as they go: from "start" to "stop", which answers how many were sent so far.
    Flood {
        /// Where to, such as 10.0.0.2:7701.
        address: SocketAddr,
        /// Bytes of each packet.
        #[arg(default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1472))]
        bytes: u16,
    },
    /// Send NetRT requests, once for each line: the client's options, such as {"seed": 1, "warmup": 50}.
    /// Answers the round trips.
    #[allow(clippy::doc_markdown)] // JSON for a terminal
    #[command(verbatim_doc_comment)]
    Requests {
        /// The service's address and UDP port.
        address: SocketAddr,
    },
}

/// What packets are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    match args.verb {
        Verb::Attack(ref args) => args.run()?,
        Verb::Connections => {
            let server = connections::serve().context("cannot listen on 127.0.0.1")?;
            serve(|line| {
                let asked = serde_json::from_str(line).context("connections wants JSON")?;
                Ok(serde_json::to_string(&connections::measure(
                    server, &asked,
                )?)?)
            })?;
        }
        Verb::Job(ref args) => job::run(args)?,
        Verb::Publish(ref args) => args.run()?,
        Verb::Subscribe(ref args) => args.run()?,
        Verb::Pipeline { address } => {
            let socket = connected(address)?;
            serve(|line| match line.split_once(' ') {
                Some(("calibrate", time)) => job::calibrate(time),
                Some(("run", task)) => {
                    let task = serde_json::from_str(task).context("run wants a task in JSON")?;
                    Ok(serde_json::to_string(&end_to_end::run(&socket, &task)?)?)
                }
                _ => Err(job::no_request(line, "calibrate MICROSECONDS, or run TASK")),
            })?;
        }
        Verb::Stage { address } => {
            let socket = UdpSocket::bind(address)
                .with_context(|| format!("cannot listen on {address}; choose a free port"))?;
            let units = Arc::new(AtomicU64::new(0));
            let of_stage = Arc::clone(&units);
            thread::spawn(move || end_to_end::answer(&socket, &of_stage));
            serve(|line| match line.split_once(' ') {
                Some(("calibrate", time)) => job::calibrate(time),
                Some(("work", number)) => {
                    let number = number.parse().context("work wants a number of units")?;
                    units.store(number, Ordering::Relaxed);
                    Ok(number.to_string())
                }
                _ => Err(job::no_request(
                    line,
                    "calibrate MICROSECONDS, or work UNITS",
                )),
            })?;
        }
        Verb::Sink { address, protocol } => {
            let received = start_sink(address, protocol)
                .with_context(|| format!("cannot listen on {address}; choose a free port"))?;
            let begun = Instant::now();
            serve(|line| match line {
                "count" => Ok(serde_json::to_string(&flood::Count {
                    received: received.load(Ordering::Relaxed),
                    at_ns: begun.elapsed().as_nanos() as u64,
                })?),
                other => Err(job::no_request(other, "count")),
            })?;
        }
        Verb::Flood { address, bytes } => {
            let flood = flood::Flood::new(connected(address)?, bytes.into());
            serve(|line| match line {
                "start" => {
                    flood.start();
                    Ok("started".to_owned())
                }
                "stop" => Ok(flood.stop().to_string()),
                other => Err(job::no_request(other, "start, or stop")),
            })?;
        }
        Verb::Requests { address } => {
            let socket = connected(address)?;
            serve(|line| {
                let options: ClientOptions =
                    serde_json::from_str(line).context("requests wants options in JSON")?;
                let never = AtomicBool::new(false);
                let run = netrt::run(&socket, &options, &never, &mut |_| {})?;
                Ok(serde_json::to_string(&run)?)
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Receives in a thread of its own; gives what counts packets or bytes.
fn start_sink(address: SocketAddr, protocol: Protocol) -> io::Result<Arc<AtomicU64>> {
    let received = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&received);
    match protocol {
        Protocol::Udp => {
            let socket = UdpSocket::bind(address)?;
            thread::spawn(move || flood::count(&socket, &counter));
        }
        Protocol::Tcp => {
            let listener = TcpListener::bind(address)?;
            thread::spawn(move || stream::count(&listener, &counter));
        }
    }
    Ok(received)
}

/// A UDP socket that knows its peer.
fn connected(address: SocketAddr) -> Result<UdpSocket> {
    let from: SocketAddr = if address.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(from).context("cannot open a UDP socket")?;
    socket
        .connect(address)
        .with_context(|| format!("cannot send to {address}; check that there is a route"))?;
    Ok(socket)
}

fn serve(mut answer: impl FnMut(&str) -> Result<String>) -> Result<()> {
    output::line("ready")?;
    for line in io::stdin().lock().lines() {
        output::line(&answer(line?.trim())?)?;
    }
    Ok(())
}
