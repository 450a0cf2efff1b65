//! The network interfaces of a VM: the tap of each, and the vhost workers that serve it.
//!
//! The kernel does not say which worker a vhost device has: `/proc/PID/fdinfo` has no line of it, and `VHOST_GET_VRING_WORKER`
//! answers the device's own process alone. But QEMU makes its taps one after the other, before its virtual CPUs, and the kernel
//! makes a worker as QEMU takes the device (`vhost_dev_set_owner()`). So the workers that are older than the first virtual CPU
//! are those of the taps on the command line, in its order, if there are as many of both.

use super::netdevs::{Netdev, by_user_space, netdevs};
use super::vm::Vm;
use crate::address::{Address, parse_address};
use crate::settings::links::tap_of_descriptor;
use crate::settings::{Machine, ThreadId};

/// An interface of a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its hardware address, as the VM has it; none where it was given none.
    pub address: Option<Address>,
    /// Its tap in this network namespace.
    pub tap: Option<String>,
    /// Its macvtap here, in place of a tap. That has the interface's own address.
    pub macvtap: Option<String>,
    /// The threads that carry its packets; none without vhost.
    pub workers: Result<Vec<ThreadId>, WorkersUnknown>,
}

/// Why it cannot be told which worker serves which interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WorkersUnknown {
    /// Some came or went since, or it is another monitor than QEMU.
    #[error(
        "its command line has taps with {on_command_line} vhost devices, and {at_start} of its workers began before its \
         virtual CPUs"
    )]
    Count {
        /// Those that it asks for.
        on_command_line: usize,
        /// Workers that began with it.
        at_start: usize,
    },
    /// Their order does not show.
    #[error("its workers began as the kernel's thread numbers began anew")]
    Order,
}

/// Thread numbers of one tick of the kernel lie closer together, unless they began anew in between.
const CLOSE: u32 = 10_000;

/// The interfaces of a VM that its monitor's command line has. `taps` are those that it has open here.
pub fn interfaces(machine: &Machine, vm: &Vm, taps: &[String]) -> Vec<Interface> {
    let line = machine
        .tree
        .read_bytes(&format!("/proc/{}/cmdline", vm.pid));
    let found = netdevs(&line.unwrap_or_default()).unwrap_or_default();
    let mut workers = workers(vm, &found).map(Vec::into_iter);
    let interface = |netdev: &Netdev| Interface {
        address: netdev.address,
        tap: tap(machine, vm.pid, netdev, taps),
        macvtap: macvtap(machine, vm, netdev),
        workers: match &mut workers {
            Ok(rest) => Ok(rest.by_ref().take(netdev.vhosts).collect()),
            Err(why) => Err(*why),
        },
    };
    found.iter().map(interface).collect()
}

/// How many interfaces of a VM go by a program in user space (`vhost-user`), as its monitor's command line has them.
pub fn of_user_space(machine: &Machine, pid: u32) -> usize {
    let line = machine.tree.read_bytes(&format!("/proc/{pid}/cmdline"));
    by_user_space(&line.unwrap_or_default())
}

/// The workers of all taps, in the order of these.
fn workers(vm: &Vm, netdevs: &[Netdev]) -> Result<Vec<ThreadId>, WorkersUnknown> {
    let age = |thread: &ThreadId| (thread.start_time, thread.tid);
    let first_vcpu = vm.vcpus.values().min_by_key(|thread| age(thread));
    let is_older = |worker: &&ThreadId| first_vcpu.is_some_and(|vcpu| age(worker) < age(vcpu));
    let mut found: Vec<ThreadId> = vm.vhost_workers.iter().filter(is_older).cloned().collect();
    found.sort_by_key(age);
    let on_command_line = netdevs.iter().map(|it| it.vhosts).sum();
    if found.len() != on_command_line {
        return Err(WorkersUnknown::Count {
            on_command_line,
            at_start: found.len(),
        });
    }
    let all: Vec<&ThreadId> = found.iter().chain(first_vcpu).collect();
    let is_unclear = |pair: &[&ThreadId]| {
        let (one, next) = (pair[0], pair[1]);
        one.start_time == next.start_time && next.tid.abs_diff(one.tid) > CLOSE
    };
    if all.windows(2).any(is_unclear) {
        return Err(WorkersUnknown::Order);
    }
    Ok(found)
}

/// The tap of a backend: by its descriptor, its name, or its address, which libvirt makes of the card's. None where these
/// contradict each other: descriptors of what was unplugged are given anew.
fn tap(machine: &Machine, pid: u32, netdev: &Netdev, taps: &[String]) -> Option<String> {
    let handed = netdev.descriptors.first();
    let by_descriptor = handed.and_then(|descriptor| tap_of_descriptor(machine, pid, *descriptor));
    let told = by_descriptor.or_else(|| netdev.tap.clone());
    let is_twin = |tap: &&String| {
        let of_tap = address_of(machine, tap);
        // All but the first byte.
        netdev
            .address
            .is_some_and(|card| of_tap.is_some_and(|tap| tap[1..] == card[1..]))
    };
    let mut twins = taps.iter().filter(is_twin);
    let twin = twins.next().filter(|_| twins.next().is_none());
    match (told, twin) {
        (Some(told), Some(twin)) if told != *twin => None,
        (told, twin) => told
            .or_else(|| twin.cloned())
            .filter(|tap| taps.contains(tap)),
    }
}

fn macvtap(machine: &Machine, vm: &Vm, netdev: &Netdev) -> Option<String> {
    let address = netdev.address?;
    let mut all = vm.macvtaps.iter();
    all.find(|macvtap| address_of(machine, macvtap) == Some(address))
        .cloned()
}

fn address_of(machine: &Machine, device: &str) -> Option<Address> {
    let text = machine
        .tree
        .read(&format!("/sys/class/net/{device}/address"));
    parse_address(text.ok()?.trim())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn thread(start_time: u64, tid: u32) -> ThreadId {
        ThreadId {
            pid: 1,
            tid,
            start_time,
            comm: "vhost-1".into(),
        }
    }

    fn vm(workers: Vec<ThreadId>, vcpu: ThreadId) -> Vm {
        Vm {
            pid: 1,
            vcpus: [(0, vcpu)].into(),
            vcpu_count: 1,
            vhost_workers: workers,
            socket_servers: Vec::new(),
            vfio_irqs: [].into(),
            vfio_threads: Vec::new(),
            io_threads: Vec::new(),
            main_thread: None,
            macvtaps: Vec::new(),
            is_container: false,
            warnings: Vec::new(),
        }
    }

    fn netdev(vhosts: usize) -> Netdev {
        Netdev {
            vhosts,
            ..Netdev::default()
        }
    }

    #[test]
    fn a_worker_that_came_or_went_later_makes_all_unknown() {
        let early = [thread(5, 10), thread(5, 11)];
        let vcpu = thread(6, 20);
        let late = thread(900, 15);
        let both = [netdev(1), netdev(1)];
        let found = workers(&vm(early.to_vec(), vcpu.clone()), &both).unwrap();
        assert_eq!(found, early);
        // One that was plugged in later takes nothing from those that were there.
        let mut with_late = early.to_vec();
        with_late.push(late.clone());
        assert_eq!(workers(&vm(with_late, vcpu.clone()), &both).unwrap(), early);
        let swapped = vec![early[1].clone(), late];
        let why = workers(&vm(swapped, vcpu.clone()), &both).unwrap_err();
        let expected = WorkersUnknown::Count {
            on_command_line: 2,
            at_start: 1,
        };
        assert_eq!(why, expected);
        let anew = vec![thread(5, 10), thread(5, 4_194_000)];
        let why = workers(&vm(anew, vcpu), &both).unwrap_err();
        assert_eq!(why, WorkersUnknown::Order);
    }

    proptest! {
        /// Whatever the taps are, and wherever they stand in the list of threads: each has the workers that were made for it.
        #[test]
        fn each_tap_has_its_own_workers(
            queues in prop::collection::vec(0_usize..4, 0..5),
            gaps in prop::collection::vec((0_u64..2, 1_u32..50), 20),
            turn in 0_usize..20,
        ) {
            let (mut start_time, mut tid) = (100, 1_000);
            let mut next = gaps.into_iter().cycle().map(|(later, more)| {
                start_time += later;
                tid += more;
                thread(start_time, tid)
            });
            let made: Vec<Vec<ThreadId>> = queues
                .iter()
                .map(|&count| next.by_ref().take(count).collect())
                .collect();
            let vcpu = next.next().unwrap();
            let mut listed: Vec<ThreadId> = made.concat();
            if !listed.is_empty() {
                let middle = turn % listed.len();
                listed.rotate_left(middle);
            }
            let netdevs: Vec<Netdev> = queues.iter().map(|&count| netdev(count)).collect();
            let found = workers(&vm(listed, vcpu), &netdevs).unwrap();
            prop_assert_eq!(found, made.concat());
        }
    }
}
