//! `steadyvm net`: put the receive path's profile in force, show it, undo it.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use steadyvm_host::profile::{Profile, file};
use steadyvm_host::{HostControl, HostError, Plan, Report};

use crate::host;
use crate::site::peers::{self, Actor};
use crate::site::undo;
use steadyvm_cli::output;

/// Longer files are no profile.
const MAX_INPUT: u64 = 16 << 20;

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
    control: host::ControlArgs,
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
    let control = args.control.open_as(Actor::Person);
    let directory = args.control.state_directory();
    match &args.verb {
        Verb::Apply { file, dry_run, vms } => {
            let mut profile = read(file)?;
            name_processes(&mut profile, vms)?;
            if *dry_run {
                plan(&control, &profile, args.control.json)
            } else {
                peers::must_not_be_watched(directory, None)?;
                apply(&control, &profile, args.control.json)
            }
        }
        Verb::Show => host::show(&control, args.control.json),
        Verb::Undo => {
            let undone = undo::held(directory, &control, HostControl::undo_profile)?;
            host::report_undone(&undone, args.control.json)
        }
    }
}

pub(crate) fn named_process(text: &str) -> Result<(String, u32), String> {
    text.split_once('=')
        .and_then(|(name, pid)| Some((name.to_owned(), pid.parse().ok().filter(|&pid| pid > 0)?)))
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| "write NAME=PID, as in game-1=4711".to_owned())
}

fn read(path: &Path) -> Result<Profile, HostError> {
    let name = if path == Path::new("-") {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    };
    let text = text_of(path).map_err(|error| HostError::BadInput {
        what: format!("cannot read {name}: {error}"),
        fix: "name a steadyvm.toml (see examples/steadyvm.toml)".into(),
    })?;
    file::parse(&name, &text)
}

pub(crate) fn text_of(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(fs::File::open(path)?)
    };
    source.take(MAX_INPUT).read_to_string(&mut text)?;
    Ok(text)
}

pub(crate) fn name_processes(
    profile: &mut Profile,
    named: &[(String, u32)],
) -> Result<(), HostError> {
    for (name, pid) in named {
        let Some(vm) = profile.vms.iter_mut().find(|vm| vm.name == *name) else {
            let known: Vec<&str> = profile.vms.iter().map(|vm| vm.name.as_str()).collect();
            return Err(HostError::BadInput {
                what: format!(
                    "--vm {name}={pid}: the file has no VM \"{name}\" with a class that has net settings"
                ),
                fix: format!("its VMs are: {}", known.join(", ")),
            });
        };
        vm.pid = Some(*pid);
    }
    Ok(())
}

fn plan(control: &HostControl, profile: &Profile, json: bool) -> Result<ExitCode> {
    let plan: Plan = control.plan_profile(profile)?;
    warn(&plan.warnings);
    if json {
        host::print_json(&plan)?;
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
        host::print_json(&applied)?;
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
