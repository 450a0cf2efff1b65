//! Which interrupt and which NAPI thread serve which receive queue of a NIC.

use std::collections::BTreeMap;

use crate::discover::Nic;
use crate::machine::ThreadId;
use crate::parse;

/// What serves one receive queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Queue {
    pub irqs: Vec<u32>,
    pub irq_threads: Vec<ThreadId>,
    pub napi_thread: Option<ThreadId>,
}

/// The receive queues of a NIC by number. NAPI threads are matched to queues only if there are
/// as many of one as of the other.
pub(super) fn of(nic: &Nic) -> BTreeMap<u32, Queue> {
    let mut queues: BTreeMap<u32, Queue> = BTreeMap::new();
    for (irq, actions) in &nic.irqs {
        if let Some(number) = receive_queue(&nic.name, actions) {
            let queue = queues.entry(number).or_default();
            queue.irqs.push(*irq);
            let serves = |thread: &&ThreadId| parse::irq_of_thread(&thread.comm) == Some(*irq);
            queue
                .irq_threads
                .extend(nic.irq_threads.iter().filter(serves).cloned());
        }
    }
    // Drivers make their NAPIs in the order of their queues, and numbers are given in order.
    let mut threads: Vec<(u32, &ThreadId)> = nic
        .napi_threads
        .iter()
        .filter_map(|thread| Some((napi_number(&thread.comm)?, thread)))
        .collect();
    threads.sort();
    if threads.len() == queues.len() {
        for (queue, (_, thread)) in queues.values_mut().zip(threads) {
            queue.napi_thread = Some(thread.clone());
        }
    }
    queues
}

/// The receive queue of an interrupt's actions: `eth0-TxRx-3`, `eth0-rx-3`, `virtio2-input.3`,
/// `mlx5_comp3@pci:…`, `eth0-3`. None for those that only send (`-tx-`, `-output.`) and those
/// that are the whole NIC's (`eth0`, `virtio2-config`).
fn receive_queue(nic: &str, actions: &str) -> Option<u32> {
    let action = actions.split(", ").next()?.split('@').next()?;
    let rest = action.strip_prefix(nic).unwrap_or(action);
    let digits = rest.len() - rest.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (kind, number) = rest.split_at(rest.len() - digits);
    let kind = kind.to_ascii_lowercase();
    let sends_only = kind.contains("output") || (kind.contains("tx") && !kind.contains("rx"));
    if sends_only || kind.is_empty() || kind.ends_with("config") {
        return None;
    }
    number.parse().ok()
}

fn napi_number(comm: &str) -> Option<u32> {
    comm.rsplit_once('-')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_of_drivers() {
        for (actions, queue) in [
            ("eth0-TxRx-3", Some(3)),
            ("eth0-rx-12", Some(12)),
            ("eth0-tx-1", None),
            ("eth0", None),
            ("eth0-2", Some(2)),
            ("virtio2-input.1", Some(1)),
            ("virtio2-output.1", None),
            ("virtio2-config", None),
            ("mlx5_comp7@pci:0000:01:00.0", Some(7)),
            ("i40e-eth0-TxRx-5", Some(5)),
        ] {
            assert_eq!(receive_queue("eth0", actions), queue, "{actions}");
        }
    }
}
