//! Threads that were started while a CPU was dedicated have inherited the CPUs of their parent,
//! so undo has to widen them too, although no journal names them.

use std::collections::HashMap;

use crate::change::Change;
use crate::cpu_set::CpuSet;
use crate::journal::Journal;
use crate::machine::{Machine, Thread, ThreadId};
use crate::undo::Undone;

/// How far up the family tree an inherited setting is looked for.
const GENERATIONS: usize = 64;

/// Widens every thread that started after the settings were applied and still has exactly the
/// CPUs that its nearest recorded ancestor was given.
pub(crate) fn widen(machine: &Machine, journal: &Journal, undone: &mut Undone) {
    let mut moved: HashMap<&ThreadId, (&CpuSet, &CpuSet)> = HashMap::new();
    for step in &journal.steps {
        if let Change::ThreadAffinity { thread, old, new } = &step.change {
            moved
                .entry(thread)
                .and_modify(|(_, latest)| *latest = new)
                .or_insert((old, new));
        }
    }
    if moved.is_empty() {
        return;
    }
    let Ok(threads) = machine.all_threads() else {
        return;
    };
    let by_tid: HashMap<u32, &Thread> = threads
        .iter()
        .map(|thread| (thread.id.tid, thread))
        .collect();
    // A parent may have ended; its children then belong to process 1, which was moved too.
    let first = moved
        .iter()
        .find(|(id, _)| id.tid == 1)
        .map(|(_, sets)| *sets);
    for thread in &threads {
        let later = thread.id.start_time >= journal.header.applied_ticks;
        if !later || thread.is_kernel() || !thread.is_movable() || moved.contains_key(&thread.id) {
            continue;
        }
        let Some((old, new)) = ancestor(thread, &by_tid, &moved).or(first) else {
            continue;
        };
        let Ok(now) = machine.threads.affinity(thread.id.tid) else {
            continue;
        };
        let inherited = now == *new && now != *old && machine.still_runs(&thread.id);
        if inherited && machine.threads.set_affinity(thread.id.tid, old).is_ok() {
            undone.heirs += 1;
        }
    }
}

/// The sets of the nearest recorded ancestor: the thread's own process, then its parents.
fn ancestor<'a>(
    thread: &Thread,
    by_tid: &HashMap<u32, &Thread>,
    moved: &HashMap<&ThreadId, (&'a CpuSet, &'a CpuSet)>,
) -> Option<(&'a CpuSet, &'a CpuSet)> {
    let mut leader = by_tid.get(&thread.id.pid)?;
    for _ in 0..GENERATIONS {
        if let Some(sets) = moved.get(&leader.id) {
            return Some(*sets);
        }
        leader = by_tid.get(&leader.parent)?;
    }
    None
}
