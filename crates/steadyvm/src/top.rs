//! `steadyvm top`: what serves this host's VMs, live.

use std::io::{ErrorKind, IsTerminal as _, Write as _, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use steadyvm_fault::Fault;
use steadyvm_files::{Directory, Others};
use steadyvm_sched::exposition;

use steadyvm_site::top::{Frame, Watcher, metrics, table};

use crate::arguments::ControlArgs;
use steadyvm_cli::output;

/// Show what serves this host's VMs, live: ranks, budgets, CPU time, wake-up latency by stage.
///
/// Each line is a thread on the way of a packet: the card's interrupt and NAPI threads, then the vhost workers and VCPUs
/// of each VM. "of own" is the used share of its budget, in per cent. Wake-up latency is the time from a thread's wake-up
/// until it runs. BPF programs count it; percentiles are less than an eighth too high. On a kernel without BTF two
/// tracepoints give exact times and cost the thread some microseconds per wake-up. Without the right to trace the values
/// are means of the kernel's counters. A VCPU with a budget has a second line: its use in this period and how often it was
/// throttled, as in `steadyvm sched top`.
///
/// It shows the cards, VMs and services that `apply` has put in force; if there are none, all VMs.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
#[command(after_help = "Examples:
  steadyvm top
  steadyvm top --once --json --interval 10
  steadyvm top --once --format prometheus \\
      --out /var/lib/steadyvm/metrics/steadyvm.prom")]
pub struct Args {
    /// Show one frame and end.
    #[arg(long)]
    once: bool,
    /// Stop after N frames; default: until interrupted.
    #[arg(long, value_name = "N", conflicts_with = "once")]
    count: Option<u64>,
    /// Refresh interval in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// Output format. JSON is one line per frame; with --once it is indented.
    #[arg(long, value_enum, default_value_t = Format::Table, conflicts_with = "json")]
    format: Format,
    /// Write each frame to this file instead, in one step, so that a collector never reads a part.
    ///
    /// The directory must not be writable by others when root writes.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    control: ControlArgs,
}

/// What a frame is printed as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    /// OpenMetrics, for a collector that asks for it.
    #[value(name = "openmetrics")]
    OpenMetrics,
    /// Prometheus's text format, for the node exporter's textfile collector.
    Prometheus,
}

fn seconds(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.1..=3600.0).contains(&number) {
        Ok(number)
    } else {
        Err("seconds are between 0.1 and 3600".into())
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let control = args.control.control();
    let host = control.open();
    let mut watcher = Watcher::new(&host, &control.directory)?;
    let mut left = if args.once { Some(1) } else { args.count };
    while left != Some(0) {
        thread::sleep(Duration::from_secs_f64(args.interval));
        let frame = watcher.look()?;
        args.show(&frame)?;
        left = left.map(|left| left - 1);
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn show(&self, frame: &Frame) -> Result<()> {
        let format = if self.control.json {
            Format::Json
        } else {
            self.format
        };
        let text = match format {
            Format::Table => table(frame),
            Format::Json if self.once => serde_json::to_string_pretty(frame)? + "\n",
            Format::Json => serde_json::to_string(frame)? + "\n",
            Format::OpenMetrics => metrics(frame, exposition::Format::OpenMetrics),
            Format::Prometheus => metrics(frame, exposition::Format::Prometheus),
        };
        match &self.out {
            Some(file) => replace(file, &text),
            None if format == Format::Table && !self.once && stdout().is_terminal() => {
                output::screen(&text)
            }
            None => output::print(&text),
        }
    }
}

/// Of a file for collectors of figures, which run as other users.
const FOR_COLLECTORS: u32 = 0o644;

/// Puts a file with this text in the place of the one that may be there. What is in it others have named: nobody else may
/// choose where it goes.
///
/// # Errors
/// A directory or a file that is not root's alone, which is the caller's to mend; the kernel's.
pub fn replace(file: &Path, text: &str) -> Result<()> {
    let what = format!("cannot write to {}", file.display());
    let text = output::harmless(text);
    let written = Directory::of(file, Others::Refused).and_then(|(directory, name)| {
        directory.replace(&name, FOR_COLLECTORS, |file| {
            file.write_all(text.as_bytes())
        })
    });
    match written {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Err(Fault::input(what, error).into())
        }
        other => other.context(what),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_replaced_in_one_step() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("steadyvm.prom");
        for text in ["one\n", "two\n"] {
            replace(&file, text).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_interval_has_a_range() {
        assert!(seconds("0").is_err() && seconds("NaN").is_err() && seconds("1e9").is_err());
        assert_eq!(seconds("0.5"), Ok(0.5));
    }
}
