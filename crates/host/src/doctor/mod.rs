//! `steadyvm doctor`: what a machine can and cannot promise, check by check.

mod check;
mod cpus;
mod host_services;
mod isolation;
mod kernel;
mod kvm;
mod macvtaps;
mod network;
mod quotas;
mod realtime;
mod scheduling;
mod switches;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use check::{Check, Status};

use crate::method::{Method, Need};
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
        ("network", macvtaps::checks(machine)),
        ("network", switches::checks(machine)),
        ("scheduling and memory", realtime::checks(machine)),
        ("scheduling and memory", scheduling::checks(machine)),
        ("scheduling and memory", quotas::checks(machine)),
        ("scheduling and memory", host_services::checks(machine)),
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
        Need::Levels => (!machine.has_levels()).then(|| {
            format!(
                "kernel: no {}, it is built without kernel/patches/6.12",
                known::PRIORITY
            )
        }),
        Need::IsolatedCpus => TunedProfile::of(machine).is_err().then(|| {
            "CPUs: none is isolated, which takes a boot with isolcpus= and nohz_full=".into()
        }),
        // No method of hosts needs one: a guest's card is whoever runs it's.
        Need::Iommu => None,
    }
}
