//! `steadyvm doctor`: what this machine can and cannot promise.

use std::process::ExitCode;

use anyhow::Result;
use steadyvm_host::{Machine, doctor};

/// Say what this machine can and cannot promise, and why. Warns, never refuses.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let report = doctor::examine(&Machine::real());
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    }
    Ok(ExitCode::SUCCESS)
}
