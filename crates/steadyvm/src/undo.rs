//! `steadyvm undo`: restores everything that any verb has set.

use std::process::ExitCode;

use anyhow::Result;
use steadyvm_site::Control;
use steadyvm_site::undo::{self, Undid};

use crate::arguments::{ControlArgs, print_json};
use steadyvm_cli::output;

/// Restore every setting that `apply` or `watch` has changed.
///
/// A setting that somebody else has changed since is left as it is, and named. A running watch and the hooks of VM managers
/// put nothing in force until the next `steadyvm apply`. While `steadyvm measure` runs, undo is refused with exit code 3:
/// measure would put the settings in force again at its end.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// End a `steadyvm measure` that runs first, and wait until it has restored what it found.
    #[arg(long)]
    end_measure: bool,
    /// Drop the journal without restoring anything: for settings that can never be restored.
    #[arg(long, conflicts_with = "end_measure")]
    forget: bool,
    #[command(flatten)]
    control: ControlArgs,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let control = args.control.control();
    if args.end_measure {
        undo::end_measure(&control)?;
    }
    if args.forget {
        return forget(&control);
    }
    report(&undo::undo(&control)?, args.control.json)
}

/// Drops the journal, and says so.
pub fn forget(control: &Control) -> Result<ExitCode> {
    undo::forget(control)?;
    eprintln!("steadyvm: the journal is dropped; nothing was restored");
    Ok(ExitCode::SUCCESS)
}

/// Says what undoing did, and who keeps off now; exit code 3 if something could not be restored.
pub fn report(undid: &Undid, json: bool) -> Result<ExitCode> {
    let undone = &undid.undone;
    if let Some(watch) = &undid.watch {
        let until = "keeps off until the next `steadyvm apply`";
        output::say(&format!(
            "steadyvm: note: `steadyvm watch` ({watch}) {until}"
        ));
    }
    let lines = [&undone.notes, &undone.postponed, &undone.changed_by_others];
    for line in lines.into_iter().flatten() {
        output::say(&format!("steadyvm: note: {line}"));
    }
    for failed in &undone.failed {
        output::say(&format!("steadyvm: not restored: {failed}"));
    }
    if json {
        print_json(undone)?;
    } else {
        output::line(&undone.summary())?;
    }
    if undone.failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "steadyvm: run `steadyvm undo` again when the cause is removed, or `steadyvm undo --forget` to \
         give up on these settings"
    );
    Ok(ExitCode::from(3))
}
