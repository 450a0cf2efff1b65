//! Threads that were started while a CPU was dedicated have inherited the CPUs of their parent,
//! so undo has to widen them too, although no journal names them.

use std::collections::HashMap;

use super::journal::Journal;
use crate::cpu_set::CpuSet;
use crate::settings::{Change, Machine, Thread, ThreadId};

/// How far up the family tree an inherited setting is looked for.
const GENERATIONS: usize = 64;

/// A thread that has not been widened yet may start another: look again this often.
const PASSES: usize = 8;

/// The CPUs a thread had and was given, by thread.
type Moves<'a> = HashMap<&'a ThreadId, (&'a CpuSet, &'a CpuSet)>;

/// Widens every thread that started after the settings were applied and still has exactly the
/// CPUs that its nearest recorded ancestor was given. Returns how many there were.
pub(crate) fn widen(machine: &Machine, journal: &Journal) -> usize {
    let mut moves = Moves::new();
    for step in &journal.steps {
        if let Change::ThreadAffinity(change) = &step.change {
            moves
                .entry(&change.setting.thread)
                .and_modify(|(_, latest)| *latest = &change.new)
                .or_insert((&change.old, &change.new));
        }
    }
    let mut widened = 0;
    if moves.is_empty() {
        return widened;
    }
    for _ in 0..PASSES {
        match pass(machine, journal.header.applied_ticks, &moves) {
            0 => break,
            count => widened += count,
        }
    }
    widened
}

fn pass(machine: &Machine, since: u64, moves: &Moves<'_>) -> usize {
    let Ok(threads) = machine.all_threads() else {
        return 0;
    };
    let by_tid: HashMap<u32, &Thread> = threads
        .iter()
        .map(|thread| (thread.id.tid, thread))
        .collect();
    // A parent may have ended; its children then belong to process 1, which was moved too.
    let first = moves
        .iter()
        .find(|(id, _)| id.tid == 1)
        .map(|(_, sets)| *sets);
    let mut widened = 0;
    for thread in &threads {
        let later = thread.id.start_time >= since;
        if !later || thread.is_kernel() || !thread.is_movable() || moves.contains_key(&thread.id) {
            continue;
        }
        let Some((old, new)) = ancestor(thread, &by_tid, moves).or(first) else {
            continue;
        };
        let Ok(now) = machine.threads.affinity(thread.id.tid) else {
            continue;
        };
        let inherited = now == *new && now != *old && machine.still_runs(&thread.id);
        if inherited && machine.threads.set_affinity(thread.id.tid, old).is_ok() {
            widened += 1;
        }
    }
    widened
}

/// The sets of the nearest recorded ancestor: the thread's own process, then its parents.
fn ancestor<'a>(
    thread: &Thread,
    by_tid: &HashMap<u32, &Thread>,
    moves: &Moves<'a>,
) -> Option<(&'a CpuSet, &'a CpuSet)> {
    let mut leader = by_tid.get(&thread.id.pid)?;
    for _ in 0..GENERATIONS {
        if let Some(sets) = moves.get(&leader.id) {
            return Some(*sets);
        }
        leader = by_tid.get(&leader.parent)?;
    }
    None
}
