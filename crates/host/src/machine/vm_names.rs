//! Which VM somebody means: by what its monitor was told, by its systemd unit or cgroup, by number.

use std::io::ErrorKind;
use std::time::Duration;

use super::descriptors::Descriptors;
use super::printable::printable;
use super::processes::{Process, Processes};
use super::vm::{Vm, vm};
use super::{Machine, Thread, cgroup};
use crate::error::HostError;
use crate::parse::PF_EXITING;

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
}

impl std::fmt::Display for VmSelector {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pid(pid) => write!(formatter, "process {pid}"),
            Self::Name(name) => write!(formatter, "VM \"{}\"", printable(name)),
            Self::Unit(unit) => write!(formatter, "VM of unit {}", printable(unit)),
            Self::Cgroup(path) => write!(formatter, "VM of cgroup {}", printable(path)),
        }
    }
}

/// Finds a VM; none if it does not run, or has no virtual CPU yet.
///
/// A name is a claim, which any user who may start VMs can make. It is not believed of a process in
/// an ordinary user's session: `warnings` tells of those.
///
/// # Errors
/// Several VMs that it may be; or what [`vm`] says of the one.
pub fn find(
    machine: &Machine,
    processes: &Processes<'_>,
    wanted: &VmSelector,
    warnings: &mut Vec<String>,
) -> Result<Option<Vm>, HostError> {
    if let VmSelector::Pid(pid) = wanted {
        return vm(machine, processes.threads(), *pid).map(Some);
    }
    let mut found: Vec<u32> = Vec::new();
    let mut unreadable = None;
    for (pid, own) in processes.iter() {
        if !is_meant(machine, pid, own, wanted) {
            continue;
        }
        match Descriptors::of(machine, pid) {
            // Without a virtual CPU it is being made, and does not run yet: libvirt's QEMU sets its devices up in between.
            Ok(files) if files.kvm_vms.is_empty() || files.vcpus.is_empty() => {}
            Ok(_) if matches!(wanted, VmSelector::Name(_)) && is_of_a_session(machine, pid) => {
                warnings.push(format!(
                    "process {pid} says that it is {wanted}, but an ordinary user's session has \
                     started it: it is left; name it by its number or cgroup if it is the one"
                ));
            }
            Ok(_) => found.push(pid),
            // It has ended.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => unreadable = Some((pid, error)),
        }
    }
    match (found.as_slice(), unreadable) {
        ([], None) => Ok(None),
        ([], Some((pid, error))) => Err(HostError::io("list", format!("/proc/{pid}/fd"), error)),
        ([only], _) => unless_it_ends(machine, processes.threads(), *only),
        (several, _) => Err(ambiguous(machine, several, wanted)),
    }
}

/// How often an error of a VM is looked at again, and how long after: a monitor that exits loses its threads and files one by one.
const LOOKS: u32 = 5;
const APART: Duration = Duration::from_millis(20);

/// The VM of a process that was one just now; none if it is about to end.
fn unless_it_ends(
    machine: &Machine,
    threads: &[Thread],
    pid: u32,
) -> Result<Option<Vm>, HostError> {
    let mut looks = 0;
    loop {
        let found = vm(machine, threads, pid);
        looks += 1;
        if found.is_ok() || looks == LOOKS {
            return found.map(Some);
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
    }
}

/// Every VM of the host whose VCPUs can be told, with a name: what its monitor was told, or its process.
pub fn all(machine: &Machine, processes: &Processes<'_>) -> Vec<(String, Vm)> {
    let vm_of = |(pid, own): (u32, &Process<'_>)| {
        let files = Descriptors::of(machine, pid).ok()?;
        if files.kvm_vms.is_empty() {
            return None;
        }
        let found = vm(machine, processes.threads(), pid).ok()?;
        let told = claimed(machine, pid, own).last().cloned();
        let by_thread = || {
            let mut comms = own.threads.iter().map(|thread| thread.id.comm.as_str());
            let name = comms.find_map(|comm| comm.strip_prefix("vcpu")?.split_once('/'));
            name.map(|(_, name)| name.to_owned())
        };
        let name = told.or_else(by_thread);
        Some((name.unwrap_or_else(|| format!("process {pid}")), found))
    };
    processes.iter().filter_map(vm_of).collect()
}

/// Whether a process may be one of these VMs, by what one of its threads, (process, thread), and its command line and cgroup say:
/// the one process is looked at, and nothing is believed yet.
pub fn may_be(machine: &Machine, thread: (u32, u32), wanted: &[VmSelector]) -> bool {
    let threads = Vec::from_iter(machine.thread(thread.0, thread.1));
    let processes = Processes::of(&threads);
    let mut claims = processes.iter().flat_map(|(pid, own)| {
        let is_it = move |one: &&VmSelector| is_meant(machine, pid, own, one);
        wanted.iter().filter(is_it)
    });
    claims.next().is_some()
}

/// Whether a process holds a VM of KVM.
pub fn holds_a_vm(machine: &Machine, pid: u32) -> bool {
    Descriptors::of(machine, pid).is_ok_and(|files| !files.kvm_vms.is_empty())
}

fn is_meant(machine: &Machine, pid: u32, own: &Process<'_>, wanted: &VmSelector) -> bool {
    let in_cgroup = |is_it: &dyn Fn(&str) -> bool| {
        let mut paths = cgroup::of(machine, pid).into_iter();
        paths.any(|path| is_it(&path))
    };
    match wanted {
        VmSelector::Pid(number) => pid == *number,
        VmSelector::Unit(unit) => in_cgroup(&|path| cgroup::is_of_unit(path, unit)),
        VmSelector::Cgroup(above) => in_cgroup(&|path| cgroup::is_below(path, above)),
        VmSelector::Name(name) => {
            let mut comms = own.threads.iter().map(|thread| &thread.id.comm);
            comms.any(|comm| is_vcpu_of(comm, name)) || claimed(machine, pid, own).contains(name)
        }
    }
}

/// The names that a process's command line gives its VM; none of a process that has ended.
fn claimed<'p>(machine: &Machine, pid: u32, own: &'p Process<'_>) -> &'p [String] {
    own.vm_names.get_or_init(|| {
        let line = machine.tree.read_bytes(&format!("/proc/{pid}/cmdline"));
        names(&line.unwrap_or_default())
    })
}

fn is_of_a_session(machine: &Machine, pid: u32) -> bool {
    let paths = cgroup::of(machine, pid);
    paths.iter().any(|path| cgroup::is_of_ordinary_user(path))
}

fn ambiguous(machine: &Machine, pids: &[u32], wanted: &VmSelector) -> HostError {
    let one = |pid: &u32| {
        let status = machine.tree.read(&format!("/proc/{pid}/status"));
        let status = status.unwrap_or_default();
        let user = status
            .lines()
            .find_map(|line| line.strip_prefix("Uid:")?.split_ascii_whitespace().next());
        let user = user.unwrap_or("?");
        match cgroup::of(machine, *pid).pop() {
            Some(path) => format!("process {pid} of user {user} in {}", printable(&path)),
            None => format!("process {pid} of user {user}"),
        }
    };
    let all: Vec<String> = pids.iter().map(one).collect();
    HostError::BadInput {
        what: format!("{wanted} may be any of: {}", all.join(", ")),
        fix: "stop the one that is not meant, or name the VM by its number, unit or cgroup".into(),
    }
}

/// Whether a thread is a VCPU of the VM that `steadyvm up` calls `name`: `vcpu1/NAME`, which Linux
/// cuts after 15 bytes.
fn is_vcpu_of(comm: &str, name: &str) -> bool {
    let Some((role, cut)) = comm.split_once('/') else {
        return false;
    };
    let number = role.strip_prefix("vcpu").map(str::parse::<u32>);
    let is_cut = comm.len() == 15;
    matches!(number, Some(Ok(_))) && (cut == name || is_cut && name.starts_with(cut))
}

/// The names that a monitor's command line gives its VM.
fn names(command_line: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(command_line);
    let words: Vec<&str> = text.split('\0').collect();
    let mut names = Vec::new();
    for pair in words.windows(2) {
        match pair[0] {
            "-name" | "--name" => names.extend(guest_name(pair[1])),
            "-id" | "--id" => names.push(pair[1].to_owned()),
            _ => {}
        }
    }
    let by_sign = words.iter().filter_map(|word| word.strip_prefix("--id="));
    names.extend(by_sign.map(str::to_owned));
    names
}

/// The guest's name in QEMU's `-name [guest=]NAME[,KEY=VALUE]...`, keys in any order, the last of
/// several. A comma in a value is written twice (`get_opt_value()`).
fn guest_name(value: &str) -> Option<String> {
    let mut options = vec![String::new()];
    let mut rest = value.chars().peekable();
    while let Some(character) = rest.next() {
        if character == ',' && rest.next_if_eq(&',').is_none() {
            options.push(String::new());
        } else if let Some(last) = options.last_mut() {
            last.push(character);
        }
    }
    let mut guests =
        options
            .iter()
            .enumerate()
            .filter_map(|(place, option)| match option.split_once('=') {
                Some((key, value)) => (key == "guest").then(|| value.to_owned()),
                // Only the first may do without a key.
                None => (place == 0).then(|| option.clone()),
            });
    guests.next_back()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_on_command_lines() {
        for (words, expected) in [
            (&["qemu", "-name", "rt,debug-threads=on"][..], &["rt"][..]),
            (&["qemu", "-name", "guest=rt,debug-threads=on"], &["rt"]),
            (&["qemu", "-name", "debug-threads=on,guest=rt"], &["rt"]),
            (&["qemu", "-name", "guest=a,guest=rt"], &["rt"]),
            (&["qemu", "-name", "a,,b,process=x"], &["a,b"]),
            (&["qemu", "-name", "guest=a,,,,b"], &["a,,b"]),
            (&["qemu", "-name", "process=rt"], &[]),
            (&["kvm", "-id", "100", "-name", "rt"], &["100", "rt"]),
            (&["firecracker", "--id=rt"], &["rt"]),
            (&["qemu", "-append", "rt"], &[]),
            (&["qemu", "-name"], &[]),
        ] {
            // As the kernel gives it: each word ends with a zero.
            let line = words.join("\0");
            assert_eq!(names(line.as_bytes()), expected, "{words:?}");
        }
    }

    #[test]
    fn vcpus_of_steadyvm() {
        assert!(is_vcpu_of("vcpu0/rt", "rt"));
        assert!(!is_vcpu_of("vcpu0/rt", "rt2"));
        assert!(!is_vcpu_of("disk0/rt", "rt"));
        assert!(is_vcpu_of("vcpu0/a-longer-", "a-longer-name"));
        assert!(!is_vcpu_of("vcpu0/a-longer", "a-longer-name"));
    }

    proptest! {
        /// Whatever a VM is called, QEMU's own way of writing it is read back.
        #[test]
        fn a_name_with_any_commas(name in "[a-z,= ]{1,12}", first in any::<bool>()) {
            let written = format!("guest={}", name.replace(',', ",,"));
            let value = if first {
                format!("{written},debug-threads=on")
            } else {
                format!("debug-threads=on,{written}")
            };
            prop_assert_eq!(guest_name(&value), Some(name));
        }

        #[test]
        fn no_command_line_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = names(&bytes);
        }
    }
}
