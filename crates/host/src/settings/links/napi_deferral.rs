//! How long a NAPI's packets may wait though nobody polls it.

use std::io;

use serde::{Deserialize, Serialize};

use super::calls::{Deferral, Napi};
use crate::error::HostError;
use crate::settings::{ChangeOf, Device, Entries, Machine, SettingKind};

/// The deferral of one NAPI of a device (Linux 6.13).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NapiDeferral {
    /// The device.
    #[serde(flatten)]
    pub device: Device,
    /// The NAPI's number.
    pub napi: u32,
}

impl NapiDeferral {
    /// A change that lets no packet of a NAPI wait; none where the kernel has no deferral of a NAPI.
    pub(crate) fn none(machine: &Machine, device: &str, napi: &Napi) -> Option<ChangeOf<Self>> {
        let setting = Self {
            device: Device::find(machine, device),
            napi: napi.id,
        };
        Some(ChangeOf {
            setting,
            old: napi.deferral?,
            new: Deferral::default(),
        })
    }
}

impl SettingKind for NapiDeferral {
    type Value = Deferral;

    fn subject(&self) -> String {
        format!("deferral of NAPI {} of {}", self.napi, self.device.name)
    }

    fn text(&self, value: &Deferral) -> String {
        format!(
            "{} empty polls, {} ns, {} ns after a process's poll",
            value.empty_polls, value.timeout_ns, value.suspend_ns
        )
    }

    fn is_same_setting(&self, other: &Self) -> bool {
        self.device.is(&other.device) && self.napi == other.napi
    }

    fn read(&self, machine: &Machine) -> Result<Deferral, HostError> {
        let read = || {
            let name = self.device.current_name(machine)?;
            let napis = machine.links.napis(&name)?;
            let found = napis.iter().find(|napi| napi.id == self.napi);
            let found = found.and_then(|napi| napi.deferral);
            found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
        };
        read().map_err(|cause| HostError::io("read", self.subject(), cause))
    }

    fn write(&self, machine: &Machine, _from: &Deferral, to: &Deferral) -> io::Result<()> {
        let name = self.device.current_name(machine)?;
        machine.links.set_deferral(&name, self.napi, *to)
    }

    fn snapshot(machine: &Machine, entries: &mut Entries) -> Result<(), HostError> {
        for device in machine.tree.list("/sys/class/net").unwrap_or_default() {
            for napi in machine.links.napis(&device).unwrap_or_default() {
                if let Some(deferral) = napi.deferral {
                    let text = format!(
                        "{} {} {}",
                        deferral.empty_polls, deferral.timeout_ns, deferral.suspend_ns
                    );
                    entries.insert(format!("{device} {}", napi.id), text);
                }
            }
        }
        Ok(())
    }

    #[cfg(any(test, feature = "fake"))]
    fn example(host: &crate::settings::fake::FakeHost) -> ChangeOf<Self> {
        let old = Deferral {
            empty_polls: 2,
            timeout_ns: 20_000,
            suspend_ns: 30_000,
        };
        let napi = Napi {
            id: 8300,
            deferral: Some(old),
            ..Napi::default()
        };
        host.file("/sys/class/net/example7/ifindex", "84\n");
        host.edit(|state| state.napis.insert("example7".into(), vec![napi]));
        ChangeOf {
            setting: Self {
                device: Device::find(&host.machine(), "example7"),
                napi: 8300,
            },
            old,
            new: Deferral::default(),
        }
    }
}
