//! The root queueing discipline of a network device.

use std::io;

use serde::{Deserialize, Serialize};

use super::calls::Qdisc;
use crate::error::HostError;
use crate::settings::{Device, Entries, Machine, SettingKind};

/// The root queueing discipline of a device, set only where the kernel's default is: that comes back
/// by itself when another is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootQdisc {
    /// The device.
    #[serde(flatten)]
    pub device: Device,
}

impl SettingKind for RootQdisc {
    type Value = Qdisc;

    fn subject(&self) -> String {
        format!("queueing discipline of {}", self.device.name)
    }

    fn text(&self, value: &Qdisc) -> String {
        value.kind.clone()
    }

    fn is_same_setting(&self, other: &Self) -> bool {
        self.device.is(&other.device)
    }

    fn read(&self, machine: &Machine) -> Result<Qdisc, HostError> {
        self.device
            .current_name(machine)
            .and_then(|name| machine.links.root_qdisc(&name))
            .map_err(|cause| HostError::io("read", self.subject(), cause))
    }

    fn write(&self, machine: &Machine, _from: &Qdisc, to: &Qdisc) -> io::Result<()> {
        let name = self.device.current_name(machine)?;
        if to.is_default {
            machine.links.delete_root_qdisc(&name)
        } else {
            machine.links.replace_root_qdisc(&name, &to.kind)
        }
    }

    fn snapshot(machine: &Machine, entries: &mut Entries) -> Result<(), HostError> {
        for nic in machine.tree.list("/sys/class/net").unwrap_or_default() {
            if let Ok(Qdisc { kind, is_default }) = machine.links.root_qdisc(&nic) {
                let whose = if is_default { " (the kernel's)" } else { "" };
                entries.insert(nic, format!("{kind}{whose}"));
            }
        }
        Ok(())
    }

    #[cfg(any(test, feature = "fake"))]
    fn example(host: &crate::settings::fake::FakeHost) -> crate::settings::ChangeOf<Self> {
        host.file("/sys/class/net/example0/mtu", "1500\n");
        host.file("/sys/class/net/example0/ifindex", "77\n");
        let qdisc = |kind: &str, is_default| Qdisc {
            kind: kind.into(),
            is_default,
        };
        crate::settings::ChangeOf {
            setting: Self {
                device: Device::find(&host.machine(), "example0"),
            },
            old: qdisc("pfifo_fast", true),
            new: qdisc("noqueue", false),
        }
    }
}
