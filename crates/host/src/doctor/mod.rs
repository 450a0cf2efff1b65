//! `steadyvm doctor`: what a machine can and cannot promise, check by check.

mod cpus;
mod isolation;
mod kernel;
mod kvm;
mod network;
mod quotas;
mod realtime;
mod scheduling;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::levels;
use crate::machine::{Machine, printable};
use crate::method::{Method, Need};
use crate::net::tuned::TunedProfile;

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
    /// Why not; or, if it can, what casts doubt on it.
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

/// Examines a machine. Reads only, and never fails: what cannot be read is `unknown`.
pub fn examine(machine: &Machine) -> Report {
    let mut checks = Vec::new();
    for (group, found) in [
        ("virtualisation", kvm::checks(machine)),
        ("kernel", kernel::checks(machine)),
        ("processors", cpus::checks(machine)),
        ("network", network::checks(machine)),
        ("scheduling and memory", realtime::checks(machine)),
        ("scheduling and memory", scheduling::checks(machine)),
        ("scheduling and memory", quotas::checks(machine)),
    ] {
        checks.extend(found.into_iter().map(|check| Check {
            group: group.into(),
            found: printable(&check.found).into_owned(),
            fix: printable(&check.fix).into_owned(),
            title: printable(&check.title).into_owned(),
            ..check
        }));
    }
    let methods = Method::of_hosts()
        .map(|method| verdict(machine, &checks, method))
        .collect();
    let kernel = machine.kernel_release().unwrap_or_else(|| "unknown".into());
    Report {
        schema_version: 1,
        kernel,
        checks,
        methods,
    }
}

/// Whether a method can be applied: the checks it needs must not be bad.
fn verdict(machine: &Machine, checks: &[Check], method: Method) -> Verdict {
    let needs = method.row().needs.iter();
    let mut reasons: Vec<String> = needs
        .filter_map(|&need| lacking(machine, checks, need))
        .collect();
    let possible = reasons.is_empty();
    if possible {
        let doubtful = checks
            .iter()
            .filter(|check| check.id == "kvm.vendor" && check.status == Status::Warn)
            .map(|check| format!("if stock guests run ({})", check.found));
        reasons.extend(doubtful);
    }
    Verdict {
        method,
        possible,
        reasons,
    }
}

/// Why the machine has not what a method needs.
fn lacking(machine: &Machine, checks: &[Check], need: Need) -> Option<String> {
    let is_bad = |id: &str| {
        let mut bad = checks.iter().filter(|check| check.status == Status::Bad);
        let check = bad.find(|check| check.id == id)?;
        Some(format!("{}: {}", check.title, check.found))
    };
    match need {
        Need::Kvm => is_bad("kvm.device"),
        Need::PreemptRt => is_bad("kernel.preempt-rt"),
        Need::ConstantClock => is_bad("cpu.constant-tsc"),
        Need::Cards => is_bad("network.nics"),
        Need::TwoCpus => (machine.online().is_ok_and(|online| online.len() < 2))
            .then(|| "CPUs: only one is online, and it would be the one to dedicate".into()),
        Need::Levels => machine.tree.read(levels::PRIORITY).is_err().then(|| {
            format!(
                "kernel: no {}, it is built without kernel/patches/6.12",
                levels::PRIORITY
            )
        }),
        Need::IsolatedCpus => TunedProfile::of(machine).is_err().then(|| {
            "CPUs: none is isolated, which takes a boot with isolcpus= and nohz_full=".into()
        }),
        // No method of hosts needs one: a guest's card is whoever runs it's.
        Need::Iommu => None,
    }
}

/// Starts a check; the group is filled in by [`examine`].
fn check(id: &str, title: &str, why: &str) -> Check {
    Check {
        id: id.into(),
        group: String::new(),
        title: title.into(),
        status: Status::Unknown,
        found: String::new(),
        why: why.into(),
        fix: String::new(),
    }
}

impl Check {
    fn ok(self, found: impl Into<String>) -> Self {
        Self {
            status: Status::Ok,
            found: found.into(),
            ..self
        }
    }

    fn warn(self, found: impl Into<String>, fix: &str) -> Self {
        Self {
            status: Status::Warn,
            found: found.into(),
            fix: fix.into(),
            ..self
        }
    }

    fn bad(self, found: impl Into<String>, fix: &str) -> Self {
        Self {
            status: Status::Bad,
            found: found.into(),
            fix: fix.into(),
            ..self
        }
    }

    fn unknown(self, found: impl Into<String>, fix: &str) -> Self {
        Self {
            found: found.into(),
            fix: fix.into(),
            ..self
        }
    }
}

/// The trimmed content of a file, if it can be read.
fn text(machine: &Machine, path: &str) -> Option<String> {
    machine
        .tree
        .read(path)
        .ok()
        .map(|text| text.trim().to_owned())
}
