//! `steadyvm-lab experiment page`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use steadyvm_experiment::engine::{RunRecord, read_run};
use steadyvm_experiment::registry;
use steadyvm_report::results_page::fenced;

use steadyvm_cli::markdown::write_page;

/// A run and its page.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory of a run of the lab, as its --out.
    #[arg(value_name = "DIR")]
    run: PathBuf,
    /// The page; its picture goes to pictures/NAME.svg beside it.
    #[arg(value_name = "FILE")]
    page: PathBuf,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<()> {
    let stored = read_run(&args.run)?;
    let experiment = &stored.record.experiment;
    let (compared, answer) = registry::answer(&stored.record)
        .with_context(|| format!("no experiment is called \"{experiment}\""))?;
    let warning = RunRecord::emulated(compared);
    let tables = fenced(&stored.text);
    write_page(&args.page, &answer, &warning, stored.run.facts(), &tables)
}
