//! Which interrupt and which NAPI thread serve which receive queue of a NIC.

use std::collections::{BTreeMap, BTreeSet};

use crate::discover::Nic;
use crate::parse;
use crate::settings::ThreadId;

/// What serves one receive queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Queue {
    pub irqs: Vec<u32>,
    pub irq_threads: Vec<ThreadId>,
    pub napi_thread: Option<ThreadId>,
}

/// The receive queues of a NIC by number. NAPI threads are matched to queues only if there are
/// as many of them as of vectors, or as of receive queues.
pub(super) fn of(nic: &Nic) -> BTreeMap<u32, Queue> {
    let mut vectors: Vec<(u32, Vector)> = nic
        .irqs
        .iter()
        .filter_map(|(irq, actions)| Some((*irq, vector(&nic.name, actions)?)))
        .collect();
    number(&mut vectors, nic.receive_queues);
    let mut queues: BTreeMap<u32, Queue> = BTreeMap::new();
    for (irq, vector) in vectors.iter().filter(|(_, vector)| vector.receives) {
        let queue = queues.entry(vector.queue).or_default();
        queue.irqs.push(*irq);
        let serves = |thread: &&ThreadId| parse::irq_of_thread(&thread.comm) == Some(*irq);
        queue
            .irq_threads
            .extend(nic.irq_threads.iter().filter(serves).cloned());
    }
    if !nic.napi_of_irq.is_empty() {
        for queue in queues.values_mut() {
            let mut threads = queue.irqs.iter().filter_map(|irq| nic.napi_of_irq.get(irq));
            queue.napi_thread = threads.next().cloned();
        }
        return queues;
    }
    // Drivers make their NAPIs in the order of their vectors, and numbers are given in order.
    let mut threads: Vec<(u32, &ThreadId)> = nic
        .napi_threads
        .iter()
        .filter_map(|thread| Some((napi_number(&thread.comm)?, thread)))
        .collect();
    threads.sort();
    let served: Vec<Option<u32>> = if threads.len() == vectors.len() {
        let receiver = |(_, vector): &(u32, Vector)| vector.receives.then_some(vector.queue);
        vectors.iter().map(receiver).collect()
    } else if threads.len() == queues.len() {
        queues.keys().copied().map(Some).collect()
    } else {
        Vec::new()
    };
    for (queue, (_, thread)) in served.into_iter().zip(threads) {
        if let Some(queue) = queue.and_then(|queue| queues.get_mut(&queue)) {
            queue.napi_thread = Some(thread.clone());
        }
    }
    queues
}

/// Gives vectors the numbers of the kernel's receive queues, where the driver counts otherwise:
/// tg3's first queue is `rx-1`, vmxnet3 numbers its events after its queues.
fn number(vectors: &mut [(u32, Vector)], receive_queues: u32) {
    if receive_queues == 0 {
        return;
    }
    let receiving = vectors.iter().filter(|(_, vector)| vector.receives);
    let numbers: BTreeSet<u32> = receiving.map(|(_, vector)| vector.queue).collect();
    let is_shifted = numbers.len() == receive_queues as usize
        && numbers.first() == Some(&1)
        && numbers.last() == Some(&receive_queues);
    for (_, vector) in vectors {
        if is_shifted && vector.receives {
            vector.queue -= 1;
        }
        // There is no such queue to steer packets to.
        vector.receives &= vector.queue < receive_queues;
    }
}

/// An interrupt of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Vector {
    queue: u32,
    receives: bool,
}

/// The queue of an interrupt's actions: `eth0-TxRx-3`, `eth0-rx-3`, `virtio2-input.3`,
/// `mlx5_comp3@pci:…`, `eth0-3`; some only send (`-tx-`, `-output.`). None for those that are
/// the whole NIC's (`eth0`, `virtio2-config`).
fn vector(nic: &str, actions: &str) -> Option<Vector> {
    let action = actions.split(", ").next()?.split('@').next()?;
    let rest = action.strip_prefix(nic).unwrap_or(action);
    let digits = rest.len() - rest.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (kind, number) = rest.split_at(rest.len() - digits);
    let kind = kind.to_ascii_lowercase();
    if kind.is_empty() {
        return None;
    }
    let sends_only = kind.contains("output") || (kind.contains("tx") && !kind.contains("rx"));
    let is_event = ["event", "misc", "async", "control", "config"]
        .iter()
        .any(|word| kind.contains(word));
    Some(Vector {
        queue: number.parse().ok()?,
        receives: !sends_only && !is_event,
    })
}

fn napi_number(comm: &str) -> Option<u32> {
    comm.rsplit_once('-')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_of_drivers() {
        for (actions, expected) in [
            ("eth0-TxRx-3", Some((3, true))),
            ("eth0-rx-12", Some((12, true))),
            ("eth0-tx-1", Some((1, false))),
            ("eth0", None),
            ("eth0-2", Some((2, true))),
            ("virtio2-input.1", Some((1, true))),
            ("virtio2-output.1", Some((1, false))),
            ("virtio2-config", None),
            ("mlx5_comp7@pci:0000:01:00.0", Some((7, true))),
            ("i40e-eth0-TxRx-5", Some((5, true))),
        ] {
            let found = vector("eth0", actions).map(|vector| (vector.queue, vector.receives));
            assert_eq!(found, expected, "{actions}");
        }
    }

    fn nic(vectors: &[&str], napis: &[u32]) -> Nic {
        let thread = |tid: usize, comm: String| ThreadId {
            pid: tid as u32,
            tid: tid as u32,
            start_time: 0,
            comm,
        };
        let named = |(at, name): (usize, &&str)| (at as u32, format!("eth0{name}"));
        let napi = |(at, id): (usize, &u32)| thread(100 + at, format!("napi/eth0-{id}"));
        Nic {
            name: "eth0".into(),
            irqs: vectors.iter().enumerate().map(named).collect(),
            irq_threads: Vec::new(),
            receive_queues: 0,
            napi_of_irq: BTreeMap::new(),
            napi_threads: napis.iter().enumerate().map(napi).collect(),
        }
    }

    fn napi_names(nic: &Nic) -> Vec<Option<String>> {
        let queues = of(nic);
        let name = |queue: &Queue| queue.napi_thread.as_ref().map(|thread| thread.comm.clone());
        queues.values().map(name).collect()
    }

    #[test]
    fn napi_threads_are_matched_only_where_the_numbers_agree() {
        // igb with few queues: a vector for each direction, as in the lab.
        let separate = nic(&["", "-rx-0", "-rx-1", "-tx-0", "-tx-1"], &[12, 11, 10, 9]);
        let first_two = [Some("napi/eth0-9".into()), Some("napi/eth0-10".into())];
        assert_eq!(napi_names(&separate), first_two);
        let both = nic(&["", "-TxRx-0", "-TxRx-1"], &[9, 10]);
        assert_eq!(napi_names(&both), first_two);
        let one = nic(&["", "-TxRx-0", "-TxRx-1"], &[9]);
        assert_eq!(napi_names(&one), [None, None]);
    }

    #[test]
    fn the_kernel_s_word_counts_whatever_the_order() {
        // Named in an order that is not the vectors'.
        let mut nic = nic(&["", "-TxRx-0", "-TxRx-1"], &[9, 10]);
        let [first, second] = [nic.napi_threads[0].clone(), nic.napi_threads[1].clone()];
        nic.napi_of_irq = [(1, second), (2, first)].into();
        let swapped = [Some("napi/eth0-10".into()), Some("napi/eth0-9".into())];
        assert_eq!(napi_names(&nic), swapped);
    }

    #[test]
    fn there_are_no_more_queues_than_the_kernel_has() {
        let numbers = |vectors: &[&str], receive_queues| {
            let nic = Nic {
                receive_queues,
                ..nic(vectors, &[])
            };
            let queues = of(&nic);
            let irqs = queues
                .iter()
                .map(|(number, queue)| (*number, queue.irqs.clone()));
            irqs.collect::<Vec<_>>()
        };
        let first_two = [(0, vec![0]), (1, vec![1])];
        assert_eq!(numbers(&["-rxtx-0", "-rxtx-1", "-event-2"], 2), first_two);
        assert_eq!(numbers(&["-rxtx-0", "-rxtx-1", "-2"], 2), first_two);
        // tg3: the first vector only sends.
        let shifted = ["-tx-0", "-rx-1", "-rx-2"];
        assert_eq!(numbers(&shifted, 2), [(0, vec![1]), (1, vec![2])]);
        // Four vectors of a NIC that has been told to use two.
        let many = ["-TxRx-0", "-TxRx-1", "-TxRx-2", "-TxRx-3"];
        assert_eq!(numbers(&many, 2), first_two);
        assert_eq!(numbers(&many, 0).len(), 4);
    }
}
