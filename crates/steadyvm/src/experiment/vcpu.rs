//! `steadyvm lab experiment vcpu`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use steadyvm_experiment::engine::Meta;
use steadyvm_experiment::vcpu::{self, Options, Part};
use steadyvm_lab::artifact::Cache;
use steadyvm_lab::laboratory::{HostKernel, Laboratory, require_root};

use crate::machine::Beginning;
use crate::markdown::MarkdownArgs;
use crate::progress::Display;
use crate::{directory, output, this_program};

/// The experiment's options.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Measure only this table or figure; may be given several times.
    #[arg(long = "part", value_name = "NAME", value_enum)]
    parts: Vec<PartName>,
    /// Rounds: every condition under every mechanism once each.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// How long CPU time is counted, and jobs are released, in each condition, in seconds.
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=20))]
    window_s: u64,
    /// Counted requests of `NetRT` in each of its conditions and rounds.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    requests: u64,
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
        window_s: args.window_s,
        requests: args.requests,
        seed: args.seed,
    };
    options.check()?;
    directory::prepare(&args.out)?;
    require_root()?;
    let display = Display::on_standard_error();
    let beginning = Beginning::now();
    let (cache, program) = (Cache::of_this_machine()?, this_program());
    let logs = args.out.join("logs");
    let wanted = [HostKernel::RtLevels];
    let laboratory = Laboratory::open(&cache, &program, &logs, &wanted, &display)?;
    let measured = vcpu::run(&laboratory, &options, &display)?;
    let mut results = vcpu::assemble(&measured);
    results.notes = (laboratory.note().into_iter())
        .chain(measured.dropped_rounds.iter().cloned())
        .chain(measured.disturbance.notes())
        .collect();
    let title = |kernel| laboratory.kernel_title(kernel);
    let kernels = [
        ("host".to_owned(), title(HostKernel::RtLevels)),
        ("guest".to_owned(), title(HostKernel::Distribution)),
    ];
    let meta = Meta {
        run: beginning.record(
            &laboratory,
            kernels.into(),
            measured.disturbance,
            measured.dropped_rounds,
        ),
        endpoints: None,
        seed: Some(options.seed),
    };
    vcpu::write_output(&args.out, &results, &meta)?;
    let rendered = vcpu::render(&results);
    args.markdown.write(
        "VCPU scheduling: budgets kept on real kernels",
        "mechanisms",
        &meta.run,
        &rendered,
    )?;
    if args.json {
        output::json(&results)?;
    } else {
        output::print(&rendered)?;
        let report = args.out.join("report.html");
        output::line(&format!("\nreport: {}", report.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
