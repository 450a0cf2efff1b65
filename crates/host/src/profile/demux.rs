//! What a profile asks of early demultiplexing.
//!
//! Rule: the thread of a level never stands above a process of the next level, or packets for low
//! priorities would preempt high ones again, which is what the levels are there to end.

use serde::{Deserialize, Serialize};
use steadyvm_config::{Demux, Level, Place, Placed};
use steadyvm_demux::{FRAMES, Frames, Levels, Queues, Specification};

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

/// What a `[net.demux]` asks for, or what is wrong with it, and where. `levels_from` is `[net]`'s.
pub(super) fn read(
    table: &Placed<Demux>,
    levels_from: Option<u32>,
) -> Result<DemuxProfile, (Place, String)> {
    let of_table = |what| (table.place.clone(), what);
    let (from, queues, threads) = queues(table, levels_from).map_err(of_table)?;
    let levels = Levels::new(from).map_err(|error| of_table(format!("demux: {error}")))?;
    Ok(DemuxProfile {
        specification: Specification {
            nics: table.nics.clone(),
            frames: frames(table, &levels)?,
            levels,
            queues,
        },
        threads,
        place: table.place.to_string(),
    })
}

/// Where levels begin, where packets wait for their turn, and the ranks of what takes them on.
fn queues(
    table: &Demux,
    levels_from: Option<u32>,
) -> Result<(Vec<u32>, Queues, Vec<ThreadPriority>), String> {
    if table.nics.is_empty() {
        return Err("demux names no NIC".into());
    }
    let mut names = table.nics.clone();
    names.sort();
    names.dedup();
    if names.len() < table.nics.len() {
        return Err("demux names a NIC twice".into());
    }
    match (table.cpu, &table.levels, table.rt_from) {
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
            Ok((vec![0, rt_from], Queues::Kernel, Vec::new()))
        }
        (Some(cpu), Some(levels), None) => {
            refuse_inversions(levels)?;
            let from = levels.iter().map(|level| level.from).collect();
            let threads = levels.iter().map(|level| level.thread).collect();
            Ok((from, Queues::Threads { cpu }, threads))
        }
        _ => Err(
            "demux needs cpu and levels, or rt_from alone for the kernel's own \
                        levels"
                .into(),
        ),
    }
}

/// The kinds of frames whose level the file says.
fn frames(table: &Placed<Demux>, levels: &Levels) -> Result<Vec<Frames>, (Place, String)> {
    let count = table.frames.len();
    if count > FRAMES {
        let what = format!("demux: there can be {FRAMES} kinds of frames, not {count}");
        return Err((table.place.clone(), what));
    }
    let highest = levels.of_kernel();
    let read = |table: &Placed<steadyvm_config::Frames>| {
        let wrong = |what: String| (table.place.clone(), format!("demux: {what}"));
        let level = table.level.map_or(highest, |level| level as usize);
        let own = u8::try_from(level).ok().filter(|_| level <= highest);
        let refused = || wrong(format!("level {level} is not one of 0 to {highest}"));
        let frames = Frames {
            ethertype: table.ethertype.map(|it| it.0),
            vlan: table.vlan.map(|it| it.0),
            pcp: table.pcp.map(|it| it.0),
            level: own.ok_or_else(refused)?,
        };
        if frames.ethertype.is_none() && !frames.has_tag() {
            let what = "frames are named by at least one of ethertype, vlan and pcp";
            return Err(wrong(what.into()));
        }
        Ok(frames)
    };
    table.frames.iter().map(read).collect()
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
