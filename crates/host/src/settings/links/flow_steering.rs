//! Whether a NIC steers flows by rules.

use std::io;

use serde::{Deserialize, Serialize};

use crate::error::HostError;
use crate::settings::{Device, Entries, Machine, SettingKind};

/// Flow steering of a NIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowSteering {
    /// The NIC.
    #[serde(flatten)]
    pub device: Device,
}

impl SettingKind for FlowSteering {
    type Value = bool;

    fn subject(&self) -> String {
        format!("flow steering of {}", self.device.name)
    }

    fn text(&self, value: &bool) -> String {
        if *value { "on" } else { "off" }.to_owned()
    }

    fn is_same_setting(&self, other: &Self) -> bool {
        self.device.is(&other.device)
    }

    fn read(&self, machine: &Machine) -> Result<bool, HostError> {
        self.device
            .current_name(machine)
            .and_then(|name| machine.links.flow_steering(&name))
            .map_err(|cause| HostError::io("read", self.subject(), cause))
    }

    fn write(&self, machine: &Machine, _from: &bool, to: &bool) -> io::Result<()> {
        let name = self.device.current_name(machine)?;
        machine.links.set_flow_steering(&name, *to)
    }

    fn hint(&self, _machine: &Machine, _to: &bool, errno: i32) -> Option<&'static str> {
        matches!(errno, libc::EINVAL | libc::EOPNOTSUPP)
            .then_some("; the NIC cannot steer flows by rules: leave `steer` out for it")
    }

    fn snapshot(machine: &Machine, entries: &mut Entries) -> Result<(), HostError> {
        for nic in machine.tree.list("/sys/class/net").unwrap_or_default() {
            if let Ok(is_on) = machine.links.flow_steering(&nic) {
                entries.insert(nic, if is_on { "on" } else { "off" }.to_owned());
            }
        }
        Ok(())
    }

    #[cfg(any(test, feature = "fake"))]
    fn example(host: &crate::settings::fake::FakeHost) -> crate::settings::ChangeOf<Self> {
        host.file("/sys/class/net/example1/ifindex", "78\n");
        host.edit(|state| {
            let steering = crate::settings::fake::FakeFlowSteering::default();
            state.flow_steering.insert("example1".into(), steering);
        });
        crate::settings::ChangeOf {
            setting: Self {
                device: Device::find(&host.machine(), "example1"),
            },
            old: false,
            new: true,
        }
    }
}
