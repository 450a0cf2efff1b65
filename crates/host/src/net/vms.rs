//! Running VMs: their monitor by name, and their taps.

use std::collections::BTreeSet;

use crate::discover;
use crate::error::HostError;
use crate::machine::{Machine, Thread};

use super::profile::{VmProfile, at};

/// A running VM of the profile.
pub(super) struct Running<'p> {
    pub profile: &'p VmProfile,
    pub vm: discover::Vm,
    pub taps: Vec<String>,
}

/// Finds a VM; none if it does not run.
pub(super) fn find<'p>(
    machine: &Machine,
    threads: &[Thread],
    profile: &'p VmProfile,
) -> Result<Option<Running<'p>>, HostError> {
    let Some(pid) = profile
        .pid
        .or_else(|| by_name(machine, threads, &profile.name))
    else {
        return Ok(None);
    };
    let vm = discover::vm(machine, threads, pid)?;
    if let Some(absent) = profile
        .rt_vcpus
        .iter()
        .find(|vcpu| !vm.vcpus.contains_key(vcpu))
    {
        let known: Vec<String> = vm.vcpus.keys().map(ToString::to_string).collect();
        return Err(HostError::BadInput {
            what: at(
                &profile.place,
                &format!("VM {} has no VCPU {absent}", vm.pid),
            ),
            fix: format!("its VCPUs are {}", known.join(", ")),
        });
    }
    let taps = taps_of(machine, pid);
    Ok(Some(Running { profile, vm, taps }))
}

/// The process whose command line names the VM as QEMU and libvirt do: `-name NAME,…` or
/// `-name guest=NAME,…`.
fn by_name(machine: &Machine, threads: &[Thread], name: &str) -> Option<u32> {
    threads
        .iter()
        .filter(|thread| !thread.is_kernel() && thread.id.tid == thread.id.pid)
        .map(|thread| thread.id.pid)
        .find(|pid| {
            let bytes = machine.tree.read_bytes(&format!("/proc/{pid}/cmdline"));
            bytes.is_ok_and(|bytes| is_named(&bytes, name))
        })
}

fn is_named(command_line: &[u8], name: &str) -> bool {
    let words: Vec<&[u8]> = command_line.split(|&byte| byte == 0).collect();
    words.windows(2).any(|pair| {
        (pair[0] == b"-name" || pair[0] == b"--name") && {
            let value = String::from_utf8_lossy(pair[1]);
            let first = value.split(',').next().unwrap_or_default();
            first.strip_prefix("guest=").unwrap_or(first) == name
        }
    })
}

/// The taps a process has open.
pub(crate) fn taps_of(machine: &Machine, pid: u32) -> Vec<String> {
    let queues = tap_queues(machine, pid);
    let taps: BTreeSet<String> = queues.into_iter().map(|(_, tap)| tap).collect();
    taps.into_iter().collect()
}

/// The descriptors by which a process has attached queues of taps, and the taps:
/// `/proc/PID/fdinfo/N` says `iff: tap0`.
pub(super) fn tap_queues(machine: &Machine, pid: u32) -> Vec<(u32, String)> {
    let directory = format!("/proc/{pid}/fdinfo");
    let names = machine.tree.list(&directory).unwrap_or_default();
    let queue_of = |name: &String| {
        let text = machine.tree.read(&format!("{directory}/{name}")).ok()?;
        let tap = text.lines().find_map(|line| line.strip_prefix("iff:"))?;
        let tap = tap.trim();
        // A queue that the guest does not use has none.
        (!tap.is_empty()).then_some((name.parse().ok()?, tap.to_owned()))
    };
    names.iter().filter_map(queue_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_monitor_is_known_by_its_name_only() {
        for (words, named) in [
            (&["qemu", "-name", "rt,debug-threads=on"][..], true),
            (&["qemu", "-name", "guest=rt,debug-threads=on"], true),
            (&["qemu", "-name", "rt"], true),
            (&["qemu", "-name", "rt2"], false),
            (&["qemu", "-append", "rt"], false),
            (&["grep", "rt"], false),
            (&["qemu", "-name"], false),
        ] {
            let line = words.join("\0") + "\0";
            assert_eq!(is_named(line.as_bytes(), "rt"), named, "{words:?}");
        }
    }
}
