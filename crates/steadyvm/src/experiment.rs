//! `steadyvm lab experiment`: experiments of papers, in the emulated host.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;
use steadyvm_host::Method;
use steadyvm_lab::artifact::Cache;
use steadyvm_lab::experiment::nisp;
use steadyvm_lab::laboratory::{HostKernel, Laboratory, require_root};
use steadyvm_latency::nisp::render;

use crate::methods::without_repeats;
use crate::progress::Display;
use crate::{directory, output, this_program};

/// Experiments of the papers.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// NISP, section V: periodic jobs next to bursts of packets for a lower priority.
    ///
    /// On one CPU of the emulated host: a process at high priority that computes for 12 ms every
    /// 30 ms, and a process at low priority that receives UDP packets, which come in bursts
    /// (MMPP-2) at rising mean rates up to the most that the best method can receive. Shown for every
    /// method and rate: the jobs' response times, the share that misses a deadline of 16 and of 30
    /// ms, their jitter, and what the receiver and the CPU did.
    Nisp(NispArgs),
}

#[derive(Debug, clap::Args)]
struct NispArgs {
    /// Methods to measure.
    #[arg(long, value_delimiter = ',', default_value = "vanilla,preempt-rt")]
    methods: Vec<Method>,
    /// Rates, evenly from 0 (measured besides) to the best method's peak.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100))]
    rates: u32,
    /// Jobs at each rate.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(3..=100_000))]
    jobs: u64,
    /// Seed of the packets' schedules.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where nisp.json and the hosts' logs go; made if it does not exist.
    #[arg(long, value_name = "DIR", default_value = "out/nisp")]
    out: PathBuf,
    /// Print nisp.json instead of the table.
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let Verb::Nisp(args) = &args.verb;
    let options = nisp::Options {
        methods: without_repeats(&args.methods),
        rates: args.rates,
        jobs: args.jobs,
        seed: args.seed,
    };
    directory::prepare(&args.out)?;
    require_root()?;
    let display = Display::on_standard_error();
    let (cache, program) = (Cache::of_this_machine()?, this_program());
    let wanted = HostKernel::of_all(options.methods.iter().copied());
    let logs = args.out.join("logs");
    let laboratory = Laboratory::open(&cache, &program, &logs, &wanted, &display)?;
    let results = nisp::run(&laboratory, &options, &display)?;
    let path = args.out.join("nisp.json");
    let json = serde_json::to_string_pretty(&results)? + "\n";
    fs::write(&path, &json).with_context(|| format!("cannot write {}", path.display()))?;
    if args.json {
        output::print(&json)?;
    } else {
        output::print(&render(&results))?;
        output::line(&format!("\nall figures: {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
