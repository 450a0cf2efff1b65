//! From a method and what it is for to a profile: a method is a preset, nothing more.

use std::collections::BTreeSet;

use super::levels;
use crate::discover;
use crate::error::HostError;
use crate::method::{Switches, Target};
use crate::profile::{Profile, TunedProfile};
use crate::settings::Machine;

/// The profile of a method, if the host can hold it and the target makes sense. Reads only.
pub(crate) fn profile(
    machine: &Machine,
    target: &Target,
    method: Switches,
) -> Result<Profile, HostError> {
    if method.is_vanilla() {
        return Ok(Profile::default());
    }
    target.priorities.check()?;
    check_named(target, method)?;
    need_preempt_rt(machine, method)?;
    if method.tuned {
        let mut profile = Profile::of_tuned(target, TunedProfile::of(machine)?);
        profile.identify_processes(machine);
        return Ok(profile);
    }
    let mut profile = Profile::of_target(target);
    profile.identify_processes(machine);
    if method.profile {
        let mut others = nics_with_interrupts(machine)?;
        others.retain(|name| !target.rt_nics.contains(name));
        profile.put_below(&others);
    }
    if method.levels {
        let without = Switches {
            levels: false,
            ..method
        };
        // Asked for once more by the profile, which does not know whose it is.
        let from = levels_from(target);
        let (asker, instead) = (format!("method {method}"), format!("use method {without}"));
        levels::steps(machine, from, &asker, &instead)?;
        profile.softirqs.levels_from = Some(from);
    }
    if method.dedicated {
        profile.dedicated_cpu = Some(choose_cpu(machine, target)?);
    }
    Ok(profile)
}

/// The priority from which a thread's softirqs are on the RT level: the lowest of the path, whose
/// other threads shall not do others' softirqs either.
const fn levels_from(target: &Target) -> u32 {
    target.priorities.vcpu
}

fn check_named(target: &Target, method: Switches) -> Result<(), HostError> {
    let missing = if target.rt_nics.is_empty() && !method.tuned {
        "an RT NIC (--nic eth0)"
    } else if target.rt_vms.is_empty() && target.rt_processes.is_empty() {
        "an RT VM (--vm NAME:VCPU) or an RT process (--process PID)"
    } else {
        return check_named_once(target);
    };
    Err(HostError::BadInput {
        what: format!("method {method} needs a target"),
        fix: format!("name {missing}"),
    })
}

fn check_named_once(target: &Target) -> Result<(), HostError> {
    let vms: BTreeSet<u32> = target.rt_vms.iter().map(|vm| vm.pid).collect();
    let pids: BTreeSet<u32> = target.rt_processes.iter().copied().collect();
    let Some(pid) = pids.intersection(&vms).next() else {
        return Ok(());
    };
    Err(HostError::BadInput {
        what: format!("process {pid} is named as an RT VM and as an RT process"),
        fix: "name it once: with --vm if it is the monitor of a VM".into(),
    })
}

fn need_preempt_rt(machine: &Machine, method: Switches) -> Result<(), HostError> {
    let (is_rt, found) = machine.preempt_rt();
    if is_rt || !method.needs_preempt_rt() {
        return Ok(());
    }
    Err(HostError::Unsupported {
        missing: format!("method {method} needs a PREEMPT_RT kernel ({found})"),
        fix: "boot one (on Debian: apt install linux-image-rt-amd64), or use method vanilla".into(),
    })
}

/// The CPU to dedicate.
fn choose_cpu(machine: &Machine, target: &Target) -> Result<usize, HostError> {
    let online = machine.online()?;
    if online.len() < 2 {
        return Err(HostError::Unsupported {
            missing: format!("method dedicated needs two CPUs, only {online} is online"),
            fix: "use method preempt-rt".into(),
        });
    }
    let cpu = target.dedicated_cpu.or(online.last()).unwrap_or_default();
    if online.contains(cpu) {
        return Ok(cpu);
    }
    Err(HostError::BadInput {
        what: format!("CPU {cpu} is not online"),
        fix: format!("name one of {online}"),
    })
}

/// Every NIC that has interrupts.
fn nics_with_interrupts(machine: &Machine) -> Result<Vec<String>, HostError> {
    let threads = machine.all_threads()?;
    let mut nics = Vec::new();
    for name in machine.tree.list("/sys/class/net").unwrap_or_default() {
        // One that went away meanwhile is none.
        if discover::nic(machine, &threads, &name).is_ok_and(|nic| !nic.irqs.is_empty()) {
            nics.push(name);
        }
    }
    Ok(nics)
}
