//! The CPUs an interrupt may be delivered to. Its IRQ thread follows it by itself.

use std::io;

use serde::{Deserialize, Serialize};

use crate::cpu_set::CpuSet;
use crate::error::HostError;
use crate::settings::{Entries, Machine, SettingKind};

/// The CPUs of an interrupt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IrqAffinity {
    /// The interrupt.
    pub irq: u32,
    /// Its actions, for people.
    pub name: String,
}

/// What an interrupt has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IrqCpus {
    /// The CPUs that are allowed.
    pub cpus: CpuSet,
    /// Those that get it, where the kernel says so and they are known to matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<CpuSet>,
}

impl From<CpuSet> for IrqCpus {
    fn from(cpus: CpuSet) -> Self {
        let effective = None;
        Self { cpus, effective }
    }
}

impl IrqAffinity {
    /// The file with the list of CPUs.
    fn path(&self) -> String {
        format!("/proc/irq/{}/smp_affinity_list", self.irq)
    }

    /// The CPUs that really get it; none where the kernel does not say.
    fn effective(&self, machine: &Machine) -> Option<CpuSet> {
        let path = format!("/proc/irq/{}/effective_affinity_list", self.irq);
        let text = machine.tree.read(&path).ok()?;
        text.parse().ok().filter(|set: &CpuSet| !set.is_empty())
    }
}

impl SettingKind for IrqAffinity {
    type Value = IrqCpus;

    const SETTLES: bool = true;

    fn subject(&self) -> String {
        format!("CPUs of IRQ {} ({})", self.irq, self.name)
    }

    fn text(&self, value: &IrqCpus) -> String {
        value.cpus.to_string()
    }

    fn is_same_setting(&self, other: &Self) -> bool {
        self.irq == other.irq
    }

    fn read(&self, machine: &Machine) -> Result<IrqCpus, HostError> {
        let path = self.path();
        let text = machine
            .tree
            .read(&path)
            .map_err(|cause| HostError::io("read", self.subject(), cause))?;
        let cpus: CpuSet = text.parse().map_err(|error| HostError::Malformed {
            path,
            problem: format!("{error}"),
        })?;
        Ok(IrqCpus {
            effective: self.effective(machine).filter(|set| set.is_subset(&cpus)),
            cpus,
        })
    }

    fn write(&self, machine: &Machine, _from: &IrqCpus, to: &IrqCpus) -> io::Result<()> {
        machine.tree.write(&self.path(), &to.cpus.to_string())
    }

    /// Asks for the CPU that served it: the kernel keeps the current one of an interrupt as long as
    /// the mask allows it. [`SettingKind::settle`] gives the whole mask back.
    fn restore(
        &self,
        machine: &Machine,
        old: &IrqCpus,
        _new: &IrqCpus,
    ) -> io::Result<Option<String>> {
        let first = old.effective.as_ref().unwrap_or(&old.cpus);
        machine
            .tree
            .write(&self.path(), &first.to_string())
            .or_else(|error| {
                // That CPU is offline.
                let offline = error.raw_os_error() == Some(libc::EINVAL) && old.effective.is_some();
                if offline {
                    machine.tree.write(&self.path(), &old.cpus.to_string())
                } else {
                    Err(error)
                }
            })?;
        Ok(None)
    }

    fn same(&self, one: &IrqCpus, other: &IrqCpus) -> bool {
        one.cpus == other.cpus
    }

    fn is_halfway(&self, old: &IrqCpus, _new: &IrqCpus, found: &IrqCpus) -> bool {
        old.effective.as_ref() == Some(&found.cpus) && found.cpus != old.cpus
    }

    fn is_settled(&self, machine: &Machine, old: &IrqCpus) -> bool {
        let Some(old) = &old.effective else {
            return true;
        };
        self.effective(machine).is_none_or(|now| now == *old)
    }

    fn settle(&self, machine: &Machine, old: &IrqCpus) -> io::Result<()> {
        machine.tree.write(&self.path(), &old.cpus.to_string())
    }

    fn hint(&self, _machine: &Machine, _to: &IrqCpus, errno: i32) -> Option<&'static str> {
        match errno {
            libc::EPERM | libc::EIO => {
                Some("; the kernel places this interrupt itself (managed, or bound to a CPU)")
            }
            libc::ENOSPC => Some(
                "; the interrupt vectors of these CPUs are used up: name other CPUs, or give the \
                 devices there fewer queues (ethtool -L)",
            ),
            _ => None,
        }
    }

    fn snapshot(machine: &Machine, entries: &mut Entries) -> Result<(), HostError> {
        for irq in machine.tree.list("/proc/irq").unwrap_or_default() {
            let Ok(irq) = irq.parse() else { continue };
            let name = String::new();
            if let Ok(value) = (Self { irq, name }).read(machine) {
                entries.insert(format!("IRQ {irq}"), value.cpus.to_string());
            }
        }
        Ok(())
    }

    #[cfg(any(test, feature = "fake"))]
    fn example(host: &crate::settings::fake::FakeHost) -> crate::settings::ChangeOf<Self> {
        host.irq(90, "example", 0);
        crate::settings::ChangeOf {
            setting: Self {
                irq: 90,
                name: "example".into(),
            },
            old: IrqCpus {
                cpus: host.state().online,
                effective: Some(CpuSet::single(0)),
            },
            new: CpuSet::single(1).into(),
        }
    }
}
