//! What a profile asks of early demultiplexing.
//!
//! Rule: the thread of a level never stands above a process of the next level, or packets for low
//! priorities would preempt high ones again, which is what the levels are there to end.

use serde::{Deserialize, Serialize};
use steadyvm_config::{Demux, Level};
use steadyvm_demux::{Levels, Queues, Specification};

use super::class::ThreadPriority;

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
