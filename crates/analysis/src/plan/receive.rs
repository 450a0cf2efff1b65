//! Receive servers: what receives for a VM, with a budget of `SCHED_DEADLINE`, in the same sum as VCPUs.
//!
//! Rule: each NAPI thread of a VM's function, and each of its vhost workers, is a constant-bandwidth server of budget Q in
//! every period P. Admission treats it as a VCPU: it has a place, and takes its share of a CPU. It counts for VMs that are
//! not real-time, too. What an XDP program bounds is no server: its polls have a rank, and run in what is left.
//!
//! Bound: a server whose budget others have used up stays away for at most 2 (P - Q), and supplies at least Q / P after that
//! (Shin and Lee 2003). Servers in a row supply the least of their rates, after the sum of their times away (network calculus,
//! Le Boudec and Thiran 2001, theorem 1.4.6). So a packet costs P / Q of its cost, and waits for their times away. A vhost
//! worker carries responses, too: the way back has its part of both.

use serde::Serialize;
use steadyvm_config::{self as config, CardWay, Share};

use super::{InputError, Unit};
use crate::time::Time;

/// What a thread does that receives for a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiveWork {
    /// It polls the VM's function.
    Polls,
    /// It is a vhost worker.
    Vhost,
}

impl ReceiveWork {
    /// In words, of one of them.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Polls => "NAPI thread",
            Self::Vhost => "vhost worker",
        }
    }
}

/// A thread's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReceiveServer {
    pub work: ReceiveWork,
    /// Its number among those of the same work.
    pub number: usize,
    pub budget: Time,
    pub period: Time,
}

/// The servers of a VM's table. `packet`: what was measured of one.
pub(super) fn servers(
    table: &config::Vm,
    place: &str,
    unit: Unit,
    packet: Option<Time>,
) -> Result<Vec<ReceiveServer>, InputError> {
    let Some(receive) = table.receive.as_ref().map(|receive| receive.value) else {
        return Ok(Vec::new());
    };
    let name = table.name.as_deref().unwrap_or_default();
    let refuse = |(what, fix): (&str, &str)| {
        InputError::new(place, format!("VM \"{name}\": receive: {what}; {fix}"))
    };
    if unit == Unit::Callers && (receive.period.is_none() || receive.rate.is_some()) {
        return Err(refuse((
            "times here have no unit, and a rate and the default period are in seconds",
            "give budget and period",
        )));
    }
    let packet = receive.packet.or(packet.map(config::Written));
    let budgets = config::ReceiveBudget { packet, ..receive };
    let budgets = budgets.servers().map_err(refuse)?;
    let polls = budgets.polls.filter(|_| table.way != Some(CardWay::Xdp));
    let mut servers = Vec::new();
    for (work, share) in [
        (ReceiveWork::Polls, polls),
        (ReceiveWork::Vhost, budgets.vhost),
    ] {
        let Some(share) = share else { continue };
        if share.each_ns() >= budgets.period_ns {
            return Err(refuse((
                "SCHED_DEADLINE gives no thread a whole CPU",
                "use a budget below the period",
            )));
        }
        servers.extend(each(work, share, budgets.period_ns));
    }
    Ok(servers)
}

fn each(work: ReceiveWork, share: Share, period: Time) -> impl Iterator<Item = ReceiveServer> {
    (0..share.threads as usize).map(move |number| ReceiveServer {
        work,
        number,
        budget: share.each_ns(),
        period,
    })
}
