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
use steadyvm_host::printable;
use steadyvm_sched::exposition;
use steadyvm_sched::service::SOCKET;
use steadyvm_sched::show::Standing;
use steadyvm_site::enforced::{self, Reports};
use steadyvm_site::top::{Frame, Watcher, metrics, table};

use crate::arguments::{ControlArgs, named};
use steadyvm_cli::output;

/// Show what serves this host's VMs, live: ranks, budgets, CPU time, wake-up latency by stage.
///
/// Each line is a thread on the way of a packet: the card's interrupt and NAPI threads, then the vhost workers and VCPUs
/// of each VM. "of own" is the used share of its budget, in per cent. Wake-up latency is the time from a thread's wake-up
/// until it runs. BPF programs count it; percentiles are less than an eighth too high. On a kernel without BTF two
/// tracepoints give exact times and cost the thread some microseconds per wake-up. Without the right to trace the values
/// are means of the kernel's counters. A VCPU with a budget has a second line: its use in this period and how often it was
/// throttled, as with --budgets. Work of others that a thread with a rank did, such as packets that others send, is in
/// another line: what was pending on its CPU ran with its rank.
///
/// It shows the cards, VMs and services that `apply` has put in force; if there are none, all VMs.
///
/// --budgets shows each VCPU's budget instead: its use, how often it was throttled, and its guest's missed deadlines. Where
/// the `sched_ext` loader does not run, these are the VCPUs with a `SCHED_DEADLINE` budget. "now" and "last" are the CPU
/// time used in the current period and in the one before. "short" counts periods that did not give a VCPU its budget
/// although it had work. "-": this mechanism does not count it. Counts begin when the VCPU gets its budget; those of
/// `SCHED_DEADLINE` when the thread begins. Exit code 1 with --once and without --out: no budget is enforced.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
#[command(after_help = "Examples:
  steadyvm top
  steadyvm top --once --json --interval 10
  steadyvm top --once --format prometheus \\
      --out /var/lib/steadyvm/metrics/steadyvm.prom
  steadyvm top --budgets --once --json")]
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
    /// Show the budgets of VCPUs.
    #[arg(long)]
    budgets: bool,
    /// Also show this thread, which is not a VCPU and has a `SCHED_DEADLINE` budget.
    #[arg(long = "thread", value_name = "NAME=TID", value_parser = named, requires = "budgets")]
    threads: Vec<(String, u32)>,
    /// Directory with a file or FIFO per VM, in which its guest reports jobs and misses.
    #[arg(long, value_name = "DIRECTORY", default_value = enforced::DIRECTORY, requires = "budgets")]
    reports: PathBuf,
    /// Control socket of the `sched_ext` loader.
    #[arg(long, hide = true, value_name = "PATH", default_value = SOCKET, requires = "budgets")]
    socket: PathBuf,
    #[command(flatten)]
    control: ControlArgs,
}

/// What a frame is printed as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    /// OpenMetrics, for a collector that asks for it.
    #[value(name = "openmetrics", alias = "open-metrics")]
    OpenMetrics,
    /// Prometheus's text format, for the node exporter's textfile collector.
    Prometheus,
}

fn seconds(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.01..=3600.0).contains(&number) {
        Ok(number)
    } else {
        Err("seconds are between 0.01 and 3600".into())
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.budgets {
        return budgets(args);
    }
    let control = args.control.control();
    let host = control.open();
    let mut watcher = Watcher::new(&host, &control.directory)?;
    let mut left = args.frames();
    while left != Some(0) {
        args.sleep();
        let text = args.text_of(&watcher.look()?)?;
        args.show(&text)?;
        left = left.map(|left| left - 1);
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the budgets of VCPUs, the first time at once.
fn budgets(args: &Args) -> Result<ExitCode> {
    let mut reports = Reports::at(&args.reports);
    let mut left = args.frames();
    let mut is_enforced = false;
    while left != Some(0) {
        let standing = enforced::look(&args.socket, &args.threads, &mut reports)?;
        is_enforced = standing.attached;
        args.show(&args.text_of_budgets(standing)?)?;
        left = left.map(|left| left - 1);
        if left != Some(0) {
            args.sleep();
        }
    }
    Ok(ExitCode::from(u8::from(
        args.once && args.out.is_none() && !is_enforced,
    )))
}

impl Args {
    /// How many frames there are to show; none: without end.
    fn frames(&self) -> Option<u64> {
        if self.once { Some(1) } else { self.count }
    }

    fn sleep(&self) {
        thread::sleep(Duration::from_secs_f64(self.interval));
    }

    fn format(&self) -> Format {
        if self.control.json {
            Format::Json
        } else {
            self.format
        }
    }

    fn text_of(&self, frame: &Frame) -> Result<String> {
        Ok(match self.format() {
            Format::Table => table(frame),
            Format::Json if self.once => serde_json::to_string_pretty(frame)? + "\n",
            Format::Json => serde_json::to_string(frame)? + "\n",
            Format::OpenMetrics => metrics(frame, exposition::Format::OpenMetrics),
            Format::Prometheus => metrics(frame, exposition::Format::Prometheus),
        })
    }

    fn text_of_budgets(&self, mut standing: Standing) -> Result<String> {
        let format = self.format();
        if format == Format::Json {
            return Ok(serde_json::to_string(&standing)? + "\n");
        }
        // A line is a VCPU's, whatever its VM is called.
        for vcpu in &mut standing.vcpus {
            vcpu.vm = printable(&vcpu.vm).into_owned();
        }
        Ok(match format {
            Format::OpenMetrics => standing.metrics(exposition::Format::OpenMetrics),
            Format::Prometheus => standing.metrics(exposition::Format::Prometheus),
            Format::Table | Format::Json => standing.table(),
        })
    }

    fn show(&self, text: &str) -> Result<()> {
        match &self.out {
            Some(file) => replace(file, text),
            None if self.format() == Format::Table && !self.once && stdout().is_terminal() => {
                output::screen(text)
            }
            None => output::print(text),
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
fn replace(file: &Path, text: &str) -> Result<()> {
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
