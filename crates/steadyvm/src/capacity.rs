//! `steadyvm capacity`: what this host has to sell to real-time VMs, as `apply --strict` and the hook would hold it.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use steadyvm_host::{CpuSet, HostError, Machine};

use crate::site::{DEFAULT_FILE, FileArgs, Site};
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
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Capacity {
    schema_version: u32,
    kernel_release: String,
    /// What keeps budgets.
    mechanism: &'static str,
    /// Who schedules VCPUs.
    scheduler: &'static str,
    /// The CPUs that real-time VMs may have.
    cpus: Vec<u32>,
    /// What they may have of each, in millionths.
    cpu_ppm: u32,
    /// The largest share of one VCPU, in millionths of a CPU.
    vcpu_ppm: u32,
    held: Vec<Held>,
}

/// A VM that has a budget by the file.
#[derive(Debug, Serialize)]
struct Held {
    vm: String,
    vcpus: u32,
    /// Of one VCPU.
    budget_ns: i64,
    period_ns: i64,
}

/// Runs the verb.
///
/// # Errors
/// A file that is wrong or says nothing of the host's CPUs, a machine that cannot be read.
pub fn run(args: &Args) -> Result<ExitCode> {
    let machine = Machine::real();
    let site = Site::read(&FileArgs::of(&args.file))?;
    let Some((hosts, mechanism, percent)) = site.offers() else {
        let place = args.file.display();
        return Err(HostError::BadInput {
            what: format!(
                "{place} does not say which CPUs real-time VMs have, and who keeps their budgets"
            ),
            fix: "add [host] with enforce = \"auto\": steadyvm.toml(5)".into(),
        }
        .into());
    };
    let held = site
        .planned_vms()
        .iter()
        .filter(|vm| vm.rt && !vm.vcpus.is_empty());
    let held = held.map(|vm| Held {
        vm: vm.name.clone(),
        vcpus: vm.vcpus.len() as u32,
        budget_ns: vm.vcpus.iter().map(|vcpu| vcpu.budget).max().unwrap_or(0),
        period_ns: vm.vcpus.iter().map(|vcpu| vcpu.period).max().unwrap_or(0),
    });
    let cpu_ppm = u32::from(percent) * 10_000;
    let capacity = Capacity {
        schema_version: 1,
        kernel_release: machine.kernel_release().unwrap_or_default(),
        mechanism,
        scheduler: hosts.scheduler,
        cpus: hosts.cpus,
        cpu_ppm,
        vcpu_ppm: cpu_ppm,
        held: held.collect(),
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
