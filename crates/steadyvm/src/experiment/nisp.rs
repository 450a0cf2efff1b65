//! `steadyvm lab experiment nisp`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::builder::RangedI64ValueParser;
use serde::Serialize;
use steadyvm_experiment::engine::Meta;
use steadyvm_experiment::engine::rounds::Outcome;
use steadyvm_experiment::nisp;
use steadyvm_experiment::nisp::{SCALE, SCALES, Times, tcp, udp};
use steadyvm_host::Method;
use steadyvm_lab::Error;
use steadyvm_lab::artifact::Cache;
use steadyvm_lab::laboratory::{HostKernel, Laboratory, require_root};
use steadyvm_stats::bootstrap::BootstrapOptions;

use crate::kernel::InsteadArgs;
use crate::load::Protocol;
use crate::machine::Beginning;
use crate::markdown::MarkdownArgs;
use crate::methods::without_repeats;
use crate::progress::Display;
use crate::{directory, output, this_program};

const RATES: u32 = 8;
const SEED: u64 = 1;
const STREAM_S: u32 = 5;
const TOO_FEW_JOBS: &str = "there are fewer than three jobs; give more with --jobs";

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
    /// The paper's times over this: a job of 1200/N ms every 3000/N ms, with deadlines of 1600/N and 3000/N ms. What
    /// the lab's machine takes from a job by itself weighs less with a smaller one, and the run takes longer.
    #[arg(long, value_name = "N", default_value_t = SCALE, value_parser = scales())]
    scale: u32,
    /// With UDP, jobs a method and rate over all rounds, three a round at least; with TCP, in each round without
    /// the stream and as many next to it.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(3..=100_000))]
    jobs: u64,
    /// Rounds.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// UDP only: rates, evenly from 0 (also measured) to the best method's peak [default: 8].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rates: Option<u32>,
    /// UDP only: the highest rate at which peaks are looked for, in packets a second. A host that receives fewer than
    /// come may answer no more: one whose kernel checks itself needs a low one [default: 64000].
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
    let own = |&method: &Method| (method, HostKernel::of(method));
    let wanted = args.kernel.wanted(methods.iter().map(own))?;
    directory::prepare(&args.out)?;
    require_root()?;
    let display = Display::on_standard_error();
    let beginning = Beginning::now();
    let (cache, program) = (Cache::of_this_machine()?, this_program());
    let logs = args.out.join("logs");
    let mut laboratory = Laboratory::open(&cache, &program, &logs, &wanted, &display)?;
    laboratory.kernel_instead = args.kernel.kernel();
    let run = Run {
        args,
        methods,
        laboratory,
        beginning,
    };
    match options {
        Options::Udp(options) => run.with_udp(&options, &display)?,
        Options::Tcp(options) => run.with_tcp(&options, &display)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A measurement under way.
struct Run<'a> {
    args: &'a Args,
    methods: Vec<Method>,
    laboratory: Laboratory,
    beginning: Beginning,
}

impl Run<'_> {
    fn with_udp(&self, options: &udp::Options, display: &Display) -> Result<()> {
        let measured = udp::run(&self.laboratory, options, display)?;
        let assembled = nisp::udp::assemble(&measured.data, BootstrapOptions::default());
        let mut results = assembled.context(TOO_FEW_JOBS)?;
        results.notes.extend(self.notes(&measured));
        let meta = self.meta(&measured, Some(options.seed));
        udp::write_output(&self.args.out, &measured.data, &results, &meta)?;
        self.show(
            "NISP: jobs next to bursts of packets",
            &meta,
            &results,
            nisp::udp::render,
        )
    }

    fn with_tcp(&self, options: &tcp::Options, display: &Display) -> Result<()> {
        let measured = tcp::run(&self.laboratory, options, display)?;
        let assembled = nisp::tcp::assemble(&measured.data, BootstrapOptions::default());
        let mut results = assembled.context(TOO_FEW_JOBS)?;
        results.notes.extend(self.notes(&measured));
        let meta = self.meta(&measured, None);
        tcp::write_output(&self.args.out, &measured.data, &results, &meta)?;
        self.show(
            "NISP: jobs next to a TCP stream",
            &meta,
            &results,
            nisp::tcp::render,
        )
    }

    /// What whoever reads the figures must know.
    fn notes<D>(&self, measured: &Outcome<D>) -> impl Iterator<Item = String> {
        self.laboratory
            .note()
            .into_iter()
            .chain(measured.dropped_rounds.clone())
            .chain(measured.disturbance.notes())
    }

    fn meta<D>(&self, measured: &Outcome<D>, seed: Option<u64>) -> Meta {
        let laboratory = &self.laboratory;
        let kernel = |method: &Method| laboratory.kernel_title(laboratory.kernel_of(*method));
        let kernels = self.methods.iter().map(|it| (it.to_string(), kernel(it)));
        let dropped = measured.dropped_rounds.clone();
        Meta {
            run: self.beginning.record(
                laboratory,
                kernels.collect(),
                measured.disturbance,
                dropped,
            ),
            endpoints: None,
            seed,
        }
    }

    /// Prints the figures as asked for, and writes their page.
    fn show<R: Serialize>(
        &self,
        title: &str,
        meta: &Meta,
        results: &R,
        render: fn(&R) -> String,
    ) -> Result<()> {
        let rendered = render(results);
        self.args
            .markdown
            .write(title, "configurations", &meta.run, &rendered)?;
        if self.args.json {
            return output::json(results);
        }
        output::print(&rendered)?;
        let report = self.args.out.join("report.html");
        output::line(&format!("\nreport: {}", report.display()))
    }
}
