//! `steadyvm net`: put the receive path's profile in force, show it, undo it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use steadyvm_host::net::Profile;
use steadyvm_host::{HostControl, Plan, Report};

use steadyvm_site::peers::{self, Actor};
use steadyvm_site::undo::held;
use steadyvm_site::{Source, profile_of};

use crate::arguments::{ControlArgs, named_process, print_json};
use crate::{host, undo};
use steadyvm_cli::output;

/// Give packets the rank of the VM that receives them, from the NIC to the VM, on any kernel.
///
/// The classes of steadyvm.toml give the ranks: FIFO priorities and CPUs of interrupts, NAPI threads and vhost workers,
/// a NIC's queues and flow steering, taps, and how much deferred work the kernel does at once. No patch is needed; undo
/// restores every setting, also after a crash.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    control: ControlArgs,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Put a profile in force, or bring the one in force up to date.
    ///
    /// Applying it again changes only what does not hold, such as the threads of a VM that was
    /// started meanwhile. If a step fails, what was in force before is in force again.
    Apply {
        /// The file with [net], [[nic]] and the classes; "-" for standard input.
        #[arg(default_value = "steadyvm.toml")]
        file: PathBuf,
        /// Say what would change, and change nothing.
        #[arg(long)]
        dry_run: bool,
        /// The process of a VM's monitor, where its command line does not name it (-name); may
        /// be repeated.
        #[arg(long = "vm", value_name = "NAME=PID", value_parser = named_process)]
        vms: Vec<(String, u32)>,
    },
    /// Show what is in force, and whether it still holds.
    Show,
    /// Restore every setting that is in force.
    Undo,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let of_site = args.control.control();
    let control = of_site.open_as(Actor::Person);
    match &args.verb {
        Verb::Apply { file, dry_run, vms } => {
            let mut source = Source::of(file);
            source.processes.clone_from(vms);
            let profile = profile_of(&source)?;
            if *dry_run {
                plan(&control, &profile, args.control.json)
            } else {
                peers::must_not_be_watched(&of_site.directory, None)?;
                apply(&control, &profile, args.control.json)
            }
        }
        Verb::Show => host::show(&control, args.control.json),
        Verb::Undo => {
            let undid = held(&of_site.directory, &control, HostControl::undo_profile)?;
            undo::report(&undid, args.control.json)
        }
    }
}

fn plan(control: &HostControl, profile: &Profile, json: bool) -> Result<ExitCode> {
    let plan: Plan = control.plan_profile(profile)?;
    warn(&plan.warnings);
    if json {
        print_json(&plan)?;
        return Ok(ExitCode::SUCCESS);
    }
    for step in &plan.taken_back {
        output::line(&format!("{} is undone", step.change.subject()))?;
    }
    for step in &plan.steps {
        output::line(&step.to_string())?;
    }
    let (count, back) = (plan.steps.len(), plan.taken_back.len());
    output::line(&format!(
        "{count} settings would be changed and {back} undone; nothing was"
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn apply(control: &HostControl, profile: &Profile, json: bool) -> Result<ExitCode> {
    let applied: Report = control.apply_profile(profile)?;
    warn(&applied.warnings);
    for skipped in &applied.skipped {
        output::say(&format!("steadyvm: skipped: {skipped}"));
    }
    if json {
        print_json(&applied)?;
        return Ok(ExitCode::SUCCESS);
    }
    for step in &applied.steps {
        output::line(&step.to_string())?;
    }
    output::line(&format!(
        "the profile is in force: {} settings, {} of them changed now",
        applied.in_force,
        applied.steps.len()
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn warn(warnings: &[String]) {
    for warning in warnings {
        output::say(&format!("steadyvm: warning: {warning}"));
    }
}
