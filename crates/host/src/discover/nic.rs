//! What serves a NIC: its interrupts, their threads, and the threads that poll it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::device;
use crate::error::HostError;
use crate::parse;
use crate::settings::device::is_up;
use crate::settings::links::Napi;
use crate::settings::{Machine, Thread, ThreadId};

/// What serves a NIC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// The interface.
    pub name: String,
    /// Its interrupts, with their actions.
    pub irqs: BTreeMap<u32, String>,
    /// The threads that handle them; none unless interrupts are threaded.
    pub irq_threads: Vec<ThreadId>,
    /// Its NAPI kthreads; none unless threaded NAPI is on.
    pub napi_threads: Vec<ThreadId>,
    /// The thread that polls after an interrupt, where the kernel says so (netlink `napi-get`, Linux 6.8).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub napi_of_irq: BTreeMap<u32, ThreadId>,
    /// How many receive queues it has (`queues/rx-*`); 0 if that is not known.
    #[serde(default)]
    pub receive_queues: u32,
}

/// Finds what serves a NIC. `threads` are all threads of the host.
///
/// Its interrupts are those of its device. Names count only where sysfs knows no interrupts of the
/// device: a NIC that was renamed while up has interrupts of its old name, which may be another's.
///
/// # Errors
/// There is no such interface, or `/proc/interrupts` cannot be read.
pub fn nic(machine: &Machine, threads: &[Thread], name: &str) -> Result<Nic, HostError> {
    let class = format!("/sys/class/net/{name}");
    if name.is_empty()
        || name.contains('/')
        || name.starts_with('.')
        || !machine.tree.exists(&class)
    {
        let known = interfaces(machine).join(", ");
        return Err(HostError::BadInput {
            what: format!("there is no network interface `{name}` ({class})"),
            fix: format!("name one of: {known}"),
        });
    }
    let interrupts = parse::interrupts(&machine.must_read("/proc/interrupts")?);
    let numbers = numbers_of(machine, name);
    let is_own: Box<dyn Fn(&parse::Interrupt) -> bool> = if numbers.is_empty() {
        let owners = Owners::of(machine, name);
        Box::new(move |interrupt| owners.have(interrupt))
    } else {
        Box::new(move |interrupt| numbers.contains(&interrupt.irq))
    };
    let irqs: BTreeMap<u32, String> = interrupts
        .into_iter()
        .filter(|interrupt| !interrupt.actions.is_empty() && is_own(interrupt))
        .map(|interrupt| (interrupt.irq, interrupt.actions.join(", ")))
        .collect();
    let irq_threads = kernel_threads(threads, |comm| {
        parse::irq_of_thread(comm).is_some_and(|irq| irqs.contains_key(&irq))
    });
    let napis = machine.links.napis(name).unwrap_or_default();
    let (napi_threads, napi_of_irq) = napi_threads(threads, &napis, name);
    let queues = machine.tree.list(&format!("{class}/queues"));
    let receiving = queues.unwrap_or_default();
    let receiving = receiving.iter().filter(|queue| queue.starts_with("rx-"));
    Ok(Nic {
        name: name.to_owned(),
        irqs,
        irq_threads,
        napi_threads,
        napi_of_irq,
        receive_queues: u32::try_from(receiving.count()).unwrap_or(u32::MAX),
    })
}

/// The threads that poll a NIC, and by interrupt: by the kernel's word where it has one, else those that have its name.
fn napi_threads(
    threads: &[Thread],
    napis: &[Napi],
    name: &str,
) -> (Vec<ThreadId>, BTreeMap<u32, ThreadId>) {
    let thread_of = |napi: &Napi| {
        let tid = napi.thread?;
        let found = threads.iter().find(|thread| thread.id.tid == tid);
        found
            .filter(|thread| thread.is_kernel())
            .map(|thread| thread.id.clone())
    };
    let told: Vec<ThreadId> = napis.iter().filter_map(thread_of).collect();
    if told.is_empty() {
        let named = kernel_threads(threads, |comm| is_napi_thread_of(comm, name));
        return (named, BTreeMap::new());
    }
    let by_irq = napis
        .iter()
        .filter_map(|napi| Some((napi.irq?, thread_of(napi)?)));
    (told, by_irq.collect())
}

/// PCI classes of devices that carry packets, by the first digits of sysfs' `class`: network controllers, InfiniBand,
/// wireless. A card in another network namespace is known by nothing else.
const CARDS: [&str; 3] = ["0x02", "0x0c06", "0x0d"];

/// The interrupts of all that carries packets and of all that VMs have by passthrough (VFIO).
///
/// # Errors
/// `/proc/interrupts` cannot be read.
pub(crate) fn interrupts_of_cards_and_vms(
    machine: &Machine,
    threads: &[Thread],
) -> Result<BTreeSet<u32>, HostError> {
    let interrupts = parse::interrupts(&machine.must_read("/proc/interrupts")?);
    let is_vms = |it: &parse::Interrupt| it.actions.iter().any(|name| name.starts_with("vfio"));
    let mut found: BTreeSet<u32> = interrupts
        .iter()
        .filter(|interrupt| is_vms(interrupt))
        .map(|interrupt| interrupt.irq)
        .collect();
    for name in interfaces(machine) {
        // One that went away meanwhile has none.
        let irqs = nic(machine, threads, &name).map(|nic| nic.irqs);
        found.extend(irqs.unwrap_or_default().into_keys());
        // A USB card's packets come with its controller's interrupts.
        let path = device_of(machine, &name).unwrap_or_default();
        if let Some((controller, _)) = path.split_once("/usb") {
            found.extend(device::irqs(machine, controller));
        }
    }
    let devices = "/sys/bus/pci/devices";
    for device in machine.tree.list(devices).unwrap_or_default() {
        let path = format!("{devices}/{device}");
        let class = machine.tree.read(&format!("{path}/class"));
        let class = class.unwrap_or_default();
        if CARDS.iter().any(|kind| class.starts_with(kind)) {
            found.extend(device::irqs(machine, &path));
        }
    }
    Ok(found)
}

/// Why a NIC has no interrupt that can be given a rank, and what to do.
pub fn without_interrupts(machine: &Machine, name: &str) -> (String, String) {
    let class = format!("/sys/class/net/{name}");
    let what = format!("{name} has no interrupt of its own in /proc/interrupts");
    if !machine.tree.exists(&format!("{class}/device")) {
        let fix = "name the physical interface, not the bridge, bond or tap".to_owned();
        return (format!("{what}: it is no device"), fix);
    }
    let bus = machine.tree.real_path(&format!("{class}/device/subsystem"));
    let bus = bus
        .ok()
        .and_then(|path| Some(path.rsplit_once('/')?.1.to_owned()));
    let why = match bus.as_deref() {
        Some("xen") => {
            "a Xen network device's interrupts are event channels, which sysfs does not list"
        }
        Some("usb") => "a USB network device shares the interrupts of its host controller",
        Some("vmbus") => "a Hyper-V network device shares the interrupts of the VM bus",
        _ if !is_up(machine, name) => {
            let fix = format!("ip link set {name} up: drivers ask for their interrupts then");
            return (format!("{what}: it is down"), fix);
        }
        _ => "it is up, and neither its device's nor any by its name are there",
    };
    let fix = "use a NIC on PCI; or leave this one's interrupts, and rank its NAPI threads \
               (threaded_napi = true)";
    (format!("{what}: {why}"), fix.to_owned())
}

/// Whether an interface is of the kernel's own making and may have NAPIs, as a veth or a tunnel has: its packets come by no interrupt,
/// and threads poll it all the same.
pub fn polls_without_interrupts(machine: &Machine, name: &str) -> bool {
    let has = |what: &str| {
        let path = format!("/sys/class/net/{name}/{what}");
        machine.tree.exists(&path)
    };
    let others = ["device", "bridge", "tun_flags", "bonding"];
    let kind = machine
        .tree
        .read(&format!("/sys/class/net/{name}/uevent"))
        .unwrap_or_default();
    // They have their card's polls.
    let is_above_a_card = kind
        .lines()
        .any(|line| ["DEVTYPE=vlan", "DEVTYPE=macvlan", "DEVTYPE=macvtap"].contains(&line));
    name != "lo" && has("threaded") && !is_above_a_card && !others.into_iter().any(has)
}

fn interfaces(machine: &Machine) -> Vec<String> {
    machine.tree.list("/sys/class/net").unwrap_or_default()
}

/// The real path of a NIC's device.
fn device_of(machine: &Machine, name: &str) -> Option<String> {
    let device = format!("/sys/class/net/{name}/device");
    machine.tree.real_path(&device).ok()
}

/// The interrupts that sysfs knows of a NIC's device.
fn numbers_of(machine: &Machine, name: &str) -> BTreeSet<u32> {
    let Some(path) = device_of(machine, name) else {
        return BTreeSet::new();
    };
    let mut numbers: BTreeSet<u32> = device::irqs(machine, &path).into_iter().collect();
    // A virtio NIC's device is virtioN; the interrupts belong to the PCI device above it.
    if let Some((parent, _)) = virtio(&path)
        && parent.starts_with("/sys/devices/pci")
    {
        numbers.extend(device::irqs(machine, parent));
    }
    numbers
}

/// The parent and the name of a virtio device.
fn virtio(path: &str) -> Option<(&str, &str)> {
    let (parent, last) = path.rsplit_once('/')?;
    last.starts_with("virtio").then_some((parent, last))
}

/// Whose interrupts names can be, where nothing better is known of a NIC.
struct Owners {
    /// The NIC, and its virtio device.
    own: Vec<String>,
    /// Other interfaces.
    others: Vec<String>,
    /// Interrupts that are other NICs' for sure.
    taken: BTreeSet<u32>,
}

impl Owners {
    fn of(machine: &Machine, name: &str) -> Self {
        let mut own = vec![name.to_owned()];
        let path = device_of(machine, name);
        own.extend(path.and_then(|path| Some(virtio(&path)?.1.to_owned())));
        let others = interfaces(machine);
        let others: Vec<String> = others.into_iter().filter(|other| other != name).collect();
        let taken = others.iter().flat_map(|other| numbers_of(machine, other));
        let taken = taken.collect();
        Self { own, others, taken }
    }

    fn have(&self, interrupt: &parse::Interrupt) -> bool {
        let names = |action: &String| {
            let length = |names: &[String]| {
                let whose = names.iter().filter(|name| is_of(action, name));
                whose.map(String::len).max()
            };
            // Of `rt` and `rt-1`, the longer one's name says more.
            length(&self.own) > length(&self.others)
        };
        !self.taken.contains(&interrupt.irq) && interrupt.actions.iter().any(names)
    }
}

/// Whether an action's name is the owner's, alone or followed by a queue as drivers write it
/// (`eth0-TxRx-1`, `eth0:rx1`, `virtio2-input.0`).
fn is_of(action: &str, owner: &str) -> bool {
    let separators = ['-', ':', '.', '@'];
    let Some(rest) = action.strip_prefix(owner) else {
        return false;
    };
    let Some(rest) = rest.strip_prefix(separators) else {
        return rest.is_empty();
    };
    rest.split(separators).all(|part| {
        let kind = part.trim_end_matches(|digit: char| digit.is_ascii_digit());
        KINDS.contains(&kind.to_ascii_lowercase().as_str())
    })
}

/// What stands before the number in an action's name.
const KINDS: [&str; 15] = [
    "", "tx", "rx", "txrx", "rxtx", "input", "output", "config", "control", "event", "fp", "q",
    "queue", "misc", "async",
];

/// Whether a kernel thread polls a NIC: `napi/eth0-8193`. Names of kernel threads are whole since
/// 5.17, whatever their length.
fn is_napi_thread_of(comm: &str, nic: &str) -> bool {
    comm.strip_prefix("napi/")
        .and_then(|rest| rest.strip_prefix(nic)?.strip_prefix('-'))
        .is_some_and(|number| number.parse::<u32>().is_ok())
}

fn kernel_threads(threads: &[Thread], matches: impl Fn(&str) -> bool) -> Vec<ThreadId> {
    threads
        .iter()
        .filter(|thread| thread.is_kernel() && matches(&thread.id.comm))
        .map(|thread| thread.id.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_word_on_napis_counts_before_names() {
        let thread = |tid, comm: &str, flags| Thread {
            id: ThreadId {
                pid: tid,
                tid,
                start_time: 0,
                comm: comm.into(),
            },
            parent: 2,
            flags,
        };
        let threads = [
            thread(5, "napi/old-8193", parse::PF_KTHREAD),
            thread(6, "napi/eth0-8194", parse::PF_KTHREAD),
            thread(7, "napi/eth0-8195", 0),
        ];
        let napi = |id, irq, thread| Napi {
            id,
            irq,
            thread,
            deferral: None,
            threaded: None,
        };
        let tids = |found: &[ThreadId]| found.iter().map(|it| it.tid).collect::<Vec<_>>();
        let (named, by_irq) = napi_threads(&threads, &[], "eth0");
        assert_eq!((tids(&named), by_irq.len()), (vec![6], 0));
        // The card had another name when its thread was made; a process is no thread of the kernel.
        let told = [
            napi(8193, Some(30), Some(5)),
            napi(8195, Some(31), Some(7)),
            napi(8196, None, None),
        ];
        let (told, by_irq) = napi_threads(&threads, &told, "eth0");
        assert_eq!(tids(&told), [5]);
        assert_eq!(by_irq[&30].tid, 5);
        assert_eq!(by_irq.len(), 1);
    }

    #[test]
    fn names_belong_to_their_owner_only() {
        for (action, owner, expected) in [
            ("eth0", "eth0", true),
            ("eth0-TxRx-1", "eth0", true),
            ("eth0-rx-0", "eth0", true),
            ("eth0-3", "eth0", true),
            ("virtio2-input.0", "virtio2", true),
            ("eth0-q0-tx", "eth0", true),
            ("eth10", "eth1", false),
            ("lan-mgmt", "lan", false),
            ("lan-mgmt-TxRx-0", "lan", false),
            ("virtio10-input.0", "virtio1", false),
        ] {
            assert_eq!(is_of(action, owner), expected, "{action} {owner}");
        }
        for (comm, nic, expected) in [
            ("napi/eth0-8193", "eth0", true),
            ("napi/rt-1-8193", "rt-1", true),
            ("napi/rt-1-8193", "rt", false),
            ("napi/enp129s0f0np1-8195", "enp129s0f0np0", false),
            ("napi/enp129s0f0", "enp129s0f0np0", false),
        ] {
            assert_eq!(is_napi_thread_of(comm, nic), expected, "{comm} {nic}");
        }
    }
}
