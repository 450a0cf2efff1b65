//! `steadyvm-lab experiment vcpu`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use steadyvm_experiment::vcpu::{self, Options, Part};
use steadyvm_lab::laboratory::HostKernel;

use super::run::{Measured, Output, Run};
use crate::kernel::KernelParser;
use steadyvm_cli::markdown::MarkdownArgs;

/// The experiment's options.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Measure only this table or figure; may be given several times.
    #[arg(long = "part", value_name = "NAME", value_enum)]
    parts: Vec<PartName>,
    /// Rounds: every condition under every mechanism once each.
    #[arg(long, value_name = "R", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Measure a part in the first rounds only, such as quantum=4; may be given several times.
    #[arg(long, value_name = "PART=R", value_parser = rounds_of)]
    rounds_of: Vec<(PartName, u64)>,
    /// Length of each measurement, in seconds.
    #[arg(long, value_name = "S", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=20))]
    window_s: u64,
    /// Least number of jobs of each task of tables 4.3 and 2.2, over all rounds.
    #[arg(long, value_name = "J", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    jobs: u64,
    /// Counted NetRT requests per condition and round.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    requests: u64,
    /// Boot the host with this kernel instead of steadyvm's 6.12 with PREEMPT_RT.
    #[arg(long, value_parser = KernelParser)]
    kernel: Option<HostKernel>,
    /// Seed of the first round's schedule of requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where results.json, report.html and the other files go; made if it does not exist.
    #[arg(long, value_name = "DIR", default_value = "out/vcpu")]
    out: PathBuf,
    /// Print results.json instead of the tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    markdown: MarkdownArgs,
}

/// A table or figure of the experiment.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum PartName {
    /// The share of an RT VCPU (table 4.2).
    Share,
    /// Deadline misses of domains, and the time of decisions (tables 4.3, 2.2, 2.1).
    Domains,
    /// Requests to a VM inside its planned budget.
    Netrt,
    /// CPU time lost to scheduling.
    Work,
    /// The scheduling quantum (figure 2.4).
    Quantum,
}

impl From<PartName> for Part {
    fn from(name: PartName) -> Self {
        match name {
            PartName::Share => Self::Share,
            PartName::Domains => Self::Domains,
            PartName::Netrt => Self::NetRt,
            PartName::Work => Self::Work,
            PartName::Quantum => Self::Quantum,
        }
    }
}

/// A part, and in how many rounds it is measured.
fn rounds_of(text: &str) -> Result<(PartName, u64), String> {
    let (part, rounds) = text
        .split_once('=')
        .ok_or("write PART=R, such as quantum=4")?;
    let part = <PartName as clap::ValueEnum>::from_str(part, false)
        .map_err(|_| "the parts are share, domains, netrt, work and quantum".to_owned())?;
    match rounds.parse() {
        Ok(rounds @ 1..=1000) => Ok((part, rounds)),
        _ => Err("use 1 to 1000 rounds".to_owned()),
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let parts = args.parts.iter().map(|name| Part::from(*name));
    let options = Options {
        parts: if args.parts.is_empty() {
            Part::ALL.into()
        } else {
            parts.collect()
        },
        rounds: args.rounds,
        rounds_of: args
            .rounds_of
            .iter()
            .map(|(name, rounds)| (Part::from(*name), *rounds))
            .collect(),
        window_s: args.window_s,
        jobs: args.jobs,
        requests: args.requests,
        seed: args.seed,
    };
    options.check()?;
    let output = Output {
        out: &args.out,
        json: args.json,
        markdown: &args.markdown,
    };
    let kernel = args.kernel.unwrap_or(vcpu::KERNEL);
    let run = Run::open(output, &[kernel], args.kernel)?;
    let measured = vcpu::run(&run.laboratory, &options, &run.display)?;
    let record = vcpu::assemble(&measured);
    let kernels = [("host", kernel), ("guest", HostKernel::V6_12)];
    let kernels = kernels.map(|(name, it)| (name.to_owned(), run.kernel_title(it)));
    let measured = Measured {
        command: "steadyvm-lab experiment vcpu",
        kernels: kernels.into(),
        set: [("seed".to_owned(), options.seed.into())].into(),
        facts: Vec::new(),
        tables: vec![("windows.csv".to_owned(), vcpu::windows_table(&record))],
        record,
        dropped_rounds: measured.dropped_rounds,
        disturbance: measured.disturbance,
    };
    run.finish(measured, |record, about| vcpu::page(record).shown(about))?;
    Ok(ExitCode::SUCCESS)
}
