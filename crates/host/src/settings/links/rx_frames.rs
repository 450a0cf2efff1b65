//! How many packets a network device gathers before it handles them (`ethtool -C`, `rx-frames`).

use std::io;

use serde::{Deserialize, Serialize};

use crate::error::HostError;
use crate::settings::{Device, Entries, Machine, SettingKind};

/// `rx-frames` of a device, in packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RxFrames {
    /// The device.
    #[serde(flatten)]
    pub device: Device,
}

impl SettingKind for RxFrames {
    type Value = u32;

    fn subject(&self) -> String {
        format!("rx-frames of {}", self.device.name)
    }

    fn text(&self, value: &u32) -> String {
        value.to_string()
    }

    fn is_same_setting(&self, other: &Self) -> bool {
        self.device.is(&other.device)
    }

    fn read(&self, machine: &Machine) -> Result<u32, HostError> {
        self.device
            .current_name(machine)
            .and_then(|name| machine.links.rx_frames(&name))
            .map_err(|cause| HostError::io("read", self.subject(), cause))
    }

    fn write(&self, machine: &Machine, _from: &u32, to: &u32) -> io::Result<()> {
        let name = self.device.current_name(machine)?;
        machine.links.set_rx_frames(&name, *to)
    }

    fn snapshot(machine: &Machine, entries: &mut Entries) -> Result<(), HostError> {
        for nic in machine.tree.list("/sys/class/net").unwrap_or_default() {
            // Only taps: what other drivers say here may differ from one moment to the next.
            let is_tap = machine
                .tree
                .exists(&format!("/sys/class/net/{nic}/tun_flags"));
            if is_tap && let Ok(frames) = machine.links.rx_frames(&nic) {
                entries.insert(nic, frames.to_string());
            }
        }
        Ok(())
    }

    #[cfg(any(test, feature = "fake"))]
    fn example(host: &crate::settings::fake::FakeHost) -> crate::settings::ChangeOf<Self> {
        host.file("/sys/class/net/example3/ifindex", "80\n");
        host.file("/sys/class/net/example3/tun_flags", "0x5002\n");
        crate::settings::ChangeOf {
            setting: Self {
                device: Device::find(&host.machine(), "example3"),
            },
            old: 0,
            new: 7,
        }
    }
}
