//! `steadyvm apply`: puts a file in force, or brings the host up to date with it.

use std::process::ExitCode;

use anyhow::Result;

use super::{FileArgs, Site};
use crate::host::{ControlArgs, print_json};
use crate::output;

/// Make this host what a steadyvm.toml says: plan, receive path and ranks, all of it or nothing.
///
/// Applying a file again changes only what does not hold, such as the threads of a VM that started
/// since. If a step fails, what was in force before is in force again. `steadyvm undo` restores
/// everything; `steadyvm watch` keeps the file in force.
///
/// Beside /etc/steadyvm.toml, files in /etc/steadyvm.d describe more VMs by [[vm]] tables, such as those
/// that a cloud's hook writes.
///
/// A first file, for one real-time VM whose packets come through eth1:
///
///     [[nic]]
///     name = "eth1"
///     class = "rt"
///     [[vm]]
///     name = "web"
///     class = "rt"
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    file: FileArgs,
    /// Say what would change, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    control: ControlArgs,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let control = args.control.open();
    let mut site = Site::read(&args.file)?;
    if args.dry_run {
        let plan = site.plan(&control)?;
        warn(&plan.warnings);
        if args.control.json {
            print_json(&plan)?;
            return Ok(ExitCode::SUCCESS);
        }
        for step in &plan.taken_back {
            output::line(&format!("{}: restored", step.change.subject()))?;
        }
        for step in &plan.steps {
            output::line(&step.to_string())?;
        }
        output::line(&format!(
            "{} settings would change and {} would be restored; nothing was changed",
            plan.steps.len(),
            plan.taken_back.len()
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    let done = site.reconcile(&control)?;
    warn(&done.new_warnings);
    if args.control.json {
        print_json(&done.applied)?;
        return Ok(ExitCode::SUCCESS);
    }
    for step in &done.applied.steps {
        output::line(&step.to_string())?;
    }
    output::line(&format!(
        "{} is in force: {} settings, {} of them changed now",
        site.name,
        done.applied.in_force,
        done.applied.steps.len()
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn warn(warnings: &[String]) {
    for warning in warnings {
        eprintln!("steadyvm: warning: {warning}");
    }
}
