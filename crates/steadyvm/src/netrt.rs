//! `steadyvm netrt`: the two ends of the measured service, for use by hand, by `measure` and by the lab.

use std::io::{Read as _, stdin};
use std::net::{SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result};
use clap::Subcommand;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use steadyvm_host::HostError;
use steadyvm_load::netrt::{self, ClientOptions, ClientRun, End, EndedBy, Progress};
use steadyvm_measure::client::Line;
use steadyvm_measure::order;
use steadyvm_stats::Summary;

use steadyvm_cli::output;

/// Serve NetRT, the measured request/response service, or measure it.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Answer requests on this address until killed; prints "ready" when it listens.
    Serve {
        /// Address and UDP port, such as 0.0.0.0:7700.
        address: SocketAddr,
    },
    /// Send requests at random times to a server and time every reply.
    Client(ClientArgs),
}

/// One run of a client.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct ClientArgs {
    /// The server: HOST:PORT.
    pub service: String,
    /// Counted requests.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub samples: u64,
    /// Requests per second, on average.
    #[arg(long, value_name = "N", default_value_t = 180.0, value_parser = rate)]
    pub rate: f64,
    /// Requests before the counted ones.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub warmup: u64,
    /// Seed of the schedule: the same seed, the same times of sending.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print JSON lines: news of progress, then the run with every round trip.
    #[arg(long)]
    pub json: bool,
    /// End when standard input does: with the program that started it.
    #[arg(long)]
    pub until_input_ends: bool,
}

/// Reads a rate of requests.
pub fn rate(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.01..=100_000.0).contains(&number) {
        Ok(number)
    } else {
        Err("requests per second are between 0.01 and 100000".into())
    }
}

impl ClientArgs {
    fn options(&self) -> ClientOptions {
        ClientOptions {
            seed: self.seed,
            intervals: order::intervals(self.rate),
            warmup: self.warmup,
            end: End::Requests(self.samples),
            ..ClientOptions::default()
        }
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.verb {
        Verb::Serve { address } => serve(*address),
        Verb::Client(args) => client(args),
    }
}

fn serve(address: SocketAddr) -> Result<ExitCode> {
    let socket = UdpSocket::bind(address)
        .with_context(|| format!("cannot listen on {address}; choose a free address and port"))?;
    println!("ready on {}", socket.local_addr()?);
    netrt::serve(&socket, &AtomicBool::new(false))?;
    Ok(ExitCode::SUCCESS)
}

fn client(args: &ClientArgs) -> Result<ExitCode> {
    let socket = connect(&args.service)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    if args.until_input_ends {
        let stop = Arc::clone(&stop);
        thread::spawn(move || {
            // An error is an end too.
            let _ = stdin().lock().read_to_end(&mut Vec::new());
            stop.store(true, Ordering::Relaxed);
        });
    }
    let mut tell = |progress: Progress| {
        let line = Line::Progress {
            requests: progress.requests,
            answered: progress.answered,
        };
        if args.json && print_line(&line).is_err() {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let run = netrt::run(&socket, &args.options(), &stop, &mut tell)?;
    let ended_by = run.ended_by;
    if args.json {
        print_line(&Line::Run(Box::new(run)))?;
    } else {
        output::print(&summary(&run))?;
    }
    Ok(ExitCode::from(u8::from(ended_by == EndedBy::Stopped)))
}

fn print_line(line: &Line) -> Result<()> {
    output::line(&serde_json::to_string(line)?)
}

/// A UDP socket that sends to the service and hears nobody else.
fn connect(service: &str) -> Result<UdpSocket> {
    let wrong = |why: String| HostError::BadInput {
        what: format!("cannot use the service `{service}`: {why}"),
        fix: "write HOST:PORT, such as 192.0.2.10:7700".into(),
    };
    let addresses = service
        .to_socket_addrs()
        .map_err(|error| wrong(error.to_string()))?;
    let mut last = "it has no address".to_owned();
    for address in addresses {
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
        };
        let connected = UdpSocket::bind(any).and_then(|socket| {
            socket.connect(address)?;
            Ok(socket)
        });
        match connected {
            Ok(socket) => return Ok(socket),
            Err(error) => last = format!("{address}: {error}"),
        }
    }
    Err(wrong(last).into())
}

fn summary(run: &ClientRun) -> String {
    let round_trips: Vec<u64> = run.samples.iter().map(|sample| sample.rtt_ns).collect();
    let lost = run.counters.lost;
    let Some(found) = Summary::of(&round_trips) else {
        return format!(
            "no reply to {} requests, {} refusals\n",
            run.counters.requests, run.counters.refusals
        );
    };
    let us = |ns: f64| ns / 1e3;
    format!(
        "{} round trips, {lost} lost; in µs: mean {:.1}, SD {:.1}, p50 {:.1}, p99 {:.1}, max {:.1}\n",
        found.n,
        us(found.mean_ns),
        us(found.sd_ns.unwrap_or(0.0)),
        us(found.p50_ns as f64),
        us(found.p99_ns as f64),
        us(found.max_ns as f64),
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use steadyvm_measure::client::Ask;

    use super::*;

    #[derive(clap::Parser)]
    struct Only {
        #[command(flatten)]
        client: ClientArgs,
    }

    #[test]
    fn words_mean_the_arguments_they_were_made_of() {
        let arguments = ClientArgs {
            service: "[::1]:7".into(),
            samples: 3,
            rate: 0.5,
            warmup: 0,
            seed: u64::MAX,
            json: true,
            until_input_ends: true,
        };
        let ask = Ask {
            service: "[::1]:7".into(),
            samples: 3,
            rate: 0.5,
            warmup: 0,
            seed: u64::MAX,
        };
        let words = ["netrt".to_owned()].into_iter().chain(ask.words());
        assert_eq!(Only::parse_from(words).client, arguments);
    }

    #[test]
    fn a_rate_has_a_range() {
        assert!(rate("0").is_err() && rate("1e9").is_err() && rate("NaN").is_err());
        assert_eq!(rate("180"), Ok(180.0));
    }

    #[test]
    fn a_client_measures_a_server_and_says_what_it_found() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| netrt::serve(&server, &stop));
            let socket = connect(&address.to_string()).unwrap();
            let options = ClientOptions {
                warmup: 0,
                end: End::Requests(5),
                ..ClientOptions::default()
            };
            let run = netrt::run(&socket, &options, &AtomicBool::new(false), &mut |_| {});
            stop.store(true, Ordering::Relaxed);
            let run = run.unwrap();
            assert!(
                summary(&run).starts_with("5 round trips, 0 lost"),
                "{run:?}"
            );
            let line = serde_json::to_string(&Line::Run(Box::new(run.clone()))).unwrap();
            let Line::Run(read) = serde_json::from_str(&line).unwrap() else {
                panic!("{line}");
            };
            assert_eq!(*read, run);
        });
    }
}
