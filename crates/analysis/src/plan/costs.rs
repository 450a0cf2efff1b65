//! What a host costs beside the work of its VMs: who says it, and what nobody says.
//!
//! Rule: a cost that the file names is the file's, 0 included. One that it leaves out is the measured one; where nothing was
//! measured it counts 0, and the bounds it belongs to are incomplete. A decision is part of the switch it is made for: only
//! on a host with a quantum is it a cost of its own.

use serde::Serialize;

use super::{Needs, Request, Unit, outcome::Outcome};
use crate::{host::overhead::Overheads, time::Time};

/// Costs that were measured on the host of a plan, for what its file leaves out. By default nothing was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    /// One switch of VCPUs with its decision, ns.
    pub context_switch: Option<Time>,
    /// A VCPU that moves to another CPU, ns.
    pub migration: Option<Time>,
    /// Filling the caches again, ns.
    pub cache_reload: Option<Time>,
    /// From an interrupt that is due to the thread that it wakes, ns.
    pub interrupt: Option<Time>,
    /// Receiving one packet for a VM, from the card's poll to the guest's memory, ns.
    pub packet: Option<Time>,
}

/// A term of a bound for which nothing is counted, since neither the file nor a measurement has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// Of the receive path, the interrupt or the packet.
    ReceivePath,
    /// From the guest's wake-up to its task.
    GuestWakeup,
    /// Of the way back, one of its parts.
    SendPath,
    /// A switch of VCPUs.
    ContextSwitch,
    /// Cold caches.
    CacheReload,
    /// A VCPU that moves.
    Migration,
    /// A decision at each quantum.
    Decision,
}

impl Missing {
    /// It and where to write it, for people.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::ReceivePath => "receive path (receive.interrupt, receive.packet)",
            Self::GuestWakeup => "guest wake-up (wake)",
            Self::SendPath => "way back (send)",
            Self::ContextSwitch => "switches (host.overheads.context_switch)",
            Self::CacheReload => "cold caches (host.overheads.cache_reload)",
            Self::Migration => "migrations (host.overheads.migration)",
            Self::Decision => "decisions at each quantum (host.overheads.decision)",
        }
    }

    /// Whether `steadyvm calibrate` measures it.
    const fn is_calibrated(self) -> bool {
        matches!(
            self,
            Self::ContextSwitch | Self::CacheReload | Self::Migration
        )
    }

    /// Whether packets have to be followed to know it.
    const fn is_of_packets(self) -> bool {
        matches!(self, Self::ReceivePath | Self::GuestWakeup | Self::SendPath)
    }
}

/// What these have counted, and what to do, in words.
pub(super) fn sentence(missing: &[Missing]) -> String {
    let words: Vec<&str> = missing.iter().map(|term| term.words()).collect();
    let mut help = Vec::new();
    if missing.iter().any(|term| term.is_calibrated()) {
        help.push("`steadyvm calibrate` measures the host's costs");
    }
    if missing.iter().any(|term| term.is_of_packets()) {
        help.push("`steadyvm explain --plan` shows those of packets");
    }
    let help = if help.is_empty() {
        String::new()
    } else {
        format!("; {}", help.join(", "))
    };
    format!("nothing is counted for {}{help}", words.join(", "))
}

/// Costs of a file's host, each with what was measured in the place of what the file leaves out.
pub(super) struct Costs {
    pub overheads: Overheads,
    /// What nobody says.
    pub missing: Vec<Missing>,
    /// What was measured and is counted, by its key.
    pub taken: Vec<(&'static str, Time)>,
}

impl Costs {
    /// Those of `[host.overheads]`. `moves`: whether VCPUs move between CPUs.
    pub fn of(
        table: &steadyvm_config::Overheads,
        quantum: Time,
        moves: bool,
        measured: &Measured,
    ) -> Self {
        let mut costs = Self {
            overheads: Overheads::default(),
            missing: Vec::new(),
            taken: Vec::new(),
        };
        let mut cost = |written: Option<steadyvm_config::Written>, measured, key, missing| match (
            written, measured,
        ) {
            (Some(written), _) => written.0,
            (None, Some(measured)) => {
                costs.taken.push((key, measured));
                measured
            }
            (None, None) => {
                costs.missing.extend(missing);
                0
            }
        };
        let context_switch = cost(
            table.context_switch,
            measured.context_switch,
            "host.overheads.context_switch",
            Some(Missing::ContextSwitch),
        );
        let cache_reload = cost(
            table.cache_reload,
            measured.cache_reload,
            "host.overheads.cache_reload",
            Some(Missing::CacheReload),
        );
        let migration = cost(
            table.migration,
            measured.migration.filter(|_| moves),
            "host.overheads.migration",
            moves.then_some(Missing::Migration),
        );
        let is_apart = quantum > 0;
        let decision = is_apart.then_some(Missing::Decision);
        let scheduler = cost(table.decision, None, "host.overheads.decision", decision);
        costs.overheads = Overheads {
            quantum,
            scheduler,
            context_switch,
            migration,
            cache_reload,
            ..costs.overheads
        };
        costs
    }
}

/// That measured costs are counted, in words; none if none is.
pub(super) fn taken(taken: &[(&'static str, Time)], unit: Unit) -> Option<String> {
    if taken.is_empty() {
        return None;
    }
    let costs: Vec<String> = (taken.iter())
        .map(|(key, time)| format!("{key} {}", unit.show((*time).into())))
        .collect();
    Some(format!(
        "what the file leaves out is as `steadyvm calibrate` measured it: {}",
        costs.join(", ")
    ))
}

impl Request {
    /// Which of the host's costs no budget of this VM contains.
    pub(super) fn missing_of(&self, vm: usize, outcomes: &[Outcome]) -> &[Missing] {
        let is_best_effort = matches!(self.vms[vm].needs, Needs::BestEffort { .. });
        match outcomes[vm].interface() {
            // Its VCPUs always run, and are never switched.
            Some(interface)
                if (interface.vcpu_budgets.iter())
                    .all(|&budget| budget == 0 || budget == interface.period) =>
            {
                &[]
            }
            _ if is_best_effort => &[],
            _ => &self.missing,
        }
    }
}
