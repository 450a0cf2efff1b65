//! The process that restores what a measurement found.

use std::io::{BufReader, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use steadyvm_sched::process::ProcessId;
use steadyvm_site::guard::{self, Guarded};

use steadyvm_cli::output;

/// Restore a state when standard input ends; `measure` starts it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where the journal of changes is kept.
    #[arg(long, value_name = "DIR")]
    state_dir: PathBuf,
    /// The process of the measurement: its number, and when it was started.
    #[arg(long, value_name = "PID TICKS", value_parser = process)]
    measurement: ProcessId,
    /// What is measured.
    #[arg(long, value_name = "HOST:PORT")]
    service: String,
}

fn process(text: &str) -> Result<ProcessId, String> {
    text.parse().map_err(|()| "write PID TICKS".to_owned())
}

/// Runs the hidden verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    // Signals of the terminal and of systemd are for the measurement; its end is what counts here.
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    nix::unistd::setsid().context("cannot leave the terminal's session")?;
    let guarded = Guarded {
        directory: args.state_dir.clone(),
        measurement: args.measurement,
        service: args.service.clone(),
    };
    let say = |text: &str| output::say(&format!("steadyvm: {text}"));
    let left = guard::run(&guarded, BufReader::new(stdin()), stdout(), say)?;
    for failed in &left {
        say(&format!("not restored: {failed}"));
    }
    Ok(ExitCode::from(if left.is_empty() { 0 } else { 3 }))
}
