//! What a change is of: in words, and against other changes.

use steadyvm_demux::Queues;

use super::Change;
use crate::links::UNLIMITED_BYTES;

impl Change {
    /// What is changed, for people.
    pub fn subject(&self) -> String {
        match self {
            Self::ThreadPolicy { thread, .. } => format!("policy of {thread}"),
            Self::ThreadAffinity { thread, .. } => format!("CPUs of {thread}"),
            Self::IrqAffinity { irq, name, .. } => format!("CPUs of IRQ {irq} ({name})"),
            Self::File { path, .. } => path.clone(),
            Self::FairServer { cpu, .. } => format!("fair server of CPU {cpu}"),
            Self::RootQdisc { device, .. } => format!("queueing discipline of {device}"),
            Self::FlowSteering { device, .. } => format!("flow steering of {device}"),
            Self::FlowRule { device, place, .. } => {
                format!("flow steering rule {place} of {device}")
            }
            Self::RxFrames { device, .. } => format!("rx-frames of {device}"),
            Self::TapSendBuffer { tap, monitor, .. } => {
                format!("send buffer of {tap}, of process {}", monitor.pid)
            }
            Self::EarlyDemux { .. } => "early demultiplexing".to_owned(),
        }
    }

    /// The value before, for people.
    pub fn old_text(&self) -> String {
        match self {
            Self::ThreadPolicy { old, .. } => old.to_string(),
            Self::ThreadAffinity { old, .. } | Self::IrqAffinity { old, .. } => old.to_string(),
            Self::File { old, .. } | Self::RootQdisc { old, .. } => old.clone(),
            Self::FairServer { old, .. } => old.to_string(),
            Self::FlowSteering { old, .. } => on_off(*old).to_owned(),
            Self::RxFrames { old_frames, .. } => old_frames.to_string(),
            Self::TapSendBuffer { old_bytes, .. } => limit(*old_bytes),
            Self::FlowRule { .. } | Self::EarlyDemux { .. } => "none".to_owned(),
        }
    }

    /// The value after, for people.
    pub fn new_text(&self) -> String {
        match self {
            Self::ThreadPolicy { new, .. } => new.to_string(),
            Self::ThreadAffinity { new, .. } | Self::IrqAffinity { new, .. } => new.to_string(),
            Self::File { new, .. } | Self::RootQdisc { new, .. } => new.clone(),
            Self::FairServer { new, .. } => new.to_string(),
            Self::FlowSteering { new, .. } => on_off(*new).to_owned(),
            Self::FlowRule { rule, .. } => rule.to_string(),
            Self::RxFrames { new_frames, .. } => new_frames.to_string(),
            Self::TapSendBuffer { new_bytes, .. } => limit(*new_bytes),
            Self::EarlyDemux { specification } => {
                let count = specification.levels.count();
                let levels = match specification.queues {
                    Queues::Threads { cpu } => format!("{count} levels on CPU {cpu}"),
                    Queues::Kernel => format!("{count} levels of the kernel"),
                };
                format!("{levels} for {}", specification.nics.join(", "))
            }
        }
    }

    /// Whether the change would change nothing.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::ThreadPolicy { old, new, .. } => old.same_as(new),
            Self::ThreadAffinity { old, new, .. } | Self::IrqAffinity { old, new, .. } => {
                old == new
            }
            Self::File { form, old, new, .. } => form.same(old, new),
            Self::FairServer { old, new, .. } => old == new,
            Self::RootQdisc { old, new, .. } => old == new,
            Self::FlowSteering { old, new, .. } => old == new,
            Self::RxFrames {
                old_frames,
                new_frames,
                ..
            } => old_frames == new_frames,
            Self::TapSendBuffer {
                old_bytes,
                new_bytes,
                ..
            } => old_bytes == new_bytes,
            Self::FlowRule { .. } | Self::EarlyDemux { .. } => false,
        }
    }

    /// Whether the other change is of the same setting.
    pub fn same_subject(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::ThreadPolicy { thread: one, .. }, Self::ThreadPolicy { thread: two, .. })
            | (
                Self::ThreadAffinity { thread: one, .. },
                Self::ThreadAffinity { thread: two, .. },
            ) => {
                // Not by name: a thread may rename itself.
                (one.tid, one.start_time) == (two.tid, two.start_time)
            }
            (Self::IrqAffinity { irq: one, .. }, Self::IrqAffinity { irq: two, .. }) => one == two,
            (Self::FairServer { cpu: one, .. }, Self::FairServer { cpu: two, .. }) => one == two,
            (Self::File { path: one, .. }, Self::File { path: two, .. })
            | (Self::RootQdisc { device: one, .. }, Self::RootQdisc { device: two, .. })
            | (Self::FlowSteering { device: one, .. }, Self::FlowSteering { device: two, .. })
            | (Self::RxFrames { device: one, .. }, Self::RxFrames { device: two, .. }) => {
                one == two
            }
            (
                Self::TapSendBuffer {
                    tap: one,
                    monitor: of_one,
                    ..
                },
                Self::TapSendBuffer {
                    tap: two,
                    monitor: of_two,
                    ..
                },
            ) => (one, of_one.tid, of_one.start_time) == (two, of_two.tid, of_two.start_time),
            (Self::FlowRule { .. }, Self::FlowRule { .. }) => self == other,
            // There is one at most.
            (Self::EarlyDemux { .. }, Self::EarlyDemux { .. }) => true,
            _ => false,
        }
    }

    /// The same change from the value that `earlier`, of the same setting, found.
    #[must_use]
    pub fn since(mut self, earlier: &Self) -> Self {
        match (&mut self, earlier) {
            (Self::ThreadPolicy { old, .. }, Self::ThreadPolicy { old: first, .. }) => {
                *old = *first;
            }
            (Self::ThreadAffinity { old, .. }, Self::ThreadAffinity { old: first, .. }) => {
                old.clone_from(first);
            }
            (
                Self::IrqAffinity {
                    old, old_effective, ..
                },
                Self::IrqAffinity {
                    old: first,
                    old_effective: first_effective,
                    ..
                },
            ) => {
                old.clone_from(first);
                old_effective.clone_from(first_effective);
            }
            (Self::File { old, .. }, Self::File { old: first, .. })
            | (Self::RootQdisc { old, .. }, Self::RootQdisc { old: first, .. }) => {
                old.clone_from(first);
            }
            (Self::FairServer { old, .. }, Self::FairServer { old: first, .. }) => *old = *first,
            (Self::FlowSteering { old, .. }, Self::FlowSteering { old: first, .. }) => {
                *old = *first;
            }
            (
                Self::RxFrames {
                    old_frames: old, ..
                },
                Self::RxFrames {
                    old_frames: first, ..
                },
            )
            | (
                Self::TapSendBuffer { old_bytes: old, .. },
                Self::TapSendBuffer {
                    old_bytes: first, ..
                },
            ) => *old = *first,
            _ => {}
        }
        self
    }

    /// Whether making it replaces threads of NICs by new ones: a driver may stop and start its NIC.
    pub fn replaces_threads(&self) -> bool {
        matches!(self, Self::EarlyDemux { .. })
    }
}

/// A send buffer, for people.
pub(super) fn limit(bytes: u32) -> String {
    if bytes == UNLIMITED_BYTES {
        "no limit".to_owned()
    } else {
        format!("{bytes} bytes")
    }
}

pub(super) fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}
