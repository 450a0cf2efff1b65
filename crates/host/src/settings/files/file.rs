//! A file of procfs or sysfs.

use std::io;

use serde::{Deserialize, Serialize};

use super::form::Form;
use super::known;
use crate::cpu_set::CpuSet;
use crate::error::HostError;
use crate::settings::{Device, Entries, Machine, SettingKind};

/// Where files may be that a journal names, besides those of [`known::FILES`]: what is elsewhere was
/// not written by steadyvm.
const ALLOWED: [&str; 5] = [
    "/proc/sys/kernel/",
    "/proc/sys/net/",
    "/proc/irq/",
    "/sys/class/net/",
    "/sys/devices/virtual/workqueue/",
];

/// Directories with a directory per network device, by its name.
const OF_DEVICES: [&str; 2] = ["/sys/class/net/", "/proc/sys/net/ipv6/conf/"];

/// A file of procfs or sysfs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct File {
    /// The path when it was recorded.
    pub path: String,
    /// How to compare.
    pub form: Form,
    /// The network device whose file it is.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,
}

/// A [`File`] as a journal has it, which anybody may have written.
#[derive(Deserialize)]
struct Unchecked {
    path: String,
    form: Form,
    #[serde(default)]
    device: Option<String>,
    #[serde(default)]
    index: Option<u32>,
}

impl TryFrom<Unchecked> for File {
    type Error = String;

    fn try_from(read: Unchecked) -> Result<Self, String> {
        let Unchecked {
            path,
            form,
            device,
            index,
        } = read;
        let is_plain = |path: &str| {
            let mut parts = path.split('/').skip(1);
            parts.all(|part| !part.is_empty() && part != "." && part != "..")
        };
        let is_below = ALLOWED.iter().any(|allowed| path.starts_with(allowed));
        let is_tuned = known::FILES.iter().any(|(allowed, ..)| path == *allowed);
        if !(is_below || is_tuned) || !is_plain(&path) {
            return Err(format!("{path} is no file that steadyvm sets"));
        }
        let device = device.map(|name| Device { name, index });
        Ok(Self { path, form, device })
    }
}

impl File {
    /// A file by its path.
    pub fn new(machine: &Machine, path: impl Into<String>, form: Form) -> Self {
        let path = path.into();
        let mut names = OF_DEVICES.iter().filter_map(|of_devices| {
            let (name, _) = path.strip_prefix(of_devices)?.split_once('/')?;
            Some(name)
        });
        let device = names.next().map(|name| Device::find(machine, name));
        Self { path, form, device }
    }

    /// The value of a text of the kernel's.
    fn in_force<'t>(&self, text: &'t str) -> &'t str {
        let chosen = || Some(text.split_once('[')?.1.split_once(']')?.0);
        match self.form {
            Form::Choice => chosen().unwrap_or(text),
            Form::Text | Form::CpuMask => text,
        }
    }

    /// The path now: the device may have another name.
    fn current_path(&self, machine: &Machine) -> io::Result<String> {
        let Some(device) = &self.device else {
            return Ok(self.path.clone());
        };
        let now = device.current_name(machine)?;
        let current = self
            .below(device)
            .map(|(of_devices, rest)| format!("{of_devices}{now}/{rest}"));
        Ok(current.unwrap_or_else(|| self.path.clone()))
    }

    /// The directory that has one per device, and the rest of the path below that of this one.
    fn below(&self, device: &Device) -> Option<(&'static str, &str)> {
        OF_DEVICES.iter().find_map(|of_devices| {
            let of_device = self.path.strip_prefix(of_devices)?;
            let rest = of_device.strip_prefix(&device.name)?.strip_prefix('/')?;
            Some((*of_devices, rest))
        })
    }
}

impl SettingKind for File {
    type Value = String;

    fn subject(&self) -> String {
        self.path.clone()
    }

    fn text(&self, value: &String) -> String {
        value.clone()
    }

    fn is_same_setting(&self, other: &Self) -> bool {
        match (&self.device, &other.device) {
            (Some(one), Some(two)) if one.is(two) => self.below(one) == other.below(two),
            (None, None) => self.path == other.path,
            _ => false,
        }
    }

    fn read(&self, machine: &Machine) -> Result<String, HostError> {
        let text = self
            .current_path(machine)
            .and_then(|path| machine.tree.read(&path))
            .map_err(|cause| HostError::io("read", self.subject(), cause))?;
        Ok(self.in_force(text.trim()).to_owned())
    }

    fn write(&self, machine: &Machine, _from: &String, to: &String) -> io::Result<()> {
        machine.tree.write(&self.current_path(machine)?, to)
    }

    fn same(&self, one: &String, other: &String) -> bool {
        if self.form == Form::CpuMask
            && let (Ok(one), Ok(other)) = (CpuSet::from_mask(one), CpuSet::from_mask(other))
        {
            return one == other;
        }
        one.trim() == other.trim()
    }

    fn snapshot(machine: &Machine, entries: &mut Entries) -> Result<(), HostError> {
        let fixed = [
            "/sys/devices/virtual/workqueue/cpumask",
            "/proc/irq/default_smp_affinity",
            "/proc/sys/kernel/sched_rt_runtime_us",
            "/proc/sys/net/core/netdev_budget",
            "/proc/sys/net/core/netdev_budget_usecs",
            known::PRIORITY,
            known::QUANTUM,
            known::XDP_PRIORITY,
            known::THREAD_PRIORITY,
        ];
        let mut paths: Vec<String> = fixed.iter().map(ToString::to_string).collect();
        paths.extend(known::FILES.map(|(path, ..)| path.to_owned()));
        for queue in machine.tree.list(known::WORKQUEUES).unwrap_or_default() {
            paths.push(format!("{}/{queue}/cpumask", known::WORKQUEUES));
        }
        for nic in machine.tree.list("/sys/class/net").unwrap_or_default() {
            for file in ["threaded", "napi_defer_hard_irqs", "gro_flush_timeout"] {
                paths.push(format!("/sys/class/net/{nic}/{file}"));
            }
            let queues = format!("/sys/class/net/{nic}/queues");
            for queue in machine.tree.list(&queues).unwrap_or_default() {
                paths.push(format!("{queues}/{queue}/rps_cpus"));
            }
        }
        entries.extend(paths.into_iter().filter_map(|path| {
            let text = machine.tree.read(&path).ok()?;
            Some((path, text.trim().to_owned()))
        }));
        Ok(())
    }

    #[cfg(any(test, feature = "fake"))]
    fn example(host: &crate::settings::fake::FakeHost) -> crate::settings::ChangeOf<Self> {
        let path = "/proc/sys/net/core/netdev_budget";
        host.writable_file(path, "300\n");
        crate::settings::ChangeOf {
            setting: Self::new(&host.machine(), path, Form::Text),
            old: "300".into(),
            new: "64".into(),
        }
    }
}
