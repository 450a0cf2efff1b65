//! CPU quotas (`cpu.max`): which VMs have one, and which quotas stop nothing.

use std::collections::BTreeMap;
use std::path::Path;

use super::check::{Check, check, text};
use crate::discover::{Processes, all_vms, cgroup};
use crate::parse::{self, PF_USER_WORKER};
use crate::settings::{Machine, Thread};

/// The first kernel that stops a thread as it returns to its program (`throttle_cfs_rq_work()`).
const STOPS_AT_RETURN: (u32, u32) = (6, 18);

pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    vec![of_vms(machine), without_effect(machine)]
}

/// `cpu.max` of a VM's threads, or above them. The kernel stops normal threads alone by it
/// (`throttle_cfs_rq()`).
fn of_vms(machine: &Machine) -> Check {
    let check = check(
        "scheduling.cpu-quota",
        "CPU quotas of VMs",
        "Normal threads of a VM that has used its cpu.max wait for the next period (100 ms by default): QEMU's \
         own, and VCPUs without a real-time priority.",
    );
    let threads = match machine.all_threads() {
        Ok(threads) => threads,
        Err(error) => return check.unknown(error.to_string(), ""),
    };
    // Of each file the last VM that it is for: threads and VMs share those above them.
    let mut files = BTreeMap::new();
    let vms = all_vms(machine, &Processes::of(&threads));
    for (name, vm) in &vms {
        for thread in threads.iter().filter(|thread| thread.id.pid == vm.pid) {
            for cgroup::Cgroup { path, .. } in cgroup::of_thread(machine, vm.pid, thread.id.tid) {
                let file = |directory| format!("{directory}/cpu.max");
                files.extend(directories(&path).map(|directory| (file(directory), name)));
            }
        }
    }
    let said: Vec<String> = files
        .iter()
        .filter_map(|(file, name)| Some((file, name, text(machine, file)?)))
        .filter(|(.., value)| !value.starts_with("max"))
        .map(|(file, name, value)| format!("{file} of {name}: {value}"))
        .collect();
    if said.is_empty() {
        return check.ok(format!("none of {} VMs has one", vms.len()));
    }
    check.warn(
        said.join("; "),
        "take it from an RT VM (libvirt: virsh schedinfo NAME --set vcpu_quota=-1 --set \
         emulator_quota=-1; systemd: CPUQuota=); others may keep theirs",
    )
}

/// A quota, and who has it.
struct Quota {
    value: String,
    /// The name of one of the threads.
    thread: String,
    /// Whether all of them are the kernel's workers.
    workers_alone: bool,
}

/// Quotas that count, and do not stop. Threads of the kernel never return to a program.
fn without_effect(machine: &Machine) -> Check {
    let check = check(
        "scheduling.cpu-quota-holds",
        "CPU quotas of kernel threads",
        "From Linux 6.18 on a thread that has used its cpu.max is stopped as it returns to its program. NAPI threads \
         and vhost workers never do: their quota counts, and stops nothing.",
    );
    let threads = match machine.all_threads() {
        Ok(threads) => threads,
        Err(error) => return check.unknown(error.to_string(), ""),
    };
    let release = machine.kernel_release().unwrap_or_default();
    let at_return = parse::kernel_version(&release).is_some_and(|it| it >= STOPS_AT_RETURN);
    let quotas = quotas(machine, &threads);
    let said: Vec<String> = quotas
        .iter()
        .filter_map(|(directory, quota)| {
            let counted = counted_alone(machine, directory).map(|times| {
                format!("it has run out {times} times and stopped nothing (cpu.stat)")
            });
            let alone = || {
                let why = format!(
                    "it has threads of the kernel alone, such as {}",
                    quota.thread
                );
                (at_return && quota.workers_alone).then_some(why)
            };
            let why = counted.or_else(alone)?;
            Some(format!("{directory}/cpu.max is {}: {why}", quota.value))
        })
        .collect();
    if said.is_empty() {
        return check.ok(format!("each of {} quotas stops threads", quotas.len()));
    }
    check.warn(
        said.join("; "),
        "leave a vhost worker in the cgroup of its VM's VCPUs, whose quota holds; else bound the thread by \
         SCHED_DEADLINE (chrt --deadline), or put it behind others by cpu.weight",
    )
}

/// The quotas that threads have, by the cgroup's directory.
fn quotas(machine: &Machine, threads: &[Thread]) -> BTreeMap<String, Quota> {
    let mut values: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut quotas: BTreeMap<String, Quota> = BTreeMap::new();
    for thread in threads {
        let is_worker = thread.is_kernel() || thread.flags & PF_USER_WORKER != 0;
        for cgroup::Cgroup { path, .. } in cgroup::of_thread(machine, thread.id.pid, thread.id.tid)
        {
            for directory in directories(&path) {
                let value = values.entry(directory.clone()).or_insert_with(|| {
                    let value = text(machine, &format!("{directory}/cpu.max"));
                    value.filter(|value| !value.starts_with("max"))
                });
                let Some(value) = value else { continue };
                let quota = quotas.entry(directory).or_insert_with(|| Quota {
                    value: value.clone(),
                    thread: thread.id.comm.clone(),
                    workers_alone: true,
                });
                quota.workers_alone &= is_worker;
            }
        }
    }
    quotas
}

/// How often a quota has run out, if that has never stopped a thread.
fn counted_alone(machine: &Machine, directory: &str) -> Option<u64> {
    let stat = text(machine, &format!("{directory}/cpu.stat"))?;
    let value = |name: &str| {
        let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
        let (_, value) = lines.find(|(key, _)| *key == name)?;
        value.trim().parse::<u64>().ok()
    };
    let (times, stopped_us) = (value("nr_throttled")?, value("throttled_usec")?);
    (times > 0 && stopped_us == 0).then_some(times)
}

/// The directories of a cgroup and of those above it.
fn directories(path: &str) -> impl Iterator<Item = String> {
    let above = Path::new(path).ancestors();
    above.map(|path| format!("/sys/fs/cgroup{}", path.display()))
}
