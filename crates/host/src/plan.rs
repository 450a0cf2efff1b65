//! Planning: from a host's state and a target to the steps of a method. Reads, never writes.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::change::{Change, Step};
use crate::cpu_set::CpuSet;
use crate::dedicated;
use crate::discover::{self, Nic, Process, Vm};
use crate::error::HostError;
use crate::fair_server;
use crate::levels;
use crate::machine::{Machine, Thread, ThreadId};
use crate::method::{Method, Target};
use crate::net::{self, Profile};
use crate::parse;
use crate::threads::{RESET_ON_FORK, Scheduling};

/// What a method would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The method.
    pub method: Method,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The CPU that is dedicated, if one is.
    pub dedicated: Option<Dedication>,
    /// What the caller should know.
    pub warnings: Vec<String>,
    /// The threads the settings are for.
    pub beneficiaries: Vec<ThreadId>,
}

/// A CPU that is given to the RT path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dedication {
    /// The CPU.
    pub cpu: usize,
    /// All other CPUs that are online.
    pub others: CpuSet,
}

const SERVICE_FIRST: &str = "so that the RT service runs before other work";

/// What serves the real-time traffic of this host.
pub(crate) struct Path {
    pub nics: Vec<Nic>,
    pub vms: Vec<(Vm, Vec<u32>)>,
    pub processes: Vec<Process>,
}

impl Path {
    /// The threads of the path with the priority each gets.
    fn ranked(&self, target: &Target) -> Vec<(ThreadId, Scheduling, &'static str)> {
        let priorities = target.priorities;
        let mut ranked = Vec::new();
        let mut add = |threads: &[ThreadId], priority, flags, why| {
            for thread in threads {
                ranked.push((thread.clone(), Scheduling::fifo(priority, flags), why));
            }
        };
        for nic in &self.nics {
            let why = "so that no other interrupt delays the RT NIC's";
            add(&nic.irq_threads, priorities.irq, 0, why);
            add(
                &nic.napi_threads,
                priorities.napi,
                0,
                "so that the RT NIC is polled first",
            );
        }
        for (vm, rt_vcpus) in &self.vms {
            let why = "so that packets enter the RT VM before other work";
            add(&vm.vhost_workers, priorities.vhost, 0, why);
            let vcpus: Vec<ThreadId> = rt_vcpus
                .iter()
                .filter_map(|vcpu| vm.vcpus.get(vcpu).cloned())
                .collect();
            add(&vcpus, priorities.vcpu, RESET_ON_FORK, SERVICE_FIRST);
        }
        for process in &self.processes {
            add(
                &process.threads,
                priorities.vcpu,
                RESET_ON_FORK,
                SERVICE_FIRST,
            );
        }
        ranked
    }

    /// The threads of the path that `dedicated` puts on its CPU itself. IRQ threads are not
    /// among them: they follow their interrupt.
    pub fn placed_threads(&self) -> Vec<ThreadId> {
        let mut threads = Vec::new();
        for nic in &self.nics {
            threads.extend(nic.napi_threads.iter().cloned());
        }
        for (vm, rt_vcpus) in &self.vms {
            threads.extend(vm.vhost_workers.iter().cloned());
            threads.extend(
                rt_vcpus
                    .iter()
                    .filter_map(|vcpu| vm.vcpus.get(vcpu).cloned()),
            );
        }
        for process in &self.processes {
            threads.extend(process.threads.iter().cloned());
        }
        threads
    }
}

/// Plans a method. Fails if the host cannot hold it or the target makes no sense.
pub fn plan(machine: &Machine, target: &Target, method: Method) -> Result<Plan, HostError> {
    let mut plan = Plan {
        method,
        steps: Vec::new(),
        dedicated: None,
        warnings: Vec::new(),
        beneficiaries: Vec::new(),
    };
    if method == Method::Vanilla {
        return Ok(plan);
    }
    target.priorities.check()?;
    check_named(target, method)?;
    need_preempt_rt(machine, method)?;
    let threads = machine.all_threads()?;
    let path = find_path(machine, &threads, target, &mut plan.warnings)?;
    let ranked = path.ranked(target);
    plan.beneficiaries = ranked.iter().map(|(thread, ..)| thread.clone()).collect();
    if method == Method::RtPollList {
        let (asker, instead) = ("method rt-poll-list", "use method preempt-rt");
        let mut steps = levels::steps(machine, levels_from(target), asker, instead)?;
        steps.retain(|step| !step.change.is_empty());
        plan.steps.extend(steps);
    }
    if method == Method::Dedicated {
        let dedication = dedicated::choose_cpu(machine, target)?;
        dedicated::clear(machine, &path, &dedication, &mut plan)?;
        dedicated::place(machine, &path, &dedication, &mut plan)?;
        plan.dedicated = Some(dedication);
    }
    for (thread, mut new, why) in ranked {
        let old = machine
            .threads
            .scheduling(thread.tid)
            .map_err(|source| HostError::io("read the policy of", thread.to_string(), source))?;
        new.flags |= old.flags & RESET_ON_FORK;
        add(
            &mut plan.steps,
            Change::ThreadPolicy { thread, old, new },
            why,
            true,
        );
    }
    if !target.keep_fair_server {
        let piece_ns = fair_server::LONGEST_PIECE_NS;
        let mut steps = fair_server::steps(machine, piece_ns, &mut plan.warnings)?;
        steps.retain(|step| !step.change.is_empty());
        plan.steps.extend(steps);
    }
    throttling(machine, target, &mut plan);
    if threads.iter().any(|thread| thread.id.comm == "irqbalance") {
        plan.warnings.push(
            "irqbalance runs and may move interrupts again: stop it, or give it \
             --banirq and --banned-cpus"
                .into(),
        );
    }
    Ok(plan)
}

/// The profile of a method that [is one](Method::is_profile), if the host can hold it and the target
/// makes sense.
pub(crate) fn profile(
    machine: &Machine,
    target: &Target,
    method: Method,
) -> Result<Profile, HostError> {
    target.priorities.check()?;
    check_named(target, method)?;
    need_preempt_rt(machine, method)?;
    let mut others = net::plan::nics_with_interrupts(machine)?;
    others.retain(|name| !target.rt_nics.contains(name));
    let mut profile = Profile::of_target(target, &others);
    if method.has_levels() {
        let from = levels_from(target);
        // Asked for once more by the profile, which does not know whose it is.
        levels::steps(
            machine,
            from,
            &format!("method {method}"),
            "use method rt-profile",
        )?;
        profile.softirqs.levels_from = Some(from);
    }
    Ok(profile)
}

/// The priority from which a thread's softirqs are on the RT level: the lowest of the path, whose
/// other threads shall not do others' softirqs either.
const fn levels_from(target: &Target) -> u32 {
    target.priorities.vcpu
}

/// Adds a step, unless it would change nothing.
pub(crate) fn add(steps: &mut Vec<Step>, change: Change, why: &str, required: bool) {
    if !change.is_empty() {
        steps.push(Step {
            change,
            why: why.to_owned(),
            required,
        });
    }
}

fn check_named(target: &Target, method: Method) -> Result<(), HostError> {
    let missing = if target.rt_nics.is_empty() {
        "an RT NIC (--rt-nic eth0)"
    } else if target.rt_vms.is_empty() && target.rt_processes.is_empty() {
        "an RT VM (--rt-vm PID:VCPU) or an RT process (--rt-process PID)"
    } else {
        return Ok(());
    };
    Err(HostError::BadInput {
        what: format!("method {method} has nothing to work for"),
        fix: format!("name {missing}"),
    })
}

fn need_preempt_rt(machine: &Machine, method: Method) -> Result<(), HostError> {
    let (is_rt, found) = machine.preempt_rt();
    if is_rt {
        return Ok(());
    }
    Err(HostError::Unsupported {
        missing: format!("method {method} needs a PREEMPT_RT kernel ({found})"),
        fix: "boot one (on Debian: apt install linux-image-rt-amd64), or use method vanilla".into(),
    })
}

fn find_path(
    machine: &Machine,
    threads: &[Thread],
    target: &Target,
    warnings: &mut Vec<String>,
) -> Result<Path, HostError> {
    let mut nics = Vec::new();
    for name in &target.rt_nics {
        let nic = discover::nic(machine, threads, name)?;
        if nic.irq_threads.is_empty() && nic.napi_threads.is_empty() {
            return Err(HostError::BadInput {
                what: format!(
                    "{name} has no IRQ thread and no NAPI thread to give a priority to (it has {} \
                     interrupts in /proc/interrupts)",
                    nic.irqs.len()
                ),
                fix: "name the physical interface, not the bridge or tap, and bring it up first \
                      (drivers ask for their interrupts when it goes up)"
                    .into(),
            });
        }
        for (irq, actions) in nic
            .irqs
            .iter()
            .filter(|(_, actions)| actions.contains(", "))
        {
            warnings.push(format!(
                "IRQ {irq} of {name} is shared ({actions}): the other devices' threads get the \
                 priority too"
            ));
        }
        nics.push(nic);
    }
    let mut vms = Vec::new();
    for wanted in &target.rt_vms {
        let vm = discover::vm(machine, threads, wanted.pid)?;
        let rt_vcpus = choose_vcpus(&vm, &wanted.rt_vcpus, warnings)?;
        // Without a tap nobody carries packets into the VM: its sockets may be the host's own.
        if vm.vhost_workers.is_empty() && !net::taps_of(machine, wanted.pid).is_empty() {
            warnings.push(format!(
                "VM {} has no vhost worker: its packets go through its monitor's threads, at \
                 normal priority; use vhost-net (vhost=on)",
                vm.pid
            ));
        }
        vms.push((vm, rt_vcpus));
    }
    Ok(Path {
        nics,
        vms,
        processes: find_processes(machine, target)?,
    })
}

fn find_processes(machine: &Machine, target: &Target) -> Result<Vec<Process>, HostError> {
    let vms: BTreeSet<u32> = target.rt_vms.iter().map(|vm| vm.pid).collect();
    let pids: BTreeSet<u32> = target.rt_processes.iter().copied().collect();
    if let Some(pid) = pids.intersection(&vms).next() {
        return Err(HostError::BadInput {
            what: format!("process {pid} is named as an RT VM and as an RT process"),
            fix: "name it once: with --rt-vm if it is the monitor of a VM".into(),
        });
    }
    pids.into_iter()
        .map(|pid| discover::process(machine, pid))
        .collect()
}

fn choose_vcpus(
    vm: &Vm,
    wanted: &[u32],
    warnings: &mut Vec<String>,
) -> Result<Vec<u32>, HostError> {
    if let Some(absent) = wanted.iter().find(|vcpu| !vm.vcpus.contains_key(vcpu)) {
        let known: Vec<String> = vm.vcpus.keys().map(ToString::to_string).collect();
        return Err(HostError::BadInput {
            what: format!("VM {} has no VCPU {absent}", vm.pid),
            fix: format!("its VCPUs are {}", known.join(", ")),
        });
    }
    if !wanted.is_empty() {
        return Ok(wanted.to_vec());
    }
    let chosen: Vec<u32> = vm.vcpus.keys().copied().filter(|&vcpu| vcpu != 0).collect();
    if chosen.is_empty() {
        warnings.push(format!(
            "VM {} has one VCPU: its housekeeping runs at real-time priority too; give it two",
            vm.pid
        ));
        return Ok(vm.vcpus.keys().copied().collect());
    }
    Ok(chosen)
}

fn throttling(machine: &Machine, target: &Target, plan: &mut Plan) {
    let path = "/proc/sys/kernel/sched_rt_runtime_us";
    let Ok(text) = machine.tree.read(path) else {
        return;
    };
    let old = text.trim().to_owned();
    if !target.disable_rt_throttling {
        // From 6.12 on the fair server has taken its place.
        let release = machine.kernel_release().unwrap_or_default();
        let throttles = parse::kernel_version(&release).is_some_and(|version| version < (6, 12));
        if throttles && old != "-1" {
            plan.warnings.push(format!(
                "{path} is {old}: RT threads that use more than that share of a period are \
                 stopped for the rest of it (--rt-throttling-off sets -1)"
            ));
        }
        return;
    }
    let change = Change::File {
        path: path.into(),
        form: crate::change::Form::Text,
        old,
        new: "-1".into(),
    };
    add(
        &mut plan.steps,
        change,
        "because the caller asked for no RT throttling",
        true,
    );
}
