//! Which VM somebody means: by what its monitor was told, by its systemd unit or cgroup, by number.
//!
//! Names and units are believed of processes of root, and of users that the file allows ([`super::owner`]); a cgroup is
//! whatever its owner puts there, and says so.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::time::Duration;

use super::cgroup::unescaped;
use super::claims::CutName;
use super::container;
use super::descriptors::Descriptors;
use super::doubt::{self, Doubt, MOST_NAMED, Sought, place_of};
use super::processes::{Process, Processes};
use super::vm::{Vm, vm, vm_of};
use crate::error::HostError;
use crate::parse::{self, PF_EXITING};
use crate::printable::printable;
use crate::settings::{Machine, Thread};
use steadyvm_config::User;

/// A VM as somebody names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VmSelector {
    /// The process of its monitor.
    Pid(u32),
    /// What its monitor was told: QEMU's `-name` (libvirt's domain), Proxmox VE's `-id`,
    /// Firecracker's `--id`, the `name` of `steadyvm up`.
    Name(String),
    /// A unit of the system's systemd, such as libvirt's `machine-qemu\x2d1\x2drt.scope`.
    Unit(String),
    /// A cgroup, as `/proc/PID/cgroup` gives it, or one above.
    Cgroup(String),
    /// No VM: the threads of this name of a process in a cgroup.
    Threads {
        /// As `Cgroup` has it.
        cgroup: String,
        /// Their name, or with a `*` at its end the beginning of it.
        name: String,
    },
}

impl std::fmt::Display for VmSelector {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pid(pid) => write!(formatter, "process {pid}"),
            Self::Name(name) => write!(formatter, "VM \"{}\"", printable(name)),
            Self::Unit(unit) => write!(formatter, "VM of unit {}", printable(unit)),
            Self::Cgroup(path) => write!(formatter, "VM of cgroup {}", printable(path)),
            Self::Threads { cgroup, name } => write!(
                formatter,
                "threads \"{}\" of cgroup {}",
                printable(name),
                printable(cgroup)
            ),
        }
    }
}

/// The most VMs that a message lists.
const MOST_LISTED: usize = 8;

/// Finds a VM; none if it does not run, or has no virtual CPU yet.
///
/// `users` are those of the file who are believed that a process of theirs is this VM, besides root; none: those that
/// libvirt's monitors run as. Who is not believed makes nothing ambiguous: `warnings` tells of them.
///
/// # Errors
/// Several VMs that it may be; or what [`vm`] says of the one.
pub fn find(
    machine: &Machine,
    processes: &Processes<'_>,
    wanted: &VmSelector,
    users: &[User],
    warnings: &mut Vec<String>,
) -> Result<Option<Vm>, HostError> {
    if let VmSelector::Pid(pid) = wanted {
        return vm_of(machine, processes, *pid).map(Some);
    }
    let believed = processes.passwd(machine).believed(users);
    if let VmSelector::Threads { name, .. } = wanted {
        let all = candidates(machine, processes, wanted, users, &believed);
        let (found, doubted) = of_threads(processes, all, name);
        let told = doubt::tell(machine, processes, Sought::Vm, wanted, &believed, &doubted);
        warnings.extend(told);
        return Ok(found);
    }
    let mut found: Vec<u32> = Vec::new();
    let mut doubted = Vec::new();
    let mut unreadable = None;
    for (pid, doubt) in candidates(machine, processes, wanted, users, &believed) {
        let Some(process) = processes.get(pid) else {
            continue;
        };
        if doubt.is_some() && doubted.len() > MOST_NAMED {
            continue;
        }
        match process.files(machine, pid) {
            // Without a virtual CPU it is being made, and does not run yet: libvirt's QEMU sets its devices up in between.
            Ok(files) if files.kvm_vms.is_empty() || files.vcpus.is_empty() => {}
            Ok(_) => match doubt {
                Some(doubt) => doubted.push((pid, doubt)),
                None => found.push(pid),
            },
            // It has ended, or would not be taken.
            Err(error) if error.kind() == ErrorKind::NotFound || doubt.is_some() => {}
            Err(error) => unreadable = Some((pid, error.kind())),
        }
    }
    warnings.extend(doubt::tell(
        machine,
        processes,
        Sought::Vm,
        wanted,
        &believed,
        &doubted,
    ));
    match (found.as_slice(), unreadable) {
        ([], None) => Ok(None),
        ([], Some((pid, error))) => Err(HostError::io(
            "list",
            format!("/proc/{pid}/fd"),
            error.into(),
        )),
        ([only], _) => unless_it_ends(machine, processes, *only),
        (several, _) => Err(ambiguous(machine, processes, several, wanted)),
    }
}

/// The process with threads of this name that began first, and those that are not taken for it.
fn of_threads(
    processes: &Processes<'_>,
    all: Vec<(u32, Option<Doubt>)>,
    name: &str,
) -> (Option<Vm>, Vec<(u32, Doubt)>) {
    let mut first: Option<((u64, u32), Vm)> = None;
    let mut doubted = Vec::new();
    for (pid, doubt) in all {
        let Some(threads) = processes.get(pid).map(|process| &process.threads) else {
            continue;
        };
        let Some(vm) = container::of(pid, threads, name) else {
            continue;
        };
        if let Some(doubt) = doubt {
            doubted.push((pid, doubt));
            continue;
        }
        let began = threads.iter().map(|it| (it.id.start_time, it.id.tid)).min();
        let began = began.unwrap_or_default();
        if first.as_ref().is_none_or(|(other, _)| began < *other) {
            first = Some((began, vm));
        }
    }
    (first.map(|(_, vm)| vm), doubted)
}

/// Whether a process may be one of these VMs, each with the users who are believed, as [`find`] takes them: by what one of its threads,
/// (process, thread), and its command line, user and cgroup say. Only the one process is looked at.
pub fn may_be(machine: &Machine, thread: (u32, u32), wanted: &[(VmSelector, Vec<User>)]) -> bool {
    let threads = Vec::from_iter(machine.thread(thread.0, thread.1));
    let processes = Processes::of(&threads);
    wanted.iter().any(|(selector, users)| {
        if let VmSelector::Threads { name, .. } = selector
            && !threads
                .iter()
                .any(|it| container::is_named(&it.id.comm, name))
        {
            return false;
        }
        let believed = processes.passwd(machine).believed(users);
        let all = candidates(machine, &processes, selector, users, &believed);
        all.iter()
            .any(|(pid, doubt)| *pid == thread.0 && doubt.is_none())
    })
}

/// Whether a process holds a VM of KVM.
pub fn holds_a_vm(machine: &Machine, pid: u32) -> bool {
    Descriptors::of(machine, pid).is_ok_and(|files| !files.kvm_vms.is_empty())
}

/// The processes that may be meant, each with the reason why it is not, if there is one.
fn candidates(
    machine: &Machine,
    processes: &Processes<'_>,
    wanted: &VmSelector,
    users: &[User],
    believed: &[u32],
) -> Vec<(u32, Option<Doubt>)> {
    let doubt = |pid: u32| doubt::of(machine, processes, pid, believed);
    match wanted {
        VmSelector::Pid(pid) => vec![(*pid, None)],
        VmSelector::Name(name) => by_name(machine, processes, name, doubt),
        VmSelector::Unit(unit) => doubt::in_unit(machine, processes, unit, believed),
        VmSelector::Cgroup(path) | VmSelector::Threads { cgroup: path, .. } => {
            let path = path.trim_end_matches('/');
            let places = processes.places(machine);
            let all = places.cgroups.get(&unescaped(path));
            let all: Vec<_> = all.into_iter().flatten().collect();
            let has_exact = all.iter().any(|(name, _)| name == path);
            let meant = all
                .iter()
                .filter(|(name, _)| !has_exact || name == path)
                .map(|(_, pid)| *pid);
            let pids: BTreeSet<u32> = meant.collect();
            // Who names a cgroup knows who is in it, in a container or not; a user is a condition if the file has one.
            let user = |pid| doubt(pid).filter(|it| matches!(it, Doubt::User(_)));
            let user = |pid| (!users.is_empty()).then(|| user(pid)).flatten();
            pids.into_iter().map(|pid| (pid, user(pid))).collect()
        }
    }
}

/// By command lines, and by what `steadyvm up` has open. Only of those without that do the names of threads count, which
/// Linux cuts, if one process alone may be meant.
fn by_name(
    machine: &Machine,
    processes: &Processes<'_>,
    name: &str,
    doubt: impl Fn(u32) -> Option<Doubt>,
) -> Vec<(u32, Option<Doubt>)> {
    let claims = processes.claims(machine);
    let mut whole: BTreeSet<u32> = claims.whole.get(name).cloned().unwrap_or_default();
    let mut cut = BTreeSet::new();
    for start in CutName::all_for(name) {
        for &pid in claims.cut.get(&start).into_iter().flatten() {
            let Some(process) = processes.get(pid) else {
                continue;
            };
            // Of those who are not believed no descriptors are read for it: they may have many.
            let told = if doubt(pid).is_none() {
                let files = process.files(machine, pid).as_ref().ok();
                files.and_then(|files| files.vm_name.as_deref())
            } else {
                None
            };
            match told {
                Some(told) if told != name => {}
                None if start.is_cut => drop(cut.insert(pid)),
                _ => drop(whole.insert(pid)),
            }
        }
    }
    let mut all: Vec<_> = whole.iter().map(|&pid| (pid, doubt(pid))).collect();
    let is_told = all.iter().any(|(_, doubt)| doubt.is_none());
    let mut cut: Vec<_> = (cut.difference(&whole).copied())
        .map(|pid| (pid, doubt(pid)))
        .collect();
    let believed = cut.iter().filter(|(_, doubt)| doubt.is_none()).count();
    if is_told {
        return all;
    }
    if believed > 1 {
        for (_, doubt) in &mut cut {
            doubt.get_or_insert(Doubt::Cut);
        }
    }
    all.append(&mut cut);
    all
}

/// What is said of a VM that was not found: what was sought, and which VMs run.
pub fn absent(machine: &Machine, processes: &Processes<'_>, wanted: &VmSelector) -> String {
    let sought = match wanted {
        VmSelector::Pid(pid) => format!("process {pid} has ended"),
        VmSelector::Name(name) => format!("no VM is called \"{}\"", printable(name)),
        VmSelector::Unit(unit) => format!("no VM is in unit {}", printable(unit)),
        VmSelector::Cgroup(path) => format!("no VM is in cgroup {}", printable(path)),
        VmSelector::Threads { cgroup, name } => {
            return format!(
                "no thread is called \"{}\" in cgroup {}",
                printable(name),
                printable(cgroup)
            );
        }
    };
    let running = running(machine, processes);
    if running.is_empty() {
        return format!("{sought}; no VM runs that KVM knows of");
    }
    let is_by_place = matches!(wanted, VmSelector::Unit(_) | VmSelector::Cgroup(_));
    let one = |(name, pid): &(String, u32)| {
        let place = is_by_place.then(|| format!(" in {}", place_of(machine, processes, *pid)));
        let place = place.unwrap_or_default();
        format!("{} (process {pid}{place})", printable(name))
    };
    let mut listed: Vec<String> = running.iter().take(MOST_LISTED).map(one).collect();
    if let Some(more) = running.len().checked_sub(MOST_LISTED).filter(|&it| it > 0) {
        listed.push(format!("{more} more"));
    }
    format!("{sought}; these run: {}", listed.join(", "))
}

/// The VMs that run, by the descriptors of processes that look like monitors. Read once a look: it is for messages.
fn running<'p>(machine: &Machine, processes: &'p Processes<'_>) -> &'p [(String, u32)] {
    let is_vm = |pid: u32, process: &Process<'_>| {
        let has_vcpu = |thread: &&Thread| parse::vcpu_of_thread(&thread.id.comm).is_some();
        let looks_like_one =
            process.threads.iter().any(has_vcpu) || !process.vm_names(machine, pid).is_empty();
        looks_like_one
            && (process.files(machine, pid).as_ref())
                .is_ok_and(|files| !files.kvm_vms.is_empty() && !files.vcpus.is_empty())
    };
    processes.running(|| {
        let all = processes.iter();
        let vms = all.filter(|(pid, process)| is_vm(*pid, process));
        vms.map(|(pid, process)| (name_of(machine, processes, pid, process), pid))
            .collect()
    })
}

/// How often an error of a VM is looked at again, and how long after: a monitor that exits loses its threads and files one by one.
const LOOKS: u32 = 5;
const APART: Duration = Duration::from_millis(20);

/// The VM of a process that was one just now; none if it is about to end.
fn unless_it_ends(
    machine: &Machine,
    processes: &Processes<'_>,
    pid: u32,
) -> Result<Option<Vm>, HostError> {
    let mut found = vm_of(machine, processes, pid);
    for _ in 1..LOOKS {
        if found.is_ok() {
            break;
        }
        let leader = machine.thread(pid, pid);
        if leader.is_none_or(|leader| leader.flags & PF_EXITING != 0) {
            return Ok(None);
        }
        let holds_a_vm = Descriptors::of(machine, pid)
            .is_ok_and(|files| !files.kvm_vms.is_empty() && !files.vcpus.is_empty());
        if !holds_a_vm {
            return Ok(None);
        }
        machine.tree.wait(APART);
        // Anew, with all that is read of the host.
        found = vm(machine, processes.threads(), pid);
    }
    found.map(Some)
}

/// Every VM of the host whose VCPUs can be told, with a name: what its monitor was told, or its process. A name of a user
/// who is not believed has that user in it.
pub fn all(machine: &Machine, processes: &Processes<'_>) -> Vec<(String, Vm)> {
    let vm_of = |(pid, own): (u32, &Process<'_>)| {
        let files = own.files(machine, pid).as_ref().ok()?;
        if files.kvm_vms.is_empty() {
            return None;
        }
        let found = vm_of(machine, processes, pid).ok()?;
        Some((name_of(machine, processes, pid, own), found))
    };
    processes.iter().filter_map(vm_of).collect()
}

/// What a VM is called; where it is not believed without more, with the reason, so that it is not taken for another.
fn name_of(
    machine: &Machine,
    processes: &Processes<'_>,
    pid: u32,
    process: &Process<'_>,
) -> String {
    let passwd = processes.passwd(machine);
    let believed = passwd.believed(&[]);
    let other = |user: &&u32| !believed.contains(user);
    let why = match process.users(machine, pid).iter().find(other) {
        Some(user) => format!(" (user {})", passwd.describe(*user)),
        None if processes.is_contained(machine, pid) => " (in a container)".to_owned(),
        None => String::new(),
    };
    let told = process.vm_names(machine, pid).last().cloned();
    let by_file = || process.files(machine, pid).as_ref().ok()?.vm_name.clone();
    let by_thread = || process.cut_names().pop_first().map(|cut| cut.name);
    let told = told.or_else(by_file).or_else(by_thread);
    told.map_or_else(|| format!("process {pid}"), |told| format!("{told}{why}"))
}

fn ambiguous(
    machine: &Machine,
    processes: &Processes<'_>,
    pids: &[u32],
    wanted: &VmSelector,
) -> HostError {
    let passwd = processes.passwd(machine);
    let one = |pid: &u32| {
        let process = processes.get(*pid);
        let user = process.and_then(|it| it.users(machine, *pid).first());
        let user = user.map_or_else(|| "?".to_owned(), |user| passwd.describe(*user));
        let user = printable(&user).into_owned();
        format!(
            "process {pid} of user {user} in {}",
            place_of(machine, processes, *pid)
        )
    };
    let all: Vec<String> = pids.iter().map(one).collect();
    HostError::BadInput {
        what: format!("{wanted} may be any of: {}", all.join(", ")),
        fix: "stop the one that is not meant, or name the VM by its number, unit or cgroup".into(),
    }
}
