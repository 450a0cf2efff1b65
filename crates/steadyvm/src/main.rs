//! `steadyvm`: consistent latency for network services in virtual machines.

mod doctor;
mod host;
mod output;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(version, about, long_about = None)]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Doctor(doctor::Args),
    Host(host::Args),
}

fn main() -> ExitCode {
    let outcome = match CommandLine::parse().verb {
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Host(args) => host::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("steadyvm: {error:#}");
        let code = error
            .downcast_ref()
            .map_or(3, steadyvm_host::HostError::exit_code);
        ExitCode::from(code)
    })
}
