//! A network device, found again after it was renamed.

use std::io;

use serde::{Deserialize, Serialize};

use crate::settings::Machine;

/// A network device of a network namespace.
///
/// The kernel numbers the devices of a namespace and gives no number twice, unless a user asks for
/// one; names can be changed at any time, and swapped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its name when the setting was recorded.
    #[serde(rename = "device")]
    pub name: String,
    /// Its number (`ifindex`); none where the kernel does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
}

impl Device {
    /// The device that has this name now.
    pub fn find(machine: &Machine, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            index: index_of(machine, name),
        }
    }

    /// Its name now. `ENODEV` if the device is gone, also if another has its name.
    pub(crate) fn current_name(&self, machine: &Machine) -> io::Result<String> {
        let Some(index) = self.index else {
            return Ok(self.name.clone());
        };
        if index_of(machine, &self.name) == Some(index) {
            return Ok(self.name.clone());
        }
        let mut names = machine.tree.list("/sys/class/net")?.into_iter();
        names
            .find(|name| index_of(machine, name) == Some(index))
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
    }

    /// Whether the other is the same device.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self.index, other.index) {
            (Some(one), Some(two)) => one == two,
            _ => self.name == other.name,
        }
    }
}

/// Whether a device is switched on (`IFF_UP`).
pub(crate) fn is_up(machine: &Machine, device: &str) -> bool {
    let text = machine.tree.read(&format!("/sys/class/net/{device}/flags"));
    let flags = text.ok().and_then(|text| {
        let digits = text.trim().strip_prefix("0x")?;
        u32::from_str_radix(digits, 16).ok()
    });
    flags.is_some_and(|flags| flags & 1 != 0)
}

fn index_of(machine: &Machine, name: &str) -> Option<u32> {
    let path = format!("/sys/class/net/{name}/ifindex");
    machine.tree.read(&path).ok()?.trim().parse().ok()
}
