//! From a profile and a machine's state to steps. Reads, never writes.

use std::collections::BTreeMap;

use super::batch;
use super::demux;
use super::flows;
use super::profile::{Class, NicProfile, ProcessProfile, Profile, at};
use super::queues::{self, Queue};
use super::softirqs::{self, policy};
use super::vms::{self, Running};
use crate::change::{self, Change, Form, Step};
use crate::cpu_set::CpuSet;
use crate::discover::{self, Nic};
use crate::error::HostError;
use crate::fair_server;
use crate::machine::{Machine, Thread, ThreadId};
use crate::parse;
use crate::threads::RESET_ON_FORK;

/// What a profile wants on a machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// Every setting, also those that hold already.
    pub steps: Vec<Step>,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// Plans a profile. `own` are the steps that are in force already.
///
/// NAPI threads that `threaded` will start exist only after that step is made: plan again then.
pub(crate) fn plan(
    machine: &Machine,
    profile: &Profile,
    own: &[Step],
) -> Result<Wanted, HostError> {
    profile.check()?;
    let threads = machine.all_threads()?;
    let online = machine.online()?;
    let mut wanted = Wanted::default();
    softirqs::steps(machine, &threads, &profile.softirqs, &mut wanted.steps)?;
    if let Some(piece_us) = profile.fair_server_us {
        let piece_ns = u64::from(piece_us) * 1000;
        let steps = fair_server::steps(machine, piece_ns, &mut wanted.warnings)?;
        wanted.steps.extend(steps);
    }
    if let Some(profile) = &profile.demux {
        demux::steps(machine, &threads, profile, &online, own, &mut wanted.steps)?;
    }
    for nic in &profile.nics {
        let found = discover::nic(machine, &threads, &nic.name)
            .map_err(|error| place(error, &nic.place))?;
        plan_nic(machine, nic, &found, &online, &mut wanted)?;
        flows::steer(machine, nic, own, &mut wanted.steps)?;
    }
    for vm in &profile.vms {
        match vms::find(machine, &threads, vm)? {
            Some(running) => {
                plan_vm(machine, &running, &online, own, &mut wanted)?;
                let Wanted { steps, warnings } = &mut wanted;
                let levels_from = profile.softirqs.levels_from;
                batch::steps(machine, &running, levels_from, steps, warnings)?;
            }
            None => wanted.warnings.push(format!(
                "VM \"{}\" does not run: apply again when it does",
                vm.name
            )),
        }
    }
    for process in &profile.processes {
        plan_process(machine, process, &mut wanted)?;
    }
    warn_of_irqbalance(&threads, profile, &mut wanted);
    Ok(wanted)
}

/// Every NIC that has interrupts.
pub(crate) fn nics_with_interrupts(machine: &Machine) -> Result<Vec<String>, HostError> {
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

fn plan_nic(
    machine: &Machine,
    profile: &NicProfile,
    nic: &Nic,
    online: &CpuSet,
    wanted: &mut Wanted,
) -> Result<(), HostError> {
    let name = &profile.name;
    check_cpus(&profile.class, online, &profile.place)?;
    if nic.irqs.is_empty() {
        return Err(HostError::BadInput {
            what: at(
                &profile.place,
                &format!("{name} has no interrupt of its own"),
            ),
            fix: "name the physical interface, not the bridge or tap, and bring it up first \
                  (drivers ask for their interrupts when it goes up)"
                .into(),
        });
    }
    let has_irq_threads = !nic.irq_threads.is_empty();
    let threaded = profile.class.threaded_napi.unwrap_or(!has_irq_threads);
    threaded_napi(machine, profile, threaded, &mut wanted.steps)?;
    if !has_irq_threads && profile.class.irq.is_some() {
        wanted.warnings.push(format!(
            "{name} has no IRQ threads on this kernel (PREEMPT_RT or `threadirqs` makes them): \
             only its NAPI threads get a priority"
        ));
    }
    let queues = queues::of(nic);
    refuse_unknown_queues(profile, nic, &queues, threaded)?;
    let class_of_irq = |irq: u32| {
        let queue = queues.iter().find(|(_, queue)| queue.irqs.contains(&irq));
        queue
            .and_then(|(number, _)| profile.queues.get(number))
            .unwrap_or(&profile.class)
    };
    for (&irq, action) in &nic.irqs {
        let class = class_of_irq(irq);
        check_cpus(class, online, &profile.place)?;
        if let Some(cpus) = &class.cpus {
            wanted.steps.push(irq_cpus(machine, irq, action, cpus)?);
        }
    }
    for thread in &nic.irq_threads {
        let class = parse::irq_of_thread(&thread.comm).map_or(&profile.class, class_of_irq);
        if let Some(priority) = class.irq {
            let why = format!(
                "so that interrupts of {name} have the rank of class \"{}\"",
                class.name
            );
            wanted
                .steps
                .push(policy(machine, thread, priority, 0, &why)?);
        }
    }
    if !threaded {
        return Ok(());
    }
    for thread in &nic.napi_threads {
        let queue = queues
            .iter()
            .find(|(_, queue)| queue.napi_thread.as_ref() == Some(thread));
        let class = queue
            .and_then(|(number, _)| profile.queues.get(number))
            .unwrap_or(&profile.class);
        if let Some(priority) = class.napi {
            let why = format!(
                "so that {name} is polled with the rank of class \"{}\"",
                class.name
            );
            wanted
                .steps
                .push(policy(machine, thread, priority, 0, &why)?);
        }
        if let Some(cpus) = &class.cpus {
            wanted.steps.push(thread_cpus(machine, thread, cpus)?);
        }
    }
    Ok(())
}

/// `threaded` is the whole device's before Linux 6.17.
fn threaded_napi(
    machine: &Machine,
    profile: &NicProfile,
    threaded: bool,
    steps: &mut Vec<Step>,
) -> Result<(), HostError> {
    let path = format!("/sys/class/net/{}/threaded", profile.name);
    let change = Change::File {
        old: machine.must_read(&path)?.trim().to_owned(),
        path,
        form: Form::Text,
        new: u32::from(threaded).to_string(),
    };
    let why = if threaded {
        "so that it is polled in threads of its own, off the shared poll list"
    } else {
        "so that it is polled by its IRQ threads themselves"
    };
    steps.push(Step {
        change,
        why: why.into(),
        required: true,
    });
    Ok(())
}

fn refuse_unknown_queues(
    profile: &NicProfile,
    nic: &Nic,
    queues: &BTreeMap<u32, Queue>,
    threaded: bool,
) -> Result<(), HostError> {
    let name = &profile.name;
    if let Some(absent) = profile
        .queues
        .keys()
        .find(|number| !queues.contains_key(number))
    {
        let known: Vec<String> = queues.keys().map(ToString::to_string).collect();
        return Err(HostError::BadInput {
            what: at(
                &profile.place,
                &format!("{name} has no queue {absent} with an interrupt"),
            ),
            fix: format!("its queues are {}", known.join(", ")),
        });
    }
    let unmatched = queues.values().any(|queue| queue.napi_thread.is_none());
    let differs = profile
        .queues
        .values()
        .any(|class| class.napi != profile.class.napi || class.cpus != profile.class.cpus);
    if threaded && differs && unmatched && !nic.napi_threads.is_empty() {
        return Err(HostError::Unsupported {
            missing: at(
                &profile.place,
                &format!(
                    "the {} NAPI threads of {name} cannot be told apart by its {} queues",
                    nic.napi_threads.len(),
                    queues.len()
                ),
            ),
            fix: "give all its queues one class, or set threaded_napi = false".into(),
        });
    }
    Ok(())
}

fn plan_vm(
    machine: &Machine,
    running: &Running<'_>,
    online: &CpuSet,
    own: &[Step],
    wanted: &mut Wanted,
) -> Result<(), HostError> {
    let Running {
        profile, vm, taps, ..
    } = running;
    let class = &profile.class;
    check_cpus(class, online, &profile.place)?;
    if vm.vhost_workers.is_empty() && class.vhost.is_some() {
        wanted.warnings.push(format!(
            "VM \"{}\" has no vhost worker: its packets go through its monitor's threads; use \
             vhost-net (vhost=on)",
            profile.name
        ));
    }
    for thread in &vm.vhost_workers {
        if let Some(priority) = class.vhost {
            let why = "so that packets enter the VM with the rank of its class";
            wanted
                .steps
                .push(policy(machine, thread, priority, 0, why)?);
        }
        if let Some(cpus) = &class.cpus {
            wanted.steps.push(thread_cpus(machine, thread, cpus)?);
        }
    }
    if let Some(priority) = class.vcpu {
        for (&number, thread) in &vm.vcpus {
            let chosen = if profile.rt_vcpus.is_empty() {
                number != 0 || vm.vcpus.len() == 1
            } else {
                profile.rt_vcpus.contains(&number)
            };
            if chosen {
                let why = "so that the VM's service runs with the rank of its class";
                wanted
                    .steps
                    .push(policy(machine, thread, priority, RESET_ON_FORK, why)?);
            }
        }
    }
    if let Some(new) = class.tap_qdisc {
        for tap in taps {
            tap_qdisc(machine, tap, new.name(), own, wanted)?;
        }
    }
    Ok(())
}

fn plan_process(
    machine: &Machine,
    profile: &ProcessProfile,
    wanted: &mut Wanted,
) -> Result<(), HostError> {
    let Some(priority) = profile.class.vcpu else {
        return Ok(());
    };
    for thread in discover::process(machine, profile.pid)?.threads {
        let why = "so that the service runs with the rank of its class";
        wanted
            .steps
            .push(policy(machine, &thread, priority, RESET_ON_FORK, why)?);
    }
    Ok(())
}

/// Replaces only what the kernel attached by itself: a discipline that someone configured has
/// options and classes that could not be given back.
fn tap_qdisc(
    machine: &Machine,
    tap: &str,
    new: &str,
    own: &[Step],
    wanted: &mut Wanted,
) -> Result<(), HostError> {
    let now = machine
        .links
        .root_qdisc(tap)
        .map_err(|source| HostError::io("read the queueing discipline of", tap, source))?;
    let ours = own.iter().any(|step| {
        matches!(&step.change, Change::RootQdisc { device, new, .. } if device == tap && *new == now.kind)
    });
    if !now.is_default && !ours {
        wanted.warnings.push(format!(
            "{tap} has the queueing discipline {} that someone set: it is left as it is",
            now.kind
        ));
        return Ok(());
    }
    wanted.steps.push(Step {
        change: Change::RootQdisc {
            device: tap.to_owned(),
            old: now.kind,
            new: new.to_owned(),
        },
        why: "so that a preempted sender does not strand the VM's packets".into(),
        required: true,
    });
    Ok(())
}

fn irq_cpus(machine: &Machine, irq: u32, action: &str, cpus: &CpuSet) -> Result<Step, HostError> {
    let path = change::irq_file(irq);
    let malformed = |problem: String| HostError::Malformed {
        path: path.clone(),
        problem,
    };
    let old: CpuSet = machine
        .must_read(&path)?
        .parse()
        .map_err(|error| malformed(format!("{error}")))?;
    let change = Change::IrqAffinity {
        irq,
        name: action.to_owned(),
        old_effective: change::effective_of(machine, irq).filter(|set| set.is_subset(&old)),
        old,
        new: cpus.clone(),
    };
    Ok(Step {
        change,
        why: "because its class has these CPUs".into(),
        required: true,
    })
}

fn thread_cpus(machine: &Machine, thread: &ThreadId, cpus: &CpuSet) -> Result<Step, HostError> {
    let old = machine
        .threads
        .affinity(thread.tid)
        .map_err(|source| HostError::io("read the CPUs of", thread.to_string(), source))?;
    Ok(Step {
        change: Change::ThreadAffinity {
            thread: thread.clone(),
            old,
            new: cpus.clone(),
        },
        why: "because its class has these CPUs".into(),
        required: true,
    })
}

fn check_cpus(class: &Class, online: &CpuSet, place: &str) -> Result<(), HostError> {
    match &class.cpus {
        Some(cpus) if !cpus.is_subset(online) => Err(HostError::BadInput {
            what: at(
                place,
                &format!(
                    "class \"{}\" wants CPUs {cpus}, of which not all are online",
                    class.name
                ),
            ),
            fix: format!("name some of {online}"),
        }),
        _ => Ok(()),
    }
}

fn warn_of_irqbalance(threads: &[Thread], profile: &Profile, wanted: &mut Wanted) {
    let places = profile.nics.iter().any(|nic| {
        nic.class.cpus.is_some() || nic.queues.values().any(|class| class.cpus.is_some())
    });
    if places && threads.iter().any(|thread| thread.id.comm == "irqbalance") {
        wanted.warnings.push(
            "irqbalance runs and may move interrupts again: stop it, or give it --banirq and \
             --banned-cpus"
                .into(),
        );
    }
}

fn place(error: HostError, place: &str) -> HostError {
    match error {
        HostError::BadInput { what, fix } => HostError::BadInput {
            what: at(place, &what),
            fix,
        },
        other => other,
    }
}
