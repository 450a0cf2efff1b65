//! Puts a file or a method in force, or brings the host up to date with it.

use steadyvm_fault::At;
use steadyvm_host::{Plan, Report, Switches, Target};

use crate::bounds;
use crate::control::Control;
use crate::error::Result;
use crate::ext;
use crate::peers::{self, Actor};
use crate::site::{Done, NotServed, Site};
use crate::source::{Source, name_of};

/// What applying a file did.
pub struct Applied {
    /// The file.
    pub name: String,
    /// What was done, and what is not served.
    pub done: Done,
}

/// Puts a file in force. A watch that an undo has stopped goes on, and so does a scheduler that the kernel has ended.
///
/// # Errors
/// A watch that would take it back, a file that is wrong, somebody else who acts; all or nothing, what failed.
pub fn apply(source: &Source, control: &Control) -> Result<Applied> {
    let directory = control.directory.as_path();
    peers::must_not_be_watched(directory, Some(&source.file))?;
    ext::forget().doing("forget that the kernel has ended the scheduler of VCPU budgets")?;
    let done = Site::read(source)?.reconcile(&control.open_as(Actor::Person))?;
    if !done.made().is_empty() {
        bounds::forget(directory).at("remove a file of", directory)?;
    }
    peers::resume(directory).at("cannot write to", directory)?;
    Ok(Applied {
        name: name_of(&source.file),
        done,
    })
}

/// What applying a file would change, and what would not be served. Changes nothing.
///
/// # Errors
/// A file that is wrong; all or nothing, what would fail.
pub fn plan(source: &Source, control: &Control) -> Result<(Plan, Vec<NotServed>)> {
    Site::read(source)?.plan(&control.open())
}

/// Puts a method in force, all or nothing.
///
/// # Errors
/// A watch that would take it back, a target that is not there, what the kernel refused.
pub fn apply_method(target: &Target, method: Switches, control: &Control) -> Result<Report> {
    let directory = control.directory.as_path();
    peers::must_not_be_watched(directory, None)?;
    bounds::forget(directory).at("remove a file of", directory)?;
    Ok(control.open_as(Actor::Person).apply(target, method)?)
}

/// What applying a method would change. Changes nothing.
///
/// # Errors
/// A target that is not there, a kernel that lacks what the method needs.
pub fn plan_method(target: &Target, method: Switches, control: &Control) -> Result<Plan> {
    Ok(control.open().plan(target, method)?)
}
