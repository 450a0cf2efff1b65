//! `steadyvm`: consistent latency for network services in virtual machines.

mod plan;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(version, about)]
enum Cli {
    Plan(plan::Args),
}

fn main() -> ExitCode {
    let Cli::Plan(args) = Cli::parse();
    plan::run(&args).unwrap_or_else(|error| {
        eprintln!("steadyvm: {error:#}");
        ExitCode::from(2)
    })
}
