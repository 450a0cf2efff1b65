//! A program without a VM whose threads have budgets: those of one process in a cgroup, by their name.
//!
//! Threads of a container may call themselves what they like. What they can get so is the budget of their own cgroup, whose
//! file counts it, and no more: as many threads as the plan has VCPUs, each on its planned CPU.

use super::vm::Vm;
use crate::settings::{Thread, ThreadId};

/// The most bytes of a thread's name, without the zero at its end (`TASK_COMM_LEN` of include/linux/sched.h).
pub(crate) const LONGEST_NAME: usize = 15;

/// Whether a thread's name is that of a file's `threads`: with a `*` at the end any that begins so.
pub(super) fn is_named(comm: &str, wanted: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(beginning) => comm.starts_with(beginning),
        None => comm == wanted,
    }
}

/// The threads of a process that are named so, in the order that they began; none if there are none.
pub(super) fn of(pid: u32, threads: &[&Thread], wanted: &str) -> Option<Vm> {
    let named = threads.iter().filter(|it| is_named(&it.id.comm, wanted));
    let mut named: Vec<&ThreadId> = named.map(|thread| &thread.id).collect();
    named.sort_by_key(|id| (id.start_time, id.tid));
    if named.is_empty() {
        return None;
    }
    Some(Vm {
        pid,
        vcpus: (0..).zip(named.into_iter().cloned()).collect(),
        is_container: true,
        ..Vm::default()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn thread(tid: u32, start_time: u64, comm: &str) -> Thread {
        Thread {
            id: ThreadId {
                pid: 7,
                tid,
                start_time,
                comm: comm.to_owned(),
            },
            parent: 1,
            flags: 0,
        }
    }

    #[test]
    fn a_name_is_whole_or_a_beginning() {
        for (comm, wanted, expected) in [
            ("plc", "plc", true),
            ("plc1", "plc", false),
            ("plc", "plc1", false),
            ("plc", "plc*", true),
            ("plc1", "plc*", true),
            ("a-plc", "plc*", false),
            ("p*c", "p*c", true),
            ("plc", "p*c", false),
        ] {
            assert_eq!(is_named(comm, wanted), expected, "{comm} {wanted}");
        }
    }

    proptest! {
        /// Whatever else the process does: its threads of the name, each once, the oldest first.
        #[test]
        fn threads_of_the_name_are_vcpus_in_the_order_that_they_began(
            listed in prop::collection::btree_map(1_u32..99, (0_u64..9, prop::sample::select(vec!["plc", "plc1", "log"])), 0..9),
        ) {
            let all: Vec<Thread> = listed.iter().map(|(tid, (start, comm))| thread(*tid, *start, comm)).collect();
            let borrowed: Vec<&Thread> = all.iter().collect();
            let found: Vec<(u64, u32)> = of(7, &borrowed, "plc*").into_iter().flat_map(|vm| vm.vcpus.into_values())
                .map(|id| (id.start_time, id.tid)).collect();
            let mut expected: Vec<(u64, u32)> = listed.iter().filter(|(_, (_, comm))| *comm != "log")
                .map(|(tid, (start, _))| (*start, *tid)).collect();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }
}
