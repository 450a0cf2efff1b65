//! Restores everything that was set.

use std::time::{Duration, Instant};

use steadyvm_fault::At;
use steadyvm_host::{State, Undone};

use crate::bounds;
use crate::control::Control;
use crate::error::Result;
use crate::peers::{self, Actor, Holder, Role};

/// What undoing did.
pub struct Undid {
    /// What was restored, and what was not.
    pub undone: Undone,
    /// A watch that keeps off now, until the next apply.
    pub watch: Option<Holder>,
}

/// Takes settings back so that nobody puts them in force again before the next apply.
///
/// # Errors
/// A measurement runs, or the journal cannot be read.
pub fn undo(control: &Control) -> Result<Undid> {
    let directory = control.directory.as_path();
    let host = control.open_as(Actor::Person);
    peers::ask(directory, Actor::Person)?;
    let is_in_force = host.show().map_or(true, |shown| shown.state != State::None);
    let watch = peers::holder(directory, Role::Watch);
    let mut is_new = false;
    if is_in_force || watch.is_some() {
        // Before anything is taken back: a watch that waits for the lock meanwhile finds it.
        is_new = !peers::suspend(directory).at("cannot write to", directory)?;
    }
    let undone = host.undo();
    if undone.is_err() && is_new {
        // It did not happen, and so it does not hold.
        peers::resume(directory).at("cannot write to", directory)?;
    }
    let undone = undone?;
    bounds::forget(directory).at("remove a file of", directory)?;
    Ok(Undid { undone, watch })
}

/// Drops the journal without restoring anything.
///
/// # Errors
/// A measurement runs, or the journal cannot be dropped.
pub fn forget(control: &Control) -> Result<()> {
    Ok(control.open_as(Actor::Person).forget()?)
}

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Ends a measurement. Its guard restores what was found, and lets go of the role then.
///
/// # Errors
/// A process that cannot be ended.
pub fn end_measure(control: &Control) -> Result<()> {
    let directory = control.directory.as_path();
    let Some(measure) = peers::holder(directory, Role::Measure) else {
        return Ok(());
    };
    // One that is stopped, too.
    let end = || -> std::io::Result<()> {
        match measure.process.open()? {
            Some(process) => process.kill(),
            None => Ok(()),
        }
    };
    end().cannot(format!("end the measurement ({measure})"))?;
    let begun = Instant::now();
    while peers::is_held(directory, Role::Measure) && begun.elapsed() < control.patience {
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
