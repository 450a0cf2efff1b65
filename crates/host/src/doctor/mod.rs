//! `steadyvm doctor`: what a machine can and cannot promise, check by check.

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::method::Method;

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Nothing to do.
    Ok,
    /// It works, with less consistent latency.
    Warn,
    /// A method does not work, or latency is not bounded.
    Bad,
    /// It could not be read.
    Unknown,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// A stable name.
    pub id: String,
    /// The group it is printed in.
    pub group: String,
    /// What is checked.
    pub title: String,
    /// The verdict.
    pub status: Status,
    /// What was found, with the file it was read from.
    pub found: String,
    /// Why it matters.
    pub why: String,
    /// What to do; empty if nothing is.
    pub fix: String,
}

/// Whether the machine can hold a method.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The method.
    pub method: Method,
    /// Whether it can be applied here.
    pub possible: bool,
    /// Why not; empty if it can.
    pub reasons: Vec<String>,
}

/// All checks of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The version of the format.
    pub schema_version: u32,
    /// The kernel.
    pub kernel: String,
    /// The checks, by group.
    pub checks: Vec<Check>,
    /// The methods this machine can hold.
    pub methods: Vec<Verdict>,
}

/// Examines a machine. Reads only.
pub fn examine(machine: &Machine) -> Report {
    let kernel = machine.kernel_release().unwrap_or_default();
    Report {
        schema_version: 1,
        kernel,
        checks: Vec::new(),
        methods: Vec::new(),
    }
}
