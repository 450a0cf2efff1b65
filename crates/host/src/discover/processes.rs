//! The processes of a host that are no kernel's, as one look at its threads found them.
//!
//! What is asked of a process is read once for all questions, and what they ask for is kept in maps: a host may have as many
//! VMs as processes, and each of them is looked for among all.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::cgroup::{self, Cgroup};
use super::claims::{self, CutName};
use super::descriptors::Descriptors;
use super::makers::MakersOfVms;
use super::owner::{self, FirstNamespaces, Passwd};
use crate::settings::{Machine, Thread};

/// The processes of one look.
pub struct Processes<'t> {
    threads: &'t [Thread],
    of_the_kernel: Vec<&'t Thread>,
    own: BTreeMap<u32, Process<'t>>,
    passwd: OnceCell<Passwd>,
    first_namespaces: OnceCell<FirstNamespaces>,
    claims: OnceCell<Claims>,
    places: OnceCell<Places>,
    makers_of_vms: OnceCell<MakersOfVms>,
    running: OnceCell<Vec<(String, u32)>>,
}

/// A process, and what was read of it.
#[derive(Default)]
pub(super) struct Process<'t> {
    pub threads: Vec<&'t Thread>,
    vm_names: OnceCell<Vec<String>>,
    cgroups: OnceCell<Vec<Cgroup>>,
    files: OnceCell<io::Result<Descriptors>>,
    users: OnceCell<Vec<u32>>,
    is_contained: OnceCell<bool>,
}

/// Which processes claim which name.
#[derive(Default)]
pub(super) struct Claims {
    /// By what their command lines say.
    pub whole: BTreeMap<String, BTreeSet<u32>>,
    /// By the names of threads of `steadyvm up`, which may be cut.
    pub cut: BTreeMap<CutName, BTreeSet<u32>>,
}

/// Which processes are where. Keys have systemd's escapes read; the names as they are stand beside the processes.
#[derive(Default)]
pub(super) struct Places {
    /// By unit; false: not one of the system's systemd.
    pub units: BTreeMap<String, BTreeSet<(String, bool, u32)>>,
    /// By cgroup, theirs and all above.
    pub cgroups: BTreeMap<String, BTreeSet<(String, u32)>>,
}

impl<'t> Processes<'t> {
    /// Of all threads of a host.
    pub fn of(threads: &'t [Thread]) -> Self {
        let mut own: BTreeMap<u32, Process<'t>> = BTreeMap::new();
        let mut of_the_kernel = Vec::new();
        for thread in threads {
            if thread.is_kernel() {
                of_the_kernel.push(thread);
            } else {
                own.entry(thread.id.pid).or_default().threads.push(thread);
            }
        }
        Self {
            threads,
            of_the_kernel,
            own,
            passwd: OnceCell::new(),
            first_namespaces: OnceCell::new(),
            claims: OnceCell::new(),
            places: OnceCell::new(),
            makers_of_vms: OnceCell::new(),
            running: OnceCell::new(),
        }
    }

    /// All threads of the host, the kernel's too.
    pub fn threads(&self) -> &'t [Thread] {
        self.threads
    }

    pub(super) fn threads_of_the_kernel(&self) -> &[&'t Thread] {
        &self.of_the_kernel
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Process<'t>)> {
        self.own.iter().map(|(pid, process)| (*pid, process))
    }

    pub(super) fn get(&self, pid: u32) -> Option<&Process<'t>> {
        self.own.get(&pid)
    }

    pub(super) fn passwd(&self, machine: &Machine) -> &Passwd {
        self.passwd.get_or_init(|| Passwd::read(machine))
    }

    /// Whether a process is in a container.
    pub(super) fn is_contained(&self, machine: &Machine, pid: u32) -> bool {
        let first = self
            .first_namespaces
            .get_or_init(|| FirstNamespaces::read(machine));
        self.get(pid).is_none_or(|process| {
            let is_contained = || first.exclude(machine, pid);
            *process.is_contained.get_or_init(is_contained)
        })
    }

    /// What a process has open; of one that this look does not have, as it is now.
    pub(super) fn files(&self, machine: &Machine, pid: u32) -> io::Result<Descriptors> {
        let Some(process) = self.get(pid) else {
            return Descriptors::of(machine, pid);
        };
        match process.files(machine, pid) {
            Ok(files) => Ok(files.clone()),
            Err(error) => Err(error
                .raw_os_error()
                .map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)),
        }
    }

    pub(super) fn makers_of_vms(&self, machine: &Machine) -> &MakersOfVms {
        self.makers_of_vms
            .get_or_init(|| MakersOfVms::read(machine))
    }

    pub(super) fn claims(&self, machine: &Machine) -> &Claims {
        self.claims.get_or_init(|| {
            let mut claims = Claims::default();
            for (pid, process) in self.iter() {
                for name in process.vm_names(machine, pid) {
                    claims.whole.entry(name.clone()).or_default().insert(pid);
                }
                for name in process.cut_names() {
                    claims.cut.entry(name).or_default().insert(pid);
                }
            }
            claims
        })
    }

    pub(super) fn places(&self, machine: &Machine) -> &Places {
        self.places.get_or_init(|| {
            let mut places = Places::default();
            for (pid, process) in self.iter() {
                for group in process.cgroups(machine, pid) {
                    for (unit, is_the_systems) in group.units() {
                        let here = places.units.entry(cgroup::unescaped(unit)).or_default();
                        here.insert((unit.to_owned(), is_the_systems, pid));
                    }
                    for path in group.ancestors() {
                        let here = places.cgroups.entry(cgroup::unescaped(path)).or_default();
                        here.insert((path.to_owned(), pid));
                    }
                }
            }
            places
        })
    }

    /// The VMs that run, by what they are called.
    pub(super) fn running(&self, read: impl FnOnce() -> Vec<(String, u32)>) -> &[(String, u32)] {
        self.running.get_or_init(read)
    }
}

impl Process<'_> {
    /// What its command line calls a VM; nothing if it has ended.
    pub fn vm_names(&self, machine: &Machine, pid: u32) -> &[String] {
        self.vm_names.get_or_init(|| {
            let line = machine.tree.read_bytes(&format!("/proc/{pid}/cmdline"));
            claims::names(&line.unwrap_or_default())
        })
    }

    /// What its threads call a VM of `steadyvm up`.
    pub fn cut_names(&self) -> BTreeSet<CutName> {
        let comms = self.threads.iter().map(|thread| &thread.id.comm);
        comms.filter_map(|comm| CutName::of_vcpu(comm)).collect()
    }

    pub fn cgroups(&self, machine: &Machine, pid: u32) -> &[Cgroup] {
        self.cgroups.get_or_init(|| cgroup::of(machine, pid))
    }

    pub fn files(&self, machine: &Machine, pid: u32) -> &io::Result<Descriptors> {
        self.files.get_or_init(|| Descriptors::of(machine, pid))
    }

    pub fn users(&self, machine: &Machine, pid: u32) -> &[u32] {
        self.users.get_or_init(|| owner::users(machine, pid))
    }
}
