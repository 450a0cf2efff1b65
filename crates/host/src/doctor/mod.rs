//! `steadyvm doctor`: what a machine can and cannot promise, check by check.

mod check;
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

pub use check::{Check, Status};

use crate::method::Method;
use crate::printable::printable;
use crate::profile::TunedProfile;
use crate::settings::Machine;
use crate::settings::files::known;

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
    let methods = Method::ALL
        .into_iter()
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
    let needs: &[&str] = match method {
        Method::Vanilla => &["kvm.device"],
        Method::PreemptRt
        | Method::Dedicated
        | Method::RtPollList
        | Method::RtProfile
        | Method::RtLevels
        | Method::Tuned => &[
            "kvm.device",
            "kernel.preempt-rt",
            "cpu.constant-tsc",
            "network.nics",
        ],
    };
    let mut reasons: Vec<String> = checks
        .iter()
        .filter(|check| needs.contains(&check.id.as_str()) && check.status == Status::Bad)
        .map(|check| format!("{}: {}", check.title, check.found))
        .collect();
    if method == Method::Dedicated && machine.online().is_ok_and(|online| online.len() < 2) {
        reasons.push("CPUs: only one is online, and it would be the one to dedicate".into());
    }
    if method.has_levels() && machine.tree.read(known::PRIORITY).is_err() {
        reasons.push(format!(
            "kernel: no {}, it is built without kernel/patches/6.12",
            known::PRIORITY
        ));
    }
    if method == Method::Tuned && TunedProfile::of(machine).is_err() {
        reasons.push(
            "CPUs: none is isolated, which takes a boot with isolcpus= and nohz_full=".into(),
        );
    }
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
