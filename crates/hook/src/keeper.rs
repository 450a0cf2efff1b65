//! What hooks do, whoever calls them: admit and describe a VM, put its budget in force, forget it.
//!
//! A VM's file in /run/steadyvm.d counts while the process lives that it names: the VM's monitor, or before that who
//! starts it. Files of others are removed before a VM is refused for want of room: after a crash, a start that failed
//! and a migration nobody tells of their end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use steadyvm_fault::At;
use steadyvm_host::{CpuSet, Machine};
use steadyvm_site::peers::{self, Actor};
use steadyvm_site::{Control, DropIn, Site, Source};

use super::admission;
use super::description::{self, Description, Held};
use super::directory::{Directory, has};
use super::holder::{Holder, was_told};
use super::interface::{Interface, shown};
use crate::error::Result;
use crate::{Say, Urgency};

/// Where a host keeps what hooks read and write.
#[derive(Debug, Clone)]
pub struct Places {
    /// The owner's file.
    pub file: PathBuf,
    descriptions: PathBuf,
    state: PathBuf,
    libvirt: PathBuf,
    proxmox: PathBuf,
    /// Proxmox VE's configurations of VMs.
    pub configurations: PathBuf,
}

impl Places {
    /// Those of a host whose files are below a directory.
    pub fn below(root: &Path) -> Self {
        Self {
            file: root.join("etc/steadyvm.toml"),
            descriptions: root.join("run/steadyvm.d"),
            state: root.join("run/steadyvm/host"),
            libvirt: root.join("run/libvirt/qemu"),
            proxmox: root.join("run/qemu-server"),
            configurations: root.join("etc/pve/qemu-server"),
        }
    }
}

/// Who started a VM, and what it calls it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Vm {
    Libvirt { uuid: String, name: String },
    Proxmox { number: u32 },
}

/// A VM's budget, and the CPUs that it may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    pub interface: Interface,
    pub cpus: Option<CpuSet>,
}

impl Vm {
    fn file(&self) -> String {
        match self {
            Self::Libvirt { uuid, .. } => format!("libvirt-{uuid}.toml"),
            Self::Proxmox { number } => format!("proxmox-{number}.toml"),
        }
    }

    /// The VM of one of our files; none of others'.
    fn of_file(file: &str, name: String) -> Option<Self> {
        let stem = file.strip_suffix(".toml")?;
        if let Some(uuid) = stem.strip_prefix("libvirt-") {
            let uuid = uuid.to_owned();
            return Some(Self::Libvirt { uuid, name });
        }
        let number = stem.strip_prefix("proxmox-")?.parse().ok()?;
        Some(Self::Proxmox { number })
    }

    /// What its monitor is told, by which it is found.
    fn name(&self) -> String {
        match self {
            Self::Libvirt { name, .. } => name.clone(),
            Self::Proxmox { number } => number.to_string(),
        }
    }

    /// The unit that its monitor runs in.
    fn unit(&self, monitor: Option<Holder>) -> Option<String> {
        match self {
            Self::Libvirt { .. } => {
                let groups = fs::read_to_string(format!("/proc/{}/cgroup", monitor?.pid)).ok()?;
                let mut parts = groups.lines().flat_map(|line| line.split('/'));
                let is_ours = |part: &&str| {
                    part.starts_with("machine-qemu") && part.strip_suffix(".scope").is_some()
                };
                parts.find(is_ours).map(str::to_owned)
            }
            Self::Proxmox { number } => Some(format!("{number}.scope")),
        }
    }
}

/// A hook's call.
pub struct Keeper {
    places: Places,
    machine: Machine,
    deadline: Instant,
    say: Say,
}

impl Keeper {
    /// A call that has to end before the deadline.
    pub fn new(places: Places, deadline: Instant, say: Say) -> Self {
        Self {
            places,
            machine: Machine::real(),
            deadline,
            say,
        }
    }

    /// Where the host keeps its files.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Tells something.
    pub fn say(&self, urgency: Urgency, text: &str) {
        (self.say)(urgency, text);
    }

    fn lock(&self) -> Result<Directory> {
        Directory::lock(&self.places.descriptions, self.deadline)
    }

    /// Before a VM starts: admits and describes it.
    ///
    /// # Errors
    /// Why it may not start here.
    pub fn prepare(&self, vm: &Vm, wish: &Wish) -> Result<()> {
        let directory = self.lock()?;
        self.remove_those_that_are_gone(&directory)?;
        // Who starts a VM anew knows that it does not run.
        directory.remove(&vm.file())?;
        let held = Held {
            process: None,
            prepared_by: Holder::caller(&self.machine),
        };
        let text = self.described(vm, wish, held)?;
        let to_come = DropIn::to_come(self.places.descriptions.join(vm.file()), &text);
        admission::admit(&self.places.file, &vm.name(), to_come)?;
        directory.replace(&vm.file(), &text)
    }

    /// A VM runs: it is described by its process, and its budget is put in force.
    ///
    /// # Errors
    /// What could not be done.
    pub fn started(&self, vm: &Vm, wish: Option<&Wish>) -> Result<()> {
        if let Some(wish) = wish {
            let directory = self.lock()?;
            let process = self.monitor(vm);
            if process.is_none() {
                let pid_file = self.pid_file(vm);
                self.say(
                    Urgency::Warning,
                    &format!(
                        "no process of VM {} in {}: its file is kept while its starter lives",
                        shown(&vm.name()),
                        pid_file.display()
                    ),
                );
            }
            let held = Held {
                process,
                prepared_by: (process.is_none())
                    .then(|| Holder::caller(&self.machine))
                    .flatten(),
            };
            directory.replace(&vm.file(), &self.described(vm, wish, held)?)?;
        }
        self.apply(Some(vm))
    }

    /// A VM has ended, or is elsewhere: its file is removed.
    ///
    /// # Errors
    /// What could not be done.
    pub fn forget(&self, vm: &Vm) -> Result<()> {
        if has(&self.places.descriptions, &vm.file()) {
            self.lock()?.remove(&vm.file())?;
        }
        Ok(())
    }

    /// Brings the host up to date, as `steadyvm apply` does, and says what went wrong with it.
    ///
    /// # Errors
    /// What was not done.
    pub fn apply(&self, own: Option<&Vm>) -> Result<()> {
        let Places { file, state, .. } = &self.places;
        if !file.exists() {
            return Ok(());
        }
        peers::ask(state, Actor::Keeper)?;
        let left = self.deadline.saturating_duration_since(Instant::now());
        let control = Control {
            directory: state.clone(),
            patience: left,
        };
        let done = Site::read(&Source::of(file))?.reconcile(&control.open_as(Actor::Keeper))?;
        let own = own.map(|vm| format!("VM \"{}\"", vm.name()));
        let is_own = |text: &str| own.as_ref().is_some_and(|own| text.contains(own));
        for fault in done.faults() {
            self.say(Urgency::Error, &fault.sentence());
        }
        for warning in done.warnings() {
            // VMs that the file names and that are off are no news.
            if is_own(warning) || !warning.contains("does not run") {
                self.say(Urgency::Warning, warning);
            }
        }
        Ok(())
    }

    fn described(&self, vm: &Vm, wish: &Wish, held: Held) -> Result<String> {
        let cpus = admission::cpus_for(&self.places.file, &self.machine, wish.cpus.as_ref())?;
        let (name, unit) = (vm.name(), vm.unit(held.process));
        let description = Description {
            name: &name,
            unit: unit.as_deref(),
            interface: wish.interface,
            cpus: cpus.as_ref(),
            held,
        };
        Ok(description.text())
    }

    fn pid_file(&self, vm: &Vm) -> PathBuf {
        match vm {
            Vm::Libvirt { name, .. } => self.places.libvirt.join(format!("{name}.pid")),
            Vm::Proxmox { number } => self.places.proxmox.join(format!("{number}.pid")),
        }
    }

    /// The VM's monitor, if it runs. A file may be left of one that has ended, whose number is another's now.
    fn monitor(&self, vm: &Vm) -> Option<Holder> {
        let text = fs::read_to_string(self.pid_file(vm)).ok()?;
        let pid = text.trim().parse().ok()?;
        let is_it = match vm {
            Vm::Libvirt { uuid, .. } => was_told(pid, "-uuid", uuid),
            Vm::Proxmox { number } => was_told(pid, "-id", &number.to_string()),
        };
        is_it.then(|| Holder::of(&self.machine, pid)).flatten()
    }

    fn remove_those_that_are_gone(&self, directory: &Directory) -> Result<()> {
        for file in directory.names()? {
            // What cannot be read is left to whoever reads all of them, which names it.
            let text = directory.read(&file).ok().flatten().unwrap_or_default();
            let Some(read) = description::read(&text) else {
                continue;
            };
            let Some(vm) = Vm::of_file(&file, read.name) else {
                continue;
            };
            let Held {
                process,
                prepared_by,
            } = read.held;
            let lives = |holder: Option<Holder>| holder.is_some_and(|it| it.lives(&self.machine));
            let is_there = match process {
                Some(_) => lives(process),
                None => lives(prepared_by) || self.monitor(&vm).is_some(),
            };
            if !is_there {
                directory
                    .remove(&file)
                    .doing(format!("the VM of {file} is gone"))?;
            }
        }
        Ok(())
    }
}
