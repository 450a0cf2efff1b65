//! CPU quotas (`cpu.max`): which VMs have one, and which quotas stop nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use super::check::{Check, check, text};
use crate::discover::{Processes, Vm, all_vms, cgroup};
use crate::parse::{self, PF_USER_WORKER};
use crate::settings::{Machine, Thread, ThreadId};

/// The first kernel that stops a thread as it returns to its program (`throttle_cfs_rq_work()`).
const STOPS_AT_RETURN: (u32, u32) = (6, 18);

/// Long enough for a quota of the usual 100 ms to run out and to stop threads a few times: the time that they were stopped is
/// added once they go on (`unthrottle_cfs_rq()`).
const SOME_PERIODS: Duration = Duration::from_millis(500);

pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    vec![
        of_vms(machine),
        without_effect(machine),
        of_workers(machine),
    ]
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
    /// The VMs whose threads have it.
    vms: BTreeSet<String>,
}

impl Quota {
    /// The value, and whose it is.
    fn words(&self) -> String {
        if self.vms.is_empty() {
            return self.value.clone();
        }
        let vms: Vec<&str> = self.vms.iter().map(String::as_str).collect();
        format!("{} (VM {})", self.value, vms.join(", "))
    }
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
    let at_return = stops_at_return(machine);
    let quotas = quotas(machine, &threads);
    let before = counts_of(machine, quotas.keys());
    // What was stopped once may be stopped no more, since a worker was moved out.
    let has_stopped = before.values().any(Counts::has_stopped);
    let mut after = BTreeMap::new();
    if at_return && has_stopped {
        machine.tree.wait(SOME_PERIODS);
        after = counts_of(machine, quotas.keys());
    }
    let said: Vec<String> = quotas
        .iter()
        .filter_map(|(directory, quota)| {
            let counts = before.get(directory);
            let counted = counts.and_then(Counts::without_effect).map(|times| {
                format!("it has run out {times} times and stopped nothing (cpu.stat)")
            });
            let counts_on = || {
                let times = after.get(directory)?.since(counts?).without_effect()?;
                Some(format!(
                    "it runs out ({times} times in {} ms) and stops nothing now (cpu.stat)",
                    SOME_PERIODS.as_millis()
                ))
            };
            let alone = || {
                let why = format!(
                    "it has threads of the kernel alone, such as {}",
                    quota.thread
                );
                (at_return && quota.workers_alone).then_some(why)
            };
            let why = counted.or_else(counts_on).or_else(alone)?;
            Some(format!("{directory}/cpu.max is {}: {why}", quota.words()))
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

/// A vhost worker does its VM's work. A quota bounds it by itself no longer, but together with the VCPUs, which it works for.
fn of_workers(machine: &Machine) -> Check {
    let check = check(
        "scheduling.cpu-quota-workers",
        "CPU quotas of vhost workers",
        "A vhost worker copies its VM's packets. A quota of the VCPUs bounds it only if it is in the same cgroup: from \
         Linux 6.18 on what it used is taken from them. By itself a quota does not stop it there.",
    );
    let threads = match machine.all_threads() {
        Ok(threads) => threads,
        Err(error) => return check.unknown(error.to_string(), ""),
    };
    let at_return = stops_at_return(machine);
    let vms = all_vms(machine, &Processes::of(&threads));
    let mut said = Vec::new();
    let mut workers = 0;
    for (name, vm) in &vms {
        let quotas = |thread: &ThreadId| quotas_of(machine, thread.pid, thread.tid);
        let of_vcpus: BTreeSet<String> = vm.vcpus.values().flat_map(quotas).collect();
        for worker in &vm.vhost_workers {
            workers += 1;
            let own: BTreeSet<String> = quotas(worker).collect();
            let directories = |all: &BTreeSet<String>| {
                let all: Vec<&str> = all.iter().map(String::as_str).collect();
                all.join(", ")
            };
            if !own.is_disjoint(&of_vcpus) {
                continue;
            }
            if !of_vcpus.is_empty() {
                said.push(format!(
                    "{worker} of {name} is outside its VCPUs' quota, {}: its packets cost what they like",
                    directories(&of_vcpus)
                ));
            } else if at_return && !own.is_empty() {
                said.push(format!(
                    "{worker} of {name} has a quota that its VCPUs have not, {}: it does not stop it",
                    directories(&own)
                ));
            }
        }
    }
    if said.is_empty() {
        return check.ok(format!("{workers} workers of {} VMs", vms.len()));
    }
    check.warn(
        said.join("; "),
        "put a quota on the cgroup that has VCPUs and workers both (libvirt: virsh schedinfo NAME --set \
         global_quota=...; systemd: CPUQuota= of the VM's scope), or bound the worker by SCHED_DEADLINE (chrt --deadline)",
    )
}

fn stops_at_return(machine: &Machine) -> bool {
    let release = machine.kernel_release().unwrap_or_default();
    parse::kernel_version(&release).is_some_and(|it| it >= STOPS_AT_RETURN)
}

/// The directories of the cgroups with a quota that a thread is in.
fn quotas_of(machine: &Machine, pid: u32, tid: u32) -> impl Iterator<Item = String> {
    let cgroups = cgroup::of_thread(machine, pid, tid).into_iter();
    let all: Vec<String> = cgroups
        .flat_map(|it| directories(&it.path).collect::<Vec<_>>())
        .collect();
    all.into_iter().filter(move |directory| {
        let value = text(machine, &format!("{directory}/cpu.max"));
        value.is_some_and(|value| !value.starts_with("max"))
    })
}

/// The quotas that threads have, by the cgroup's directory.
fn quotas(machine: &Machine, threads: &[Thread]) -> BTreeMap<String, Quota> {
    let vms = all_vms(machine, &Processes::of(threads));
    // Before Linux 6.4 a worker is a thread of no VM's process.
    let vm_of = |thread: &ThreadId| {
        let has = |vm: &Vm| vm.pid == thread.pid || vm.vhost_workers.contains(thread);
        let found = vms.iter().find(|(_, vm)| has(vm));
        found.map(|(name, _)| name.clone())
    };
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
                    vms: BTreeSet::new(),
                });
                quota.workers_alone &= is_worker;
                quota.vms.extend(vm_of(&thread.id));
            }
        }
    }
    quotas
}

/// What `cpu.stat` counts of a quota.
#[derive(Debug, Clone, Copy)]
struct Counts {
    /// How often it ran out.
    times: u64,
    /// How long that stopped threads.
    stopped_us: u64,
}

impl Counts {
    fn read(machine: &Machine, directory: &str) -> Option<Self> {
        let stat = text(machine, &format!("{directory}/cpu.stat"))?;
        let value = |name: &str| {
            let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
            let (_, value) = lines.find(|(key, _)| *key == name)?;
            value.trim().parse::<u64>().ok()
        };
        Some(Self {
            times: value("nr_throttled")?,
            stopped_us: value("throttled_usec")?,
        })
    }

    fn has_stopped(&self) -> bool {
        self.stopped_us > 0
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            times: self.times.saturating_sub(before.times),
            stopped_us: self.stopped_us.saturating_sub(before.stopped_us),
        }
    }

    /// How often it ran out, if that has stopped nothing.
    fn without_effect(&self) -> Option<u64> {
        (self.times > 0 && self.stopped_us == 0).then_some(self.times)
    }
}

fn counts_of<'d>(
    machine: &Machine,
    directories: impl Iterator<Item = &'d String>,
) -> BTreeMap<String, Counts> {
    let read = |directory: &String| Some((directory.clone(), Counts::read(machine, directory)?));
    directories.filter_map(read).collect()
}

/// The directories of a cgroup and of those above it.
fn directories(path: &str) -> impl Iterator<Item = String> {
    let above = Path::new(path).ancestors();
    above.map(|path| format!("/sys/fs/cgroup{}", path.display()))
}
