//! The budgets of a VM's receive work, as a file writes them.

use steadyvm_config::{CardWay, Share, Vm};

use super::budget::VcpuBudget;
use super::fields::wrong;
use crate::error::HostError;
use crate::settings::PacketBudget;

/// Budgets of a VM's receive work.
#[derive(Debug, Default)]
pub(super) struct ReceiveBudgets {
    /// Of packets, where an XDP program sorts its card's.
    pub packets: Option<PacketBudget>,
    /// Of each NAPI thread, where a function brings its packets.
    pub polls: Vec<VcpuBudget>,
    /// Of each vhost worker.
    pub vhost: Vec<VcpuBudget>,
}

/// Reads the budgets of a VM's receive work.
pub(super) fn budgets(name: &str, vm: &Vm) -> Result<ReceiveBudgets, HostError> {
    let Some(table) = &vm.receive else {
        return Ok(ReceiveBudgets::default());
    };
    let refuse = |(what, fix): (&str, &str)| {
        let what = format!("VM \"{name}\": receive: {what}");
        wrong(&table.place, &what, fix)
    };
    let servers = table.value.servers().map_err(refuse)?;
    if vm.nic.is_none() && servers.polls.is_some() {
        return Err(refuse((
            "its budget is of packets of a shared card, and the VM names none",
            "write `nic`, the card that its packets come by, or only `vhost_budget`",
        )));
    }
    let positive = |ns: i64| u64::try_from(ns).unwrap_or_default();
    let period_ns = positive(servers.period_ns);
    let each = |share: Option<Share>| -> Vec<VcpuBudget> {
        let budget = |share: Share| VcpuBudget {
            runtime_ns: positive(share.each_ns()),
            deadline_ns: period_ns,
            period_ns,
            ..VcpuBudget::default()
        };
        let all = share.map(|share| vec![budget(share); share.threads as usize]);
        all.unwrap_or_default()
    };
    Ok(ReceiveBudgets {
        packets: servers.polls.map(|share| PacketBudget {
            runtime_ns: positive(share.total_ns),
            period_ns,
            packet_ns: u32::try_from(servers.packet_ns).unwrap_or(u32::MAX),
        }),
        polls: each(servers.polls.filter(|_| vm.way != Some(CardWay::Xdp))),
        vhost: each(servers.vhost),
    })
}
