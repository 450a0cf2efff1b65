//! Steps of early demultiplexing.

use steadyvm_demux::Queues;

use super::levels;
use super::step::Step;
use super::threads::policy;
use crate::cpu_set::CpuSet;
use crate::error::{HostError, at};
use crate::profile::DemuxProfile;
use crate::settings::demux::Presence;
use crate::settings::{Change, ChangeOf, EarlyDemux, Installed, Machine, Thread};

/// The steps that install it; its threads' priorities, once they are there. The kernel's own levels begin
/// at priority `levels_from`.
pub(super) fn steps(
    machine: &Machine,
    threads: &[Thread],
    profile: &DemuxProfile,
    levels_from: Option<u32>,
    online: &CpuSet,
    own: &[Step],
    steps: &mut Vec<Step>,
) -> Result<(), HostError> {
    let refuse = |what: &str, fix: &str| {
        Err(HostError::BadInput {
            what: at(&profile.place, what),
            fix: fix.to_owned(),
        })
    };
    let specification = &profile.specification;
    if let Queues::Threads { cpu } = specification.queues
        && !online.contains(cpu as usize)
    {
        let what = format!("demux: CPU {cpu} is not online");
        return refuse(&what, &format!("name one of {online}"));
    }
    for nic in &specification.nics {
        let exists = machine.tree.exists(&format!("/sys/class/net/{nic}"));
        if nic.is_empty() || nic.contains('/') || nic.starts_with('.') || !exists {
            let what = format!("demux: there is no network interface `{nic}`");
            return refuse(&what, "name a NIC of this host");
        }
    }
    let read = |error| HostError::io("look for", "early demultiplexing", error);
    let presence = machine.demux.presence(specification).map_err(read)?;
    let is_ours = own
        .iter()
        .any(|step| matches!(step.change, Change::EarlyDemux(_)));
    if presence != Presence::Absent && !is_ours {
        return refuse(
            "demux: programs of an earlier steadyvm are pinned below /sys/fs/bpf, and no journal \
             knows them",
            "remove /sys/fs/bpf/steadyvm-demux, which ends them",
        );
    }
    if specification.queues == Queues::Kernel {
        let (asker, instead) = ("[net.demux] rt_from", "give it cpu and levels");
        let rank = levels_from.unwrap_or_default();
        steps.extend(levels::mark_steps(machine, rank, asker, instead)?);
    }
    let change = ChangeOf {
        setting: EarlyDemux {
            specification: specification.clone(),
        },
        old: Installed::Absent,
        new: Installed::Whole,
    };
    let why = "so that packets are processed with the rank of the process that receives them";
    steps.push(Step::required(change, why));
    if presence != Presence::Whole {
        return Ok(());
    }
    for (name, priority) in machine
        .demux
        .threads()
        .map_err(read)?
        .iter()
        .zip(&profile.threads)
    {
        let named = threads
            .iter()
            .filter(|thread| thread.is_kernel() && thread.id.comm == *name);
        for thread in named {
            let why = "so that a level's packets have the level's rank";
            steps.extend(policy(machine, &thread.id, *priority, 0, why)?);
        }
    }
    Ok(())
}
