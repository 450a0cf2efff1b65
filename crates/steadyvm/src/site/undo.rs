//! `steadyvm undo`: restores everything that any verb has set.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use steadyvm_host::{HostControl, HostError, State, Undone};

use super::peers::{self, Actor, Role};
use crate::host::{ControlArgs, report_undone};

/// Restore every setting that `apply`, `watch`, `host apply` or `net apply` has changed.
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
    let directory = args.control.state_directory();
    if args.end_measure {
        end_measure(directory, args.control.patience())?;
    }
    let control = args.control.open_as(Actor::Person);
    if args.forget {
        return forget(&control);
    }
    let undone = held(directory, &control, HostControl::undo)?;
    report_undone(&undone, args.control.json)
}

/// Drops the journal, and says so.
pub fn forget(control: &HostControl) -> Result<ExitCode> {
    control.forget()?;
    eprintln!("steadyvm: the journal is dropped; nothing was restored");
    Ok(ExitCode::SUCCESS)
}

/// Takes settings back so that nobody puts them in force again before the next apply, and says who keeps off.
pub fn held(
    directory: &Path,
    control: &HostControl,
    undo: impl FnOnce(&HostControl) -> Result<Undone, HostError>,
) -> Result<Undone> {
    peers::ask(directory, Actor::Person)?;
    let is_in_force = control
        .show()
        .map_or(true, |shown| shown.state != State::None);
    let watch = peers::holder(directory, Role::Watch);
    let mut is_new = false;
    if is_in_force || watch.is_some() {
        // Before anything is taken back: a watch that waits for the lock meanwhile finds it.
        let held = peers::suspend(directory);
        is_new = !held.with_context(|| format!("cannot write to {}", directory.display()))?;
    }
    let undone = undo(control);
    if undone.is_err() && is_new {
        // It did not happen, and so it does not hold.
        peers::resume(directory)?;
    }
    let undone = undone?;
    if let Some(watch) = watch {
        eprintln!(
            "steadyvm: note: `steadyvm watch` ({watch}) keeps off until the next `steadyvm apply`"
        );
    }
    Ok(undone)
}

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Ends a measurement. Its guard restores what was found, and lets go of the role then.
fn end_measure(directory: &Path, patience: Duration) -> Result<()> {
    let Some(measure) = peers::holder(directory, Role::Measure) else {
        return Ok(());
    };
    // One that is stopped, too.
    if let Some(process) = measure.process.open()? {
        process.kill()?;
    }
    let begun = Instant::now();
    while peers::is_held(directory, Role::Measure) && begun.elapsed() < patience {
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
