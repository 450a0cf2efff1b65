//! `steadyvm capacity`: what this host has to sell to real-time VMs.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use steadyvm_host::CpuSet;
use steadyvm_site::DEFAULT_FILE;
use steadyvm_site::capacity::{self, Capacity};

use steadyvm_cli::output;

/// Say how much CPU time this host can promise to real-time VMs, and what they hold.
///
/// `apply --strict` and the hooks for libvirt and Proxmox VE refuse VMs by these numbers. A cloud that sells VMs for this
/// host, such as `OpenStack`, takes them from here.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file that describes this host.
    #[arg(default_value = DEFAULT_FILE)]
    file: PathBuf,
    /// Count the VMs of this file, too, as if it stood in /run/steadyvm.d, and end with 1 if the host cannot hold them.
    #[arg(long, value_name = "FILE")]
    with: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let capacity = match &args.with {
        None => capacity::of(&args.file)?,
        Some(more) => {
            let text = fs::read_to_string(more)
                .with_context(|| format!("cannot read {}", more.display()))?;
            capacity::with(&args.file, more, &text)?
        }
    };
    if args.json {
        output::json(&capacity)?;
    } else {
        output::line(&text(&capacity)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(capacity: &Capacity) -> Result<String, std::fmt::Error> {
    let cpus: CpuSet = capacity.cpus.iter().map(|&cpu| cpu as usize).collect();
    let percent = capacity.cpu_ppm / 10_000;
    let mut text = format!(
        "CPUs {cpus}: {percent} % of each for real-time VMs ({}, kept by {}, Linux {})",
        capacity.scheduler, capacity.mechanism, capacity.kernel_release
    );
    for held in &capacity.held {
        let share = held.budget_ns as f64 * 100.0 / held.period_ns as f64;
        let name = steadyvm_host::printable(&held.vm);
        write!(
            text,
            "\n{name}: {} VCPUs, {share:.1} % of a CPU each",
            held.vcpus
        )?;
    }
    Ok(text)
}
