//! `steadyvm load`: the loads of the lab's experiments, for use by hand and by the lab.

use std::io::{self, BufRead};
use std::net::{SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use steadyvm_latency::{flood, job};

use crate::output;

/// The loads of the lab's experiments.
///
/// Both serve whoever writes lines to their standard input, until it ends, and answer each line
/// with one line of JSON.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Do periodic jobs that need the CPU.
    ///
    /// "calibrate MICROSECONDS" answers how many units of work take that long. "run" and a task,
    /// such as {"period_us": 30000, "work": 1000, "jobs": 200}, does the jobs and answers when each
    /// was released and finished.
    #[allow(clippy::doc_markdown)] // JSON for a terminal
    #[command(verbatim_doc_comment)]
    Job,
    /// Receive UDP packets; "count" answers how many have come so far.
    Sink {
        /// Address and UDP port, such as 0.0.0.0:7701.
        address: SocketAddr,
    },
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    match args.verb {
        Verb::Job => serve(jobs)?,
        Verb::Sink { address } => {
            let socket = UdpSocket::bind(address)
                .with_context(|| format!("cannot listen on {address}; choose a free port"))?;
            let received = Arc::new(AtomicU64::new(0));
            let counter = Arc::clone(&received);
            thread::spawn(move || flood::count(&socket, &counter));
            serve(|line| match line {
                "count" => Ok(received.load(Ordering::Relaxed).to_string()),
                other => bail!("`{other}` is no request; write: count"),
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(mut answer: impl FnMut(&str) -> Result<String>) -> Result<()> {
    output::line("ready")?;
    for line in io::stdin().lock().lines() {
        output::line(&answer(line?.trim())?)?;
    }
    Ok(())
}

fn jobs(line: &str) -> Result<String> {
    match line.split_once(' ') {
        Some(("calibrate", time)) => {
            let microseconds = time.parse().context("calibrate wants microseconds")?;
            let units = job::units_for(Duration::from_micros(microseconds));
            Ok(units.to_string())
        }
        Some(("run", task)) => {
            let task = serde_json::from_str(task).context("run wants a task in JSON")?;
            Ok(serde_json::to_string(&job::run(&task))?)
        }
        _ => bail!("`{line}` is no request; write: calibrate MICROSECONDS, or run TASK"),
    }
}
