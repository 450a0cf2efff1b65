//! `steadyvm exporter`: what `top` shows, for Prometheus.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use steadyvm_host::DEFAULT_STATE_DIRECTORY;
use steadyvm_site::Control;
use steadyvm_site::exporter::{Address, Exporter, Options};

use crate::watch::Terminal;

/// How long another steadyvm that is changing this host is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serve what `steadyvm top` shows to Prometheus, on this host alone.
///
/// It answers GET /metrics by HTTP in Prometheus's text format, or in `OpenMetrics` for collectors that ask for that. It
/// listens at a port of loopback, or at a Unix socket; other addresses are refused with exit code 2. It runs in the
/// foreground, under systemd as steadyvm-exporter.service, and changes nothing. SIGTERM ends it.
///
/// Wake-up latency, CPU time and used budgets are those since the scrape before. Collectors that ask within
/// --interval get the same figures. Four clients are served at once; a request, and an answer, has two seconds. A Unix
/// socket's file has the rights that the umask leaves.
///
/// Alert rules and a Grafana board for these metrics are in /usr/share/steadyvm.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  steadyvm exporter
  steadyvm exporter --listen [::1]:9980 --interval 15
  steadyvm exporter --listen unix:/run/steadyvm-exporter/socket")]
pub struct Args {
    /// A port of loopback, or unix:PATH; port 0 is any that is free.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9979")]
    listen: Address,
    /// Seconds between two looks at the host, at least; 0 to 3600.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(..=3600))]
    interval: u64,
    /// Directory of the journal, which holds every old value until undo.
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE_DIRECTORY)]
    state_dir: PathBuf,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let exporter = Exporter::open(&Options {
        address: args.listen.clone(),
        shortest: Duration::from_secs(args.interval),
    })?;
    let stop = exporter.stop();
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("cannot listen for signals")?;
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            stop.stop();
        }
    });
    let control = Control {
        directory: args.state_dir.clone(),
        patience: PATIENCE,
    };
    exporter.serve(&control, &Terminal)?;
    Ok(ExitCode::SUCCESS)
}
