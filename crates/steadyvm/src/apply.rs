//! `steadyvm apply`: puts a file in force, or brings the host up to date with it.

use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use steadyvm_site::{NotServed, apply};

use crate::arguments::{ControlArgs, FileArgs, print_json};
use steadyvm_cli::output;

/// Make this host what a steadyvm.toml says: plan, receive path and ranks.
///
/// A VM, a card or a file that cannot be served is left as it was and named; the others are served, and the exit
/// code is 1. With --strict it is all or nothing: if one step fails, the settings of before are in force again. Applying a file
/// again changes only settings that do not hold, for example those of a VM that started since. `steadyvm undo` restores
/// everything; `steadyvm watch` keeps the file in force.
///
/// After an apply a watch that an undo has stopped goes on, and so does a scheduler of VCPU budgets that the kernel has
/// ended. While `steadyvm measure` runs, apply is refused with exit code 3. A file that a running watch would undo is
/// refused with exit code 2.
///
/// Beside /etc/steadyvm.toml, files in /etc/steadyvm.d and /run/steadyvm.d describe more VMs by [[vm]] tables, for example
/// those that a cloud's hook writes. The files in /run are gone after a reboot, as VMs are.
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
    let (source, control) = (args.file.source(), args.control.control());
    if args.dry_run {
        let (plan, faults) = apply::plan(&source, &control)?;
        warn(&plan.warnings, &faults);
        if args.control.json {
            print_json(&Shown::new(&plan, &faults))?;
            return Ok(code(&faults));
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
        return Ok(code(&faults));
    }
    let apply::Applied { name, done } = apply::apply(&source, &control)?;
    let applied = done.applied();
    warn(done.warnings(), done.faults());
    if args.control.json {
        print_json(&Shown::new(applied, done.faults()))?;
        return Ok(code(done.faults()));
    }
    for step in &applied.steps {
        output::line(&step.to_string())?;
    }
    let but = match done.faults().len() {
        0 => String::new(),
        1 => ", but for one part that is not served".to_owned(),
        count => format!(", but for {count} parts that are not served"),
    };
    output::line(&format!(
        "{name} is in force{but}: {} settings, {} of them changed now",
        applied.in_force,
        applied.steps.len()
    ))?;
    Ok(code(done.faults()))
}

/// What the engine says, and all that is not served.
#[derive(Serialize)]
struct Shown<'a, T> {
    #[serde(flatten)]
    of_host: &'a T,
    not_served: &'a [NotServed],
}

impl<'a, T> Shown<'a, T> {
    fn new(of_host: &'a T, not_served: &'a [NotServed]) -> Self {
        Self {
            of_host,
            not_served,
        }
    }
}

/// The host differs from the file where a part of it is not served.
fn code(faults: &[NotServed]) -> ExitCode {
    ExitCode::from(u8::from(!faults.is_empty()))
}

fn warn(warnings: &[String], faults: &[NotServed]) {
    for warning in warnings {
        output::say(&format!("steadyvm: warning: {warning}"));
    }
    for fault in faults {
        output::say(&format!("steadyvm: {}", fault.sentence()));
    }
}
