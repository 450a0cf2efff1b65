//! `steadyvm lab experiment nisp`.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use steadyvm_host::Method;
use steadyvm_lab::Error;
use steadyvm_lab::artifact::Cache;
use steadyvm_lab::experiment::Meta;
use steadyvm_lab::experiment::nisp::{tcp, udp, write_output};
use steadyvm_lab::laboratory::{HostKernel, Laboratory, require_root};
use steadyvm_latency::bootstrap::BootstrapOptions;
use steadyvm_latency::nisp;

use crate::kernel::InsteadArgs;
use crate::load::Protocol;
use crate::machine::Beginning;
use crate::methods::without_repeats;
use crate::progress::Display;
use crate::{directory, output, this_program};

const RATES: u32 = 8;
const SEED: u64 = 1;
const ROUNDS: u64 = 3;
const STREAM_S: u32 = 5;

/// The experiment's options.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Methods to measure.
    #[arg(long, value_delimiter = ',', default_value = "vanilla,preempt-rt")]
    methods: Vec<Method>,
    /// What comes for the low-priority process: UDP in bursts at rising rates, or a TCP stream at full speed.
    #[arg(long, value_enum, default_value_t = Protocol::Udp)]
    protocol: Protocol,
    #[command(flatten)]
    kernel: InsteadArgs,
    /// Jobs at each rate; with TCP, in each round without the stream and as many next to it.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(3..=100_000))]
    jobs: u64,
    /// UDP only: rates, evenly from 0 (measured besides) to the best method's peak [default: 8].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rates: Option<u32>,
    /// UDP only: the highest rate at which peaks are looked for, in packets a second. A host that receives fewer than
    /// come may answer no more: one whose kernel checks itself needs a low one [default: 64000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    peak_up_to: Option<u32>,
    /// UDP only: seed of the packets' schedules [default: 1].
    #[arg(long)]
    seed: Option<u64>,
    /// TCP only: rounds [default: 3].
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: Option<u64>,
    /// TCP only: how long the stream flows before the jobs, and again after them, in seconds [default: 5].
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=3600))]
    stream_s: Option<u32>,
    /// Where the figures (of UDP: nisp.json; of TCP: results.json, report.html and the other files) and the
    /// hosts' logs go; made if it does not exist.
    #[arg(long, value_name = "DIR", default_value = "out/nisp")]
    out: PathBuf,
    /// Print the figures as JSON instead of the table.
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Refuses options that the protocol has no use for.
    fn check(&self) -> steadyvm_lab::Result<()> {
        let (given, other) = match self.protocol {
            Protocol::Udp => (
                &[
                    ("--rounds", self.rounds.is_some()),
                    ("--stream-s", self.stream_s.is_some()),
                ][..],
                "tcp",
            ),
            Protocol::Tcp => (
                &[
                    ("--rates", self.rates.is_some()),
                    ("--seed", self.seed.is_some()),
                    ("--peak-up-to", self.peak_up_to.is_some()),
                ][..],
                "udp",
            ),
        };
        match given.iter().find(|(_, is_given)| *is_given) {
            None => Ok(()),
            Some((option, _)) => {
                let why = format!("{option} is an option of --protocol {other} only");
                Err(Error::input("measure NISP's experiment", why)
                    .what_to_do("leave it out, or choose the other protocol"))
            }
        }
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    args.check()?;
    let methods = without_repeats(&args.methods);
    let own = |&method: &Method| (method, HostKernel::of(method));
    let wanted = args.kernel.wanted(methods.iter().map(own), false)?;
    directory::prepare(&args.out)?;
    require_root()?;
    let display = Display::on_standard_error();
    let beginning = Beginning::now();
    let (cache, program) = (Cache::of_this_machine()?, this_program());
    let logs = args.out.join("logs");
    let mut laboratory = Laboratory::open(&cache, &program, &logs, &wanted, &display)?;
    laboratory.kernel_instead = args.kernel.kernel();
    match args.protocol {
        Protocol::Udp => with_udp(args, methods, &laboratory, &display)?,
        Protocol::Tcp => with_tcp(args, methods, &laboratory, &display, &beginning)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn with_udp(
    args: &Args,
    methods: Vec<Method>,
    laboratory: &Laboratory,
    display: &Display,
) -> Result<()> {
    let options = udp::Options {
        methods,
        last_packets_per_s: args.peak_up_to.unwrap_or(udp::LAST_PACKETS_PER_S),
        rates: args.rates.unwrap_or(RATES),
        jobs: args.jobs,
        seed: args.seed.unwrap_or(SEED),
    };
    let results = udp::run(laboratory, &options, display)?;
    let path = args.out.join("nisp.json");
    let json = serde_json::to_string_pretty(&results)? + "\n";
    fs::write(&path, &json).with_context(|| format!("cannot write {}", path.display()))?;
    if args.json {
        return output::print(&json);
    }
    output::print(&nisp::udp::render(&results))?;
    if let Some(note) = laboratory.note() {
        output::line(&format!("\nnote: {note}"))?;
    }
    output::line(&format!("\nall figures: {}", path.display()))
}

fn with_tcp(
    args: &Args,
    methods: Vec<Method>,
    laboratory: &Laboratory,
    display: &Display,
    beginning: &Beginning,
) -> Result<()> {
    let options = tcp::Options {
        methods,
        rounds: args.rounds.unwrap_or(ROUNDS),
        load: tcp::Load {
            jobs: args.jobs,
            stream_s: args.stream_s.unwrap_or(STREAM_S),
        },
    };
    let tcp::Outcome { data, disturbance } = tcp::run(laboratory, &options, display)?;
    let assembled = nisp::tcp::assemble(&data, BootstrapOptions::default());
    let mut results =
        assembled.context("there are fewer than three jobs; give more with --jobs")?;
    results.notes.extend(laboratory.note());
    results.notes.extend(disturbance.notes());
    let kernel = |method: &Method| laboratory.kernel_title(laboratory.kernel_of(*method));
    let kernels = options
        .methods
        .iter()
        .map(|it| (it.to_string(), kernel(it)));
    let meta = Meta {
        run: beginning.record(laboratory, kernels.collect(), disturbance, Vec::new()),
        endpoints: None,
        seed: None,
    };
    write_output(&args.out, &data, &results, &meta)?;
    if args.json {
        return output::json(&results);
    }
    output::print(&nisp::tcp::render(&results))?;
    let report = args.out.join("report.html");
    output::line(&format!("\nreport: {}", report.display()))
}
