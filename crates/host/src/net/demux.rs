//! Early demultiplexing in a profile: what it asks for, and its steps.
//!
//! Rule: the thread of a level never stands above a process of the next level, or packets for low
//! priorities would preempt high ones again, which is what the levels are there to end.

use serde::{Deserialize, Serialize};
use steadyvm_config::{Demux, Level};
use steadyvm_demux::{Levels, Queues, Specification};

use super::profile::{ThreadPriority, at};
use super::softirqs::policy;
use crate::cpu_set::CpuSet;
use crate::demux::Presence;
use crate::engine::Step;
use crate::error::HostError;
use crate::levels;
use crate::machine::{Machine, Thread};
use crate::settings::{Change, ChangeOf, EarlyDemux, Installed};

/// Early demultiplexing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DemuxProfile {
    /// NICs, levels and where these have their queues.
    pub specification: Specification,
    /// The levels' threads, from the lowest; none where the levels are the kernel's own.
    pub threads: Vec<ThreadPriority>,
    /// Where the profile names it, for messages.
    pub place: String,
}

/// What a `[net.demux]` asks for, or what is wrong with it. `levels_from` is `[net]`'s.
pub(super) fn read(
    table: &Demux,
    levels_from: Option<u32>,
    place: String,
) -> Result<DemuxProfile, String> {
    if table.nics.is_empty() {
        return Err("demux names no NIC".into());
    }
    let mut names = table.nics.clone();
    names.sort();
    names.dedup();
    if names.len() < table.nics.len() {
        return Err("demux names a NIC twice".into());
    }
    let (from, queues, threads) = match (table.cpu, &table.levels, table.rt_from) {
        (None, None, Some(rt_from)) => {
            if rt_from == 0 {
                return Err("demux: rt_from = 0 would put every port on the RT level".into());
            }
            if levels_from.is_none() {
                return Err(
                    "demux: rt_from needs [net] levels_from, the priority at which \
                            the kernel handles the RT level's packets"
                        .into(),
                );
            }
            (vec![0, rt_from], Queues::Kernel, Vec::new())
        }
        (Some(cpu), Some(levels), None) => {
            refuse_inversions(levels)?;
            let from = levels.iter().map(|level| level.from).collect();
            let threads = levels.iter().map(|level| level.thread).collect();
            (from, Queues::Threads { cpu }, threads)
        }
        _ => {
            return Err(
                "demux needs cpu and levels, or rt_from alone for the kernel's own \
                        levels"
                    .into(),
            );
        }
    };
    Ok(DemuxProfile {
        specification: Specification {
            nics: table.nics.clone(),
            levels: Levels::new(from).map_err(|error| format!("demux: {error}"))?,
            queues,
        },
        threads,
        place,
    })
}

fn refuse_inversions(levels: &[Level]) -> Result<(), String> {
    for pair in levels.windows(2) {
        let (low, next) = (pair[0], pair[1]);
        if low.thread > next.thread {
            return Err(format!(
                "demux: the thread of the level from {} (thread = {}) stands above the next \
                 level's ({})",
                low.from, low.thread, next.thread
            ));
        }
        if low.thread >= ThreadPriority::Fifo(next.from) {
            return Err(format!(
                "demux: the thread of the level from {} (thread = {}) would preempt processes \
                 of the next level, which begins at priority {}",
                low.from, low.thread, next.from
            ));
        }
    }
    Ok(())
}

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
