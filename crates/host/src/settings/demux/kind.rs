//! Early demultiplexing, which was not there before.

use std::io;

use serde::{Deserialize, Serialize};
use steadyvm_demux::{Queues, Specification};

use super::kernel::Presence;
use super::sockets::bound_sockets;
use crate::error::HostError;
use crate::settings::{Entries, Machine, SettingKind};

/// Early demultiplexing: there is one at most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlyDemux {
    /// What is installed.
    pub specification: Specification,
}

/// What of it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Installed {
    /// Nothing.
    Absent,
    /// All that the specification asks for.
    Whole,
    /// Something else: half of it, or for another specification.
    Other,
}

impl SettingKind for EarlyDemux {
    type Value = Installed;

    /// A driver may stop and start its NIC.
    const REPLACES_THREADS: bool = true;

    fn subject(&self) -> String {
        "early demultiplexing".to_owned()
    }

    fn text(&self, value: &Installed) -> String {
        let Specification {
            nics,
            levels,
            queues,
            frames,
        } = &self.specification;
        let count = levels.count();
        let named = match frames.len() {
            0 => String::new(),
            count => format!(", {count} kinds of frames named"),
        };
        match (value, queues) {
            (Installed::Absent, _) => "none".to_owned(),
            (Installed::Other, _) => "partly installed".to_owned(),
            (Installed::Whole, Queues::Threads { cpu }) => {
                format!("{count} levels on CPU {cpu} for {}{named}", nics.join(", "))
            }
            (Installed::Whole, Queues::Kernel) => {
                format!(
                    "{count} levels of the kernel for {}{named}",
                    nics.join(", ")
                )
            }
        }
    }

    fn is_same_setting(&self, _other: &Self) -> bool {
        true
    }

    fn read(&self, machine: &Machine) -> Result<Installed, HostError> {
        let presence = machine
            .demux
            .presence(&self.specification)
            .map_err(|cause| HostError::io("read", self.subject(), cause))?;
        Ok(match presence {
            Presence::Absent => Installed::Absent,
            Presence::Whole => Installed::Whole,
            Presence::Other => Installed::Other,
        })
    }

    /// In the place of one for another specification: the plan has made sure that it is steadyvm's.
    fn write(&self, machine: &Machine, _from: &Installed, to: &Installed) -> io::Result<()> {
        if *to == Installed::Absent {
            return machine.demux.remove();
        }
        if machine.demux.presence(&self.specification)? == Presence::Other {
            machine.demux.remove()?;
        }
        let mut sockets = || bound_sockets(machine);
        machine.demux.install(&self.specification, &mut sockets)
    }

    /// Whatever is in its directory is steadyvm's.
    fn is_halfway(&self, _old: &Installed, _new: &Installed, found: &Installed) -> bool {
        *found == Installed::Other
    }

    fn snapshot(machine: &Machine, entries: &mut Entries) -> Result<(), HostError> {
        let is_there = machine.demux.state().is_ok_and(|state| state.is_some());
        let text = if is_there { "installed" } else { "none" };
        entries.insert("this host".to_owned(), text.to_owned());
        Ok(())
    }

    #[cfg(any(test, feature = "fake"))]
    #[allow(clippy::expect_used)] // the levels are fixed
    fn example(_host: &crate::settings::fake::FakeHost) -> crate::settings::ChangeOf<Self> {
        let levels = steadyvm_demux::Levels::new(vec![0, 50]).expect("two levels in order");
        crate::settings::ChangeOf {
            setting: Self {
                specification: Specification {
                    nics: vec!["rt0".into()],
                    levels,
                    queues: Queues::Threads { cpu: 1 },
                    frames: Vec::new(),
                },
            },
            old: Installed::Absent,
            new: Installed::Whole,
        }
    }
}
