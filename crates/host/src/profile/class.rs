//! What a network class sets.

use serde::{Deserialize, Serialize};
pub use steadyvm_config::{HIGHEST_PRIORITY, TapQdisc, ThreadPriority};

use crate::cpu_set::CpuSet;
use crate::method::Priorities;
use crate::settings::threads::Scheduling;

/// What a network class sets. `None`: left as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// Its name in the file.
    pub name: String,
    /// IRQ threads of its NICs and queues, and of the devices that its VMs have by passthrough (VFIO).
    pub irq: Option<ThreadPriority>,
    /// NAPI threads of its NICs and queues, where NAPI is threaded.
    pub napi: Option<ThreadPriority>,
    /// Whether its NICs poll in threads; none: where there are no IRQ threads to poll in.
    pub threaded_napi: Option<bool>,
    /// CPUs for its interrupts, NAPI threads and vhost workers.
    pub cpus: Option<CpuSet>,
    /// vhost workers of its VMs.
    pub vhost: Option<ThreadPriority>,
    /// Whether nobody wrote `vhost`: it is the built-in class's. Workers of a VM with a budget do not get it.
    #[serde(default)]
    pub vhost_is_built_in: bool,
    /// VCPUs of its VMs, but VCPU 0, which keeps the guest's housekeeping.
    pub vcpu: Option<ThreadPriority>,
    /// QEMU's IO threads of its VMs (`-object iothread`): disks, and cards without vhost.
    #[serde(default)]
    pub io: Option<ThreadPriority>,
    /// The main threads of its VMs' monitors. QEMU's does all devices that have no thread of their own, and holds the lock
    /// that a VCPU waits for to leave KVM.
    #[serde(default)]
    pub main: Option<ThreadPriority>,
    /// Root queueing discipline of its VMs' taps.
    pub tap_qdisc: Option<TapQdisc>,
    /// Packets that its VMs' taps take through the bridge at once, 1 to [`steadyvm_config::LARGEST_BATCH`]; none:
    /// as they are, but 1 for VMs below `levels_from`.
    pub tap_batch: Option<u32>,
}

impl Class {
    /// A class that every file has without writing it: "rt" is the path of `preempt-rt`
    /// ([`Priorities`]), "best-effort" is polled in threads below it.
    pub fn built_in(name: &str) -> Option<Self> {
        let fifo = |priority| Some(ThreadPriority::Fifo(priority));
        let ranks = Priorities::default();
        let class = match name {
            "rt" => Self {
                irq: fifo(ranks.irq),
                napi: fifo(ranks.napi),
                vhost: fifo(ranks.vhost),
                vhost_is_built_in: true,
                vcpu: fifo(ranks.vcpu),
                tap_qdisc: Some(TapQdisc::Noqueue),
                ..Self::default()
            },
            "best-effort" => Self {
                napi: Some(ThreadPriority::Normal),
                threaded_napi: Some(true),
                ..Self::default()
            },
            _ => return None,
        };
        Some(Self {
            name: name.to_owned(),
            ..class
        })
    }

    /// Takes what is not set yet from `other`.
    pub(crate) fn fill_from(&mut self, other: &Self) {
        self.irq = self.irq.or(other.irq);
        self.napi = self.napi.or(other.napi);
        self.threaded_napi = self.threaded_napi.or(other.threaded_napi);
        self.cpus = self.cpus.take().or_else(|| other.cpus.clone());
        if self.vhost.is_none() {
            self.vhost = other.vhost;
            self.vhost_is_built_in = other.vhost_is_built_in;
        }
        self.vcpu = self.vcpu.or(other.vcpu);
        self.io = self.io.or(other.io);
        self.main = self.main.or(other.main);
        self.tap_qdisc = self.tap_qdisc.or(other.tap_qdisc);
        self.tap_batch = self.tap_batch.or(other.tap_batch);
    }

    /// Whether a stage stands below the one it feeds, in which case it could never be fed while
    /// that one is busy; or a thread of the monitor below the VCPUs that wait for it.
    pub(super) fn inversion(&self) -> Option<String> {
        let stages = [
            ("irq", self.irq),
            ("napi", self.napi),
            ("vhost", self.vhost),
            ("vcpu", self.vcpu),
        ];
        let set: Vec<(&str, ThreadPriority)> = stages
            .into_iter()
            .filter_map(|(name, priority)| Some((name, priority?)))
            .collect();
        let of_path = set.windows(2).find(|pair| pair[0].1 < pair[1].1);
        let of_monitor = || {
            let vcpu = self.vcpu?;
            let threads = [("io", self.io), ("main", self.main)];
            let mut set = threads
                .into_iter()
                .filter_map(|(name, it)| Some((name, it?)));
            let below = set.find(|(_, priority)| *priority < vcpu)?;
            Some([below, ("vcpu", vcpu)])
        };
        let [(first, low), (second, high)] = match of_path {
            Some(pair) => [pair[0], pair[1]],
            None => of_monitor()?,
        };
        Some(format!(
            "class \"{}\": {first} = {low} stands below {second} = {high}, which waits for it",
            self.name
        ))
    }

    /// The lowest FIFO priority of its receive path, if it has one.
    pub(super) fn lowest_fifo(&self) -> Option<u32> {
        [
            self.irq, self.napi, self.vhost, self.vcpu, self.io, self.main,
        ]
        .into_iter()
        .filter_map(|priority| match priority? {
            ThreadPriority::Fifo(priority) => Some(priority),
            ThreadPriority::Normal => None,
        })
        .min()
    }
}

/// A priority, as the kernel is asked for it.
pub(crate) fn scheduling(priority: ThreadPriority, flags: u64) -> Scheduling {
    match priority {
        ThreadPriority::Normal => Scheduling::normal(),
        ThreadPriority::Fifo(priority) => Scheduling::fifo(priority, flags),
    }
}
