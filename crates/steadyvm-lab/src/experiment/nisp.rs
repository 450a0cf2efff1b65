//! `steadyvm-lab experiment nisp`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::builder::RangedI64ValueParser;
use steadyvm_experiment::engine::results::Settings;
use steadyvm_experiment::nisp::{SCALE, SCALES, Times, tcp, udp};
use steadyvm_lab::Error;
use steadyvm_methods::Method;
use steadyvm_stats::bootstrap::BootstrapOptions;

use super::run::{Measured, Output, Run};
use crate::kernel::InsteadArgs;
use crate::load::Protocol;
use crate::methods::without_repeats;
use steadyvm_cli::markdown::MarkdownArgs;

const RATES: u32 = 8;
const SEED: u64 = 1;
const STREAM_S: u32 = 5;
const TOO_FEW_JOBS: &str = "there are fewer than three jobs; give more with --jobs";

/// The experiment's options.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Methods to measure.
    #[arg(long, value_delimiter = ',', default_value = "vanilla,preempt-rt", value_parser = Method::of_host_named)]
    methods: Vec<Method>,
    /// What the low-priority process receives: UDP in bursts at rising rates, or a TCP stream at full speed.
    #[arg(long, value_enum, default_value_t = Protocol::Udp)]
    protocol: Protocol,
    #[command(flatten)]
    kernel: InsteadArgs,
    /// Divide the paper's times by N: a job of 1200/N ms every 3000/N ms, with deadlines of 1600/N and 3000/N ms.
    ///
    /// A smaller N makes jobs longer, so pauses of this machine matter less; the run takes longer.
    #[arg(long, value_name = "N", default_value_t = SCALE, value_parser = scales())]
    scale: u32,
    /// Number of jobs. UDP: per method and rate in total, at least 3 per round. TCP: per round without the stream, and
    /// again with it.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(3..=100_000))]
    jobs: u64,
    /// Rounds.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// UDP only: number of rates, evenly from 0 (also measured) to the best method's peak [default: 8].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rates: Option<u32>,
    /// UDP only: the highest rate at which peaks are looked for, in packets per second [default: 64000].
    ///
    /// A host that receives fewer packets than come may stop answering: a debug kernel needs a low rate.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    peak_up_to: Option<u32>,
    /// UDP only: seed of the packets' schedules [default: 1].
    #[arg(long)]
    seed: Option<u64>,
    /// TCP only: how long the stream flows before the jobs, and again after them, in seconds [default: 5].
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=3600))]
    stream_s: Option<u32>,
    /// Where results.json, report.html and the other files go; made if it does not exist.
    #[arg(long, value_name = "DIR", default_value = "out/nisp")]
    out: PathBuf,
    /// Print results.json instead of the table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    markdown: MarkdownArgs,
}

fn scales() -> RangedI64ValueParser<u32> {
    let (first, last) = SCALES.into_inner();
    clap::value_parser!(u32).range(i64::from(first)..=i64::from(last))
}

impl Args {
    /// Refuses options that the protocol has no use for.
    fn check(&self) -> steadyvm_lab::Result<()> {
        let (given, other) = match self.protocol {
            Protocol::Udp => (&[("--stream-s", self.stream_s.is_some())][..], "tcp"),
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

/// What to measure.
enum Options {
    Udp(udp::Options),
    Tcp(tcp::Options),
}

impl Options {
    /// Refuses what cannot be measured.
    fn of(args: &Args, methods: Vec<Method>) -> steadyvm_lab::Result<Self> {
        args.check()?;
        let times = Times::scaled(args.scale);
        Ok(match args.protocol {
            Protocol::Udp => {
                let options = udp::Options {
                    methods,
                    times,
                    last_packets_per_s: args.peak_up_to.unwrap_or(udp::LAST_PACKETS_PER_S),
                    rates: args.rates.unwrap_or(RATES),
                    jobs: args.jobs,
                    rounds: args.rounds,
                    seed: args.seed.unwrap_or(SEED),
                };
                options.check()?;
                Self::Udp(options)
            }
            Protocol::Tcp => Self::Tcp(tcp::Options {
                methods,
                times,
                rounds: args.rounds,
                load: tcp::Load {
                    jobs: args.jobs,
                    stream_s: args.stream_s.unwrap_or(STREAM_S),
                },
            }),
        })
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let methods = without_repeats(&args.methods);
    let options = Options::of(args, methods.clone())?;
    let own = |&method: &Method| (method, method.row().kernel);
    let wanted = args.kernel.wanted(methods.iter().map(own))?;
    let output = Output {
        out: &args.out,
        json: args.json,
        markdown: &args.markdown,
    };
    let run = Run::open(output, &wanted, args.kernel.kernel())?;
    match options {
        Options::Udp(options) => with_udp(run, &options)?,
        Options::Tcp(options) => with_tcp(run, &options)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn with_udp(run: Run, options: &udp::Options) -> Result<()> {
    let measured = udp::run(&run.laboratory, options, &run.display)?;
    let record = udp::assemble(&measured.data, BootstrapOptions::default());
    let measured = Measured {
        command: "steadyvm-lab experiment nisp",
        record: record.context(TOO_FEW_JOBS)?,
        kernels: kernels(&run, &options.methods),
        set: [("seed".to_owned(), options.seed.into())].into(),
        facts: Vec::new(),
        tables: vec![("samples.csv".to_owned(), udp::samples_table(&measured.data))],
        dropped_rounds: measured.dropped_rounds,
        disturbance: measured.disturbance,
    };
    run.finish(measured, |record, about| udp::page(record).shown(about))
}

fn with_tcp(run: Run, options: &tcp::Options) -> Result<()> {
    let measured = tcp::run(&run.laboratory, options, &run.display)?;
    let bootstrap = BootstrapOptions::default();
    let record = tcp::assemble(&measured.data, &options.times, bootstrap);
    let measured = Measured {
        command: "steadyvm-lab experiment nisp --protocol tcp",
        record: record.context(TOO_FEW_JOBS)?,
        kernels: kernels(&run, &options.methods),
        set: Settings::new(),
        facts: Vec::new(),
        tables: vec![
            ("samples.csv".to_owned(), tcp::samples_table(&measured.data)),
            ("stream.csv".to_owned(), tcp::stream_table(&measured.data)),
        ],
        dropped_rounds: measured.dropped_rounds,
        disturbance: measured.disturbance,
    };
    run.finish(measured, |record, about| tcp::page(record).shown(about))
}

fn kernels(run: &Run, methods: &[Method]) -> BTreeMap<String, String> {
    let title = |method: &Method| run.kernel_title(run.laboratory.kernel_of(*method));
    let methods = methods.iter();
    methods.map(|it| (it.to_string(), title(it))).collect()
}
