//! One change of host state: what it is, how to make it, how to take it back.

mod subject;

use std::collections::BTreeSet;
use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};
use steadyvm_demux::Specification;

use crate::cpu_set::CpuSet;
use crate::demux::Presence;
use crate::error::HostError;
use crate::fair_server::{self, Reservation, Way};
use crate::links::FlowRule;
use crate::machine::{Machine, ThreadId};
use crate::net;
use crate::restore;
use crate::threads::Scheduling;
use subject::{limit, on_off};

/// How a file's value is compared with what was written: the kernel prints numbers its own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// As text, without white space at the ends.
    Text,
    /// As a CPU mask.
    CpuMask,
}

/// A change of host state, with what is needed to take it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Change {
    /// A thread's scheduling policy and priority.
    ThreadPolicy {
        /// The thread.
        thread: ThreadId,
        /// Before.
        old: Scheduling,
        /// After.
        new: Scheduling,
    },
    /// The CPUs a thread may run on.
    ThreadAffinity {
        /// The thread.
        thread: ThreadId,
        /// Before.
        old: CpuSet,
        /// After.
        new: CpuSet,
    },
    /// The CPUs an interrupt may be delivered to. Its IRQ thread follows it by itself.
    IrqAffinity {
        /// The interrupt.
        irq: u32,
        /// Its actions, for people.
        name: String,
        /// Before.
        old: CpuSet,
        /// Where the kernel really delivered it before, if that is known.
        old_effective: Option<CpuSet>,
        /// After.
        new: CpuSet,
    },
    /// A file of procfs or sysfs.
    File {
        /// The path.
        path: String,
        /// How to compare.
        form: Form,
        /// Before.
        old: String,
        /// After.
        new: String,
    },
    /// How a CPU's fair server gives normal threads their share: in longer or shorter pieces.
    FairServer {
        /// The CPU.
        cpu: usize,
        /// Before.
        old: Reservation,
        /// After: the same share in shorter pieces.
        new: Reservation,
    },
    /// The root queueing discipline of a network device, in the place of the kernel's default.
    RootQdisc {
        /// The device.
        device: String,
        /// The kernel's default, which comes back when the new one is deleted.
        old: String,
        /// After.
        new: String,
    },
    /// Whether a NIC steers flows by rules.
    FlowSteering {
        /// The NIC.
        device: String,
        /// Before.
        old: bool,
        /// After.
        new: bool,
    },
    /// A new flow steering rule, at a place of the NIC's table that was free.
    FlowRule {
        /// The NIC.
        device: String,
        /// The place.
        place: u32,
        /// The rule.
        rule: FlowRule,
    },
    /// How many packets a network device gathers before it handles them.
    RxFrames {
        /// The device.
        device: String,
        /// Before.
        old_frames: u32,
        /// After.
        new_frames: u32,
    },
    /// The send buffer of a VM's tap: vhost-net hands over many packets at once if it has no limit.
    TapSendBuffer {
        /// The tap.
        tap: String,
        /// The main thread of the VM's monitor, which has the tap open.
        monitor: ThreadId,
        /// Before; [`UNLIMITED_BYTES`](crate::UNLIMITED_BYTES) without a limit.
        old_bytes: u32,
        /// After.
        new_bytes: u32,
    },
    /// Early demultiplexing, which was not there before.
    EarlyDemux {
        /// What is installed.
        specification: Specification,
    },
}

/// A planned change: the change, why, and whether the method needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What is changed.
    #[serde(flatten)]
    pub change: Change,
    /// Why.
    pub why: String,
    /// Whether the method fails without it. Others are skipped where the kernel refuses.
    pub required: bool,
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}: {} -> {}",
            self.subject(),
            self.old_text(),
            self.new_text()
        )
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, {}", self.change, self.why)
    }
}

/// What became of taking a change back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Restored {
    /// The old value is in force again.
    Restored,
    /// The old value was in force already: the change was never made, or taken back before.
    AlreadyOld,
    /// The thread or file is gone.
    Vanished,
    /// Someone else has changed it since; it is left as it is.
    ChangedByOthers {
        /// What is in force.
        now: String,
    },
    /// The kernel refused.
    Failed {
        /// Why.
        error: String,
    },
}

impl Change {
    /// Makes the change, and reads it back.
    pub fn make(&self, machine: &Machine) -> Result<(), HostError> {
        let wrap = |source: io::Error| self.refused(source);
        match self {
            Self::ThreadPolicy { thread, new, .. } => {
                Self::must_run(machine, thread)?;
                machine
                    .threads
                    .set_scheduling(thread.tid, new)
                    .map_err(wrap)?;
            }
            Self::ThreadAffinity { thread, new, .. } => {
                Self::must_run(machine, thread)?;
                machine
                    .threads
                    .set_affinity(thread.tid, new)
                    .map_err(wrap)?;
            }
            Self::IrqAffinity { irq, new, .. } => {
                machine
                    .tree
                    .write(&irq_file(*irq), &new.to_string())
                    .map_err(wrap)?;
            }
            Self::File { path, new, .. } => machine.tree.write(path, new).map_err(wrap)?,
            Self::FairServer { cpu, old, new } => {
                let way = Way::new(*cpu, *old, *new);
                way.go(machine).map_err(|source| {
                    // Halfway it would take up to twice its share.
                    let _ = way.go_back(machine);
                    self.refused(source)
                })?;
            }
            Self::RootQdisc { device, new, .. } => machine
                .links
                .replace_root_qdisc(device, new)
                .map_err(wrap)?,
            Self::FlowSteering { device, new, .. } => machine
                .links
                .set_flow_steering(device, *new)
                .map_err(wrap)?,
            Self::FlowRule {
                device,
                place,
                rule,
            } => machine
                .links
                .insert_flow_rule(device, *place, rule)
                .map_err(wrap)?,
            Self::RxFrames {
                device, new_frames, ..
            } => machine
                .links
                .set_rx_frames(device, *new_frames)
                .map_err(wrap)?,
            Self::TapSendBuffer {
                tap,
                monitor,
                new_bytes,
                ..
            } => {
                Self::must_run(machine, monitor)?;
                net::set_send_buffer(machine, monitor.pid, tap, *new_bytes).map_err(wrap)?;
            }
            Self::EarlyDemux { specification } => {
                install(machine, specification).map_err(wrap)?;
            }
        }
        let now = self.read(machine)?;
        if now.is_new {
            return Ok(());
        }
        // Something between old and new is in force, which undo would take for another's change.
        if !now.is_old {
            let _ = self.write_old(machine);
        }
        Err(self.not_kept(now.text))
    }

    /// Takes the change back. The second half for interrupts is [`Change::settle`].
    pub fn restore(&self, machine: &Machine) -> Restored {
        let now = match self.read(machine) {
            Ok(now) => now,
            Err(HostError::Vanished { .. }) => return Restored::Vanished,
            Err(HostError::Io { cause, .. }) if is_gone(&cause) => return Restored::Vanished,
            Err(error) => {
                return Restored::Failed {
                    error: error.to_string(),
                };
            }
        };
        if now.is_old && !now.is_halfway {
            return Restored::AlreadyOld;
        }
        if !now.is_new && !now.is_halfway {
            return Restored::ChangedByOthers { now: now.text };
        }
        match self.write_old(machine) {
            Ok(()) => Restored::Restored,
            Err(source) if is_gone(&source) => Restored::Vanished,
            Err(source) => Restored::Failed {
                error: HostError::io("restore", self.subject(), source).to_string(),
            },
        }
    }

    /// Whether the old value is in force, read again after restoring.
    pub fn verify_old(&self, machine: &Machine) -> Restored {
        match self.read(machine) {
            Ok(now) if now.is_old => Restored::Restored,
            Ok(now) => Restored::Failed {
                error: self.not_kept(now.text).to_string(),
            },
            Err(HostError::Vanished { .. }) => Restored::Vanished,
            Err(error) => Restored::Failed {
                error: error.to_string(),
            },
        }
    }

    fn write_old(&self, machine: &Machine) -> io::Result<()> {
        match self {
            Self::ThreadPolicy { thread, old, .. } => restore::scheduling(machine, thread.tid, old),
            Self::ThreadAffinity { thread, old, .. } => restore::affinity(machine, thread.tid, old),
            Self::IrqAffinity {
                irq,
                old,
                old_effective,
                ..
            } => {
                let first = old_effective.as_ref().unwrap_or(old);
                machine.tree.write(&irq_file(*irq), &first.to_string())
            }
            Self::File { path, old, .. } => machine.tree.write(path, old),
            Self::FairServer { cpu, old, new } => Way::new(*cpu, *old, *new).go_back(machine),
            Self::RootQdisc { device, .. } => machine.links.delete_root_qdisc(device),
            Self::FlowSteering { device, old, .. } => machine.links.set_flow_steering(device, *old),
            Self::FlowRule { device, place, .. } => machine.links.delete_flow_rule(device, *place),
            Self::RxFrames {
                device, old_frames, ..
            } => machine.links.set_rx_frames(device, *old_frames),
            Self::TapSendBuffer {
                tap,
                monitor,
                old_bytes,
                ..
            } => net::set_send_buffer(machine, monitor.pid, tap, *old_bytes),
            Self::EarlyDemux { .. } => machine.demux.remove(),
        }
    }

    /// Whether the interrupt is delivered where it was before, so that [`Change::settle`] can
    /// widen its mask again. True for everything else.
    pub fn is_settled(&self, machine: &Machine) -> bool {
        let Self::IrqAffinity {
            irq,
            old_effective: Some(old),
            ..
        } = self
        else {
            return true;
        };
        effective_of(machine, *irq).is_none_or(|now| now == *old)
    }

    /// The second half of restoring an interrupt: [`Change::restore`] asked for the one CPU that
    /// served it, because the kernel keeps the current CPU of an interrupt as long as the mask
    /// allows it; this gives the whole mask back.
    pub fn settle(&self, machine: &Machine) -> Restored {
        let Self::IrqAffinity { irq, old, .. } = self else {
            return self.verify_old(machine);
        };
        if let Err(source) = machine.tree.write(&irq_file(*irq), &old.to_string()) {
            if is_gone(&source) {
                return Restored::Vanished;
            }
            let error = HostError::io("restore", self.subject(), source).to_string();
            return Restored::Failed { error };
        }
        self.verify_old(machine)
    }

    /// Reads what is in force.
    pub fn read(&self, machine: &Machine) -> Result<Now, HostError> {
        let wrap = |source: io::Error| HostError::io("read", self.subject(), source);
        let now = match self {
            Self::ThreadPolicy { thread, old, new } => {
                Self::must_run(machine, thread)?;
                let now = machine.threads.scheduling(thread.tid).map_err(wrap)?;
                Now::of(now.same_as(old), now.same_as(new), now.to_string())
            }
            Self::ThreadAffinity { thread, old, new } => {
                Self::must_run(machine, thread)?;
                let now = machine.threads.affinity(thread.tid).map_err(wrap)?;
                Now::of(now == *old, now == *new, now.to_string())
            }
            Self::IrqAffinity {
                irq,
                old,
                old_effective,
                new,
                ..
            } => {
                let path = irq_file(*irq);
                let text = machine.tree.read(&path).map_err(wrap)?;
                let now: CpuSet = text.parse().map_err(|error| HostError::Malformed {
                    path,
                    problem: format!("{error}"),
                })?;
                let mut read = Now::of(now == *old, now == *new, now.to_string());
                // An undo that was interrupted between its two halves.
                read.is_halfway = old_effective.as_ref() == Some(&now) && now != *old;
                read
            }
            Self::File {
                path,
                form,
                old,
                new,
            } => {
                let text = machine.tree.read(path).map_err(wrap)?;
                let text = text.trim().to_owned();
                Now::of(form.same(&text, old), form.same(&text, new), text)
            }
            Self::FairServer { cpu, old, new } => {
                let now = fair_server::read(machine, *cpu).map_err(wrap)?;
                let mut read = Now::of(now == *old, now == *new, now.to_string());
                let is_end = read.is_old || read.is_new;
                read.is_halfway = !is_end && Way::new(*cpu, *old, *new).passes(now);
                read
            }
            Self::RootQdisc { device, old, new } => {
                let now = machine.links.root_qdisc(device).map_err(wrap)?;
                let (is_old, is_new) = (now.kind == *old, now.kind == *new);
                Now::of(
                    is_old && now.is_default,
                    is_new && !now.is_default,
                    now.kind,
                )
            }
            Self::FlowSteering { device, old, new } => {
                let now = machine.links.flow_steering(device).map_err(wrap)?;
                Now::of(now == *old, now == *new, on_off(now).to_owned())
            }
            Self::FlowRule {
                device,
                place,
                rule,
            } => {
                let table = machine.links.flow_rules(device).map_err(wrap)?;
                match table.rules.get(place) {
                    None => Now::of(true, false, "none".to_owned()),
                    Some(Some(now)) => Now::of(false, now == rule, now.to_string()),
                    Some(None) => Now::of(false, false, "a rule of someone else".to_owned()),
                }
            }
            Self::RxFrames {
                device,
                old_frames,
                new_frames,
            } => {
                let now = machine.links.rx_frames(device).map_err(wrap)?;
                Now::of(now == *old_frames, now == *new_frames, now.to_string())
            }
            Self::TapSendBuffer {
                tap,
                monitor,
                old_bytes,
                new_bytes,
            } => {
                Self::must_run(machine, monitor)?;
                let now = net::send_buffers(machine, monitor.pid, tap).map_err(wrap)?;
                Now::of_queues(&now, *old_bytes, *new_bytes)
            }
            Self::EarlyDemux { specification } => {
                self.now_of_demux(machine.demux.presence(specification).map_err(wrap)?)
            }
        };
        Ok(now)
    }

    fn now_of_demux(&self, presence: Presence) -> Now {
        let text = match presence {
            Presence::Absent => self.old_text(),
            Presence::Whole => self.new_text(),
            Presence::Other => "partly installed".to_owned(),
        };
        let (is_old, is_new) = (presence == Presence::Absent, presence == Presence::Whole);
        let mut now = Now::of(is_old, is_new, text);
        // Whatever is in its directory is steadyvm's.
        now.is_halfway = presence == Presence::Other;
        now
    }

    fn must_run(machine: &Machine, thread: &ThreadId) -> Result<(), HostError> {
        if machine.still_runs(thread) {
            Ok(())
        } else {
            Err(HostError::Vanished {
                what: thread.to_string(),
            })
        }
    }

    /// An error of the kernel, with what is known about its cause.
    fn refused(&self, cause: io::Error) -> HostError {
        let hint = match (self, cause.raw_os_error()) {
            (Self::IrqAffinity { .. }, Some(libc::EPERM | libc::EIO)) => {
                "; the kernel places this interrupt itself (managed, or bound to a CPU)"
            }
            (Self::ThreadAffinity { .. }, Some(libc::EINVAL)) => {
                "; the cpuset of its cgroup does not allow this CPU: see /proc/PID/cpuset"
            }
            (Self::ThreadAffinity { .. }, Some(libc::EBUSY)) => {
                "; a SCHED_DEADLINE thread keeps the CPUs it was admitted on"
            }
            (Self::FairServer { .. }, Some(libc::EBUSY)) => {
                "; SCHED_DEADLINE threads have taken the bandwidth that the way there needs"
            }
            (Self::FlowRule { .. }, Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
                "; the NIC's driver cannot match on this, or steer it to this queue: try a rule \
                 on `mac`, or leave the rule out"
            }
            (Self::FlowSteering { .. }, Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
                "; the NIC cannot steer flows by rules: leave `steer` out for it"
            }
            _ => return HostError::io("set", self.subject(), cause),
        };
        HostError::Io {
            action: "set",
            subject: self.subject(),
            cause,
            hint,
        }
    }

    fn not_kept(&self, found: String) -> HostError {
        HostError::NotKept {
            what: self.subject(),
            asked: self.new_text(),
            found,
        }
    }
}

/// What is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Now {
    /// The value before the change.
    pub is_old: bool,
    /// The value after it.
    pub is_new: bool,
    /// It is ours, neither old nor new: an interrupted undo or install. Undo goes on from there.
    pub is_halfway: bool,
    /// For people.
    pub text: String,
}

impl Now {
    fn of(is_old: bool, is_new: bool, text: String) -> Self {
        Self {
            is_old,
            is_new,
            is_halfway: false,
            text,
        }
    }

    /// Of a tap whose queues have these send buffers.
    fn of_queues(bytes: &BTreeSet<u32>, old: u32, new: u32) -> Self {
        let are = |known: &[u32]| bytes.iter().all(|bytes| known.contains(bytes));
        let text: Vec<String> = bytes.iter().map(|bytes| limit(*bytes)).collect();
        let mut now = Self::of(are(&[old]), are(&[new]), text.join(", "));
        // A queue was attached since.
        now.is_halfway = !now.is_old && !now.is_new && are(&[old, new]);
        now
    }
}

impl Form {
    fn same(self, one: &str, other: &str) -> bool {
        match self {
            Self::Text => one.trim() == other.trim(),
            Self::CpuMask => match (CpuSet::from_mask(one), CpuSet::from_mask(other)) {
                (Ok(one), Ok(other)) => one == other,
                _ => one.trim() == other.trim(),
            },
        }
    }
}

/// The file with an interrupt's CPU list.
pub(crate) fn irq_file(irq: u32) -> String {
    format!("/proc/irq/{irq}/smp_affinity_list")
}

/// The CPUs that really get an interrupt; none where the kernel does not say.
pub(crate) fn effective_of(machine: &Machine, irq: u32) -> Option<CpuSet> {
    let text = machine
        .tree
        .read(&format!("/proc/irq/{irq}/effective_affinity_list"))
        .ok()?;
    text.parse().ok().filter(|set: &CpuSet| !set.is_empty())
}

/// Installs early demultiplexing, in the place of one for another specification: the plan has
/// made sure that it is steadyvm's.
fn install(machine: &Machine, specification: &Specification) -> io::Result<()> {
    if machine.demux.presence(specification)? == Presence::Other {
        machine.demux.remove()?;
    }
    let mut sockets = || net::bound_sockets(machine);
    machine.demux.install(specification, &mut sockets)
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV))
}
