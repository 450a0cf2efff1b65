//! Whether a thread of its own polls a NAPI.

use std::io;

use serde::{Deserialize, Serialize};

use super::calls::Napi;
use crate::error::HostError;
use crate::settings::{ChangeOf, Device, Entries, Machine, SettingKind};

/// The threading of one NAPI of a device (Linux 6.17): 0 off, 1 on, 2 on and never asleep (`enum netdev_napi_threaded`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NapiThreading {
    /// The device.
    #[serde(flatten)]
    pub device: Device,
    /// The NAPI's number.
    pub napi: u32,
}

impl NapiThreading {
    /// A change that switches the thread of a NAPI on or off; none where the kernel threads whole devices.
    pub(crate) fn switched(
        machine: &Machine,
        device: &str,
        napi: &Napi,
        on: bool,
    ) -> Option<ChangeOf<Self>> {
        let setting = Self {
            device: Device::find(machine, device),
            napi: napi.id,
        };
        Some(ChangeOf {
            setting,
            old: napi.threaded?,
            new: u32::from(on),
        })
    }
}

impl SettingKind for NapiThreading {
    type Value = u32;

    fn subject(&self) -> String {
        format!("thread of NAPI {} of {}", self.napi, self.device.name)
    }

    fn text(&self, value: &u32) -> String {
        match value {
            0 => "off".to_owned(),
            1 => "on".to_owned(),
            _ => "on, and never asleep".to_owned(),
        }
    }

    fn is_same_setting(&self, other: &Self) -> bool {
        self.device.is(&other.device) && self.napi == other.napi
    }

    fn read(&self, machine: &Machine) -> Result<u32, HostError> {
        let read = || {
            let name = self.device.current_name(machine)?;
            let napis = machine.links.napis(&name)?;
            let found = napis.iter().find(|napi| napi.id == self.napi);
            let found = found.and_then(|napi| napi.threaded);
            found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
        };
        read().map_err(|cause| HostError::io("read", self.subject(), cause))
    }

    fn write(&self, machine: &Machine, _from: &u32, to: &u32) -> io::Result<()> {
        let name = self.device.current_name(machine)?;
        machine.links.set_napi_threaded(&name, self.napi, *to)
    }

    fn snapshot(machine: &Machine, entries: &mut Entries) -> Result<(), HostError> {
        for device in machine.tree.list("/sys/class/net").unwrap_or_default() {
            for napi in machine.links.napis(&device).unwrap_or_default() {
                if let Some(threaded) = napi.threaded {
                    entries.insert(format!("{device} {}", napi.id), threaded.to_string());
                }
            }
        }
        Ok(())
    }

    #[cfg(any(test, feature = "fake"))]
    fn example(host: &crate::settings::fake::FakeHost) -> ChangeOf<Self> {
        let napi = Napi {
            id: 8301,
            threaded: Some(0),
            ..Napi::default()
        };
        host.file("/sys/class/net/example8/ifindex", "85\n");
        host.edit(|state| state.napis.insert("example8".into(), vec![napi]));
        ChangeOf {
            setting: Self {
                device: Device::find(&host.machine(), "example8"),
                napi: 8301,
            },
            old: 0,
            new: 1,
        }
    }
}
