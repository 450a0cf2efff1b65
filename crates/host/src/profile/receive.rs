//! The budget of a VM's receive work, as a file writes it.

use steadyvm_config::{Placed, ReceiveBudget, Vm, Written};

use super::fields::wrong;
use crate::error::HostError;
use crate::settings::PacketBudget;

/// The period of a budget, unless the file says it.
const PERIOD: Written = Written(10_000_000);

/// What a packet costs, unless the file says it: more than it does on most hosts, so that the bound holds.
const PACKET: Written = Written(5_000);

/// Bounds of a period: the program counts in nanoseconds, and products of two times stay below 2^64.
const PERIODS: (i64, i64) = (1_000, 4_000_000_000);

/// Reads the budget of a VM's receive work; none if it has none.
pub(super) fn budget(name: &str, vm: &Vm) -> Result<Option<PacketBudget>, HostError> {
    let Some(table) = &vm.receive else {
        return Ok(None);
    };
    let refuse = |what: &str, fix: &str| {
        let what = format!("VM \"{name}\": receive: {what}");
        Err(wrong(&table.place, &what, fix))
    };
    if vm.nic.is_none() {
        let fix = "write `nic`, the card that its packets come by, or leave `receive` out";
        return refuse(
            "it bounds packets of a shared card, and the VM names none",
            fix,
        );
    }
    match read(table) {
        Ok(budget) => Ok(Some(budget)),
        Err((what, fix)) => refuse(what, fix),
    }
}

fn read(table: &Placed<ReceiveBudget>) -> Result<PacketBudget, (&'static str, &'static str)> {
    let ReceiveBudget {
        budget: Written(budget),
        period,
        packet,
    } = table.value;
    let (Written(period), Written(packet)) = (period.unwrap_or(PERIOD), packet.unwrap_or(PACKET));
    if !(PERIODS.0..=PERIODS.1).contains(&period) {
        return Err(("the period is out of range", "use \"1us\" to \"4s\""));
    }
    if budget > period {
        return Err((
            "the budget is longer than its period",
            "one CPU is all of it: a budget as long as the period",
        ));
    }
    let number = |time: i64| u64::try_from(time).ok().filter(|time| *time > 0);
    let fitting = u32::try_from(packet).ok().filter(|_| packet <= budget);
    match (number(budget), number(period), fitting) {
        (Some(runtime_ns), Some(period_ns), Some(packet_ns)) if packet_ns > 0 => Ok(PacketBudget {
            runtime_ns,
            period_ns,
            packet_ns,
        }),
        _ => Err((
            "a packet costs nothing, or more than the budget",
            "use a budget of at least one packet",
        )),
    }
}
