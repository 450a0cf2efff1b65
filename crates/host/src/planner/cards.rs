//! The steps of one network card. Reads, never writes.

use std::collections::BTreeMap;

use super::budget;
use super::queues::{self, Queue};
use super::step::Step;
use super::threads::{check_cpus, policy, thread_cpus};
use super::wanted::Wanted;
use crate::cpu_set::CpuSet;
use crate::discover::{Nic, polls_without_interrupts};
use crate::error::{HostError, at};
use crate::parse;
use crate::profile::{Class, NicProfile, ThreadPriority};
use crate::settings::links::Napi;
use crate::settings::{
    ChangeOf, File, Form, IrqAffinity, Machine, NapiDeferral, NapiThreading, SettingKind,
};

/// A card's interrupts, NAPI threads and queues.
pub(super) fn plan_card(
    machine: &Machine,
    profile: &NicProfile,
    nic: &Nic,
    online: &CpuSet,
    wanted: &mut Wanted,
) -> Result<(), HostError> {
    let name = &profile.name;
    check_cpus(&profile.class, online, &profile.place)?;
    let has_irq_threads = !nic.irq_threads.is_empty();
    let has_threads = has_irq_threads || !nic.napi_threads.is_empty();
    let fix = "name the physical interface, not the bridge or tap, and bring it up first (drivers \
               ask for their interrupts when it goes up)";
    let refuse = |what: String| {
        Err(HostError::BadInput {
            what: at(&profile.place, &what),
            fix: fix.into(),
        })
    };
    if profile.leave_napi && !has_threads {
        return refuse(format!(
            "{name} has no IRQ thread and no NAPI thread to give a priority to (it has {} \
             interrupts in /proc/interrupts)",
            nic.irqs.len()
        ));
    }
    let is_virtual = nic.irqs.is_empty() && polls_without_interrupts(machine, name);
    if !profile.leave_napi && nic.irqs.is_empty() && (profile.is_other || !is_virtual) {
        if profile.is_other {
            return Ok(());
        }
        return refuse(format!("{name} has no interrupt of its own"));
    }
    if profile.class.irq.is_some() {
        warn_of_shared_interrupts(nic, wanted);
    }
    let napis = machine.links.napis(name).unwrap_or_default();
    let threading = Threading::of(profile, nic, &napis);
    let threaded = if profile.leave_napi {
        !nic.napi_threads.is_empty()
    } else {
        let threaded = threading.is_wanted(&profile.class);
        let has_to = !profile.is_other && !is_virtual;
        threaded_napi(machine, profile, (threaded, has_to), &mut wanted.steps)?;
        threaded
    };
    if is_virtual {
        warn_of_no_napi(machine, nic, threaded, wanted);
    } else if !has_irq_threads && !profile.leave_napi && profile.class.irq.is_some() {
        wanted.warnings.push(format!(
            "{name} has no IRQ threads on this kernel (PREEMPT_RT or `threadirqs` makes them): \
             only its NAPI threads get a priority"
        ));
    }
    let queues = queues::of(nic);
    refuse_unknown_queues(profile, nic, &queues, threaded && !threading.by_queue)?;
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
                .extend(policy(machine, thread, priority, 0, &why)?);
        }
    }
    if !profile.is_other {
        no_packet_steering(machine, profile, &mut wanted.steps);
        let is_ranked = |napi: &Napi| is_ranked(napi.irq.map_or(&profile.class, class_of_irq));
        no_deferral(machine, (profile, &napis), is_ranked, &mut wanted.steps);
    }
    let mut has_napi_threads = threaded;
    if threading.by_queue {
        let of_queue = |napi: &Napi| Some(threading.is_wanted(class_of_irq(napi.irq?)));
        has_napi_threads |= napis.iter().any(|napi| of_queue(napi) == Some(true));
        let steps = threads_by_queue(machine, name, &napis, (threaded, of_queue));
        wanted.steps.extend(steps);
    }
    if !has_napi_threads {
        return Ok(());
    }
    plan_napi_threads(machine, (profile, nic), (&queues, &threading), wanted)
}

fn plan_napi_threads(
    machine: &Machine,
    (profile, nic): (&NicProfile, &Nic),
    (queues, threading): (&BTreeMap<u32, Queue>, &Threading),
    wanted: &mut Wanted,
) -> Result<(), HostError> {
    let name = &profile.name;
    if !profile.napi_budgets.is_empty() {
        let why = "so that receiving for its VM costs the host no more CPU time than that";
        let all = (&nic.napi_threads[..], &profile.napi_budgets[..]);
        let steps = budget::receive_steps(machine, all, "napi_threads", why, &profile.place)?;
        wanted.steps.extend(steps);
        return Ok(());
    }
    for thread in &nic.napi_threads {
        let queue = queues
            .iter()
            .find(|(_, queue)| queue.napi_thread.as_ref() == Some(thread));
        let class = queue
            .and_then(|(number, _)| profile.queues.get(number))
            .unwrap_or(&profile.class);
        // Its thread ends.
        if threading.by_queue && queue.is_some() && !threading.is_wanted(class) {
            continue;
        }
        if let Some(priority) = class.napi {
            let why = format!(
                "so that {name} is polled with the rank of class \"{}\"",
                class.name
            );
            wanted
                .steps
                .extend(policy(machine, thread, priority, 0, &why)?);
        }
        if let Some(cpus) = &class.cpus {
            wanted.steps.extend(thread_cpus(machine, thread, cpus)?);
        }
    }
    Ok(())
}

/// Which queues of a card are polled in threads.
struct Threading {
    has_irq_threads: bool,
    /// Some queues have a class of their own, and the kernel threads each NAPI by itself (Linux 6.17).
    by_queue: bool,
}

impl Threading {
    fn of(profile: &NicProfile, nic: &Nic, napis: &[Napi]) -> Self {
        let is_told = |napi: &Napi| napi.irq.is_some() && napi.threaded.is_some();
        Self {
            has_irq_threads: !nic.irq_threads.is_empty(),
            by_queue: !profile.leave_napi
                && !profile.queues.is_empty()
                && napis.iter().any(is_told),
        }
    }

    /// Rule: where no interrupt has a thread, NAPIs have one. Where each may have its own way, those without a rank have none: a
    /// thread per poll costs the other queues' traffic.
    fn is_wanted(&self, class: &Class) -> bool {
        let by_itself = !self.has_irq_threads && (!self.by_queue || is_ranked(class));
        class.threaded_napi.unwrap_or(by_itself)
    }
}

/// Steps for NAPIs that are not to be polled as their device is.
fn threads_by_queue(
    machine: &Machine,
    name: &str,
    napis: &[Napi],
    (threaded, of_queue): (bool, impl Fn(&Napi) -> Option<bool>),
) -> Vec<Step> {
    let differs = napis.iter().filter_map(|napi| {
        let on = of_queue(napi).filter(|on| *on != threaded)?;
        let why = if on {
            "so that this queue is polled in a thread of its own, off the shared poll list"
        } else {
            "so that polls of this queue cost no switch to a thread"
        };
        let change = NapiThreading::switched(machine, name, napi, on)?;
        Some(Step::required(change, why))
    });
    differs.collect()
}

/// `threaded` of a device is that of all its NAPIs.
fn threaded_napi(
    machine: &Machine,
    profile: &NicProfile,
    (threaded, has_to): (bool, bool),
    steps: &mut Vec<Step>,
) -> Result<(), HostError> {
    let path = format!("/sys/class/net/{}/threaded", profile.name);
    if profile.is_other && !machine.tree.exists(&path) {
        return Ok(());
    }
    let old = machine.must_read(&path)?.trim().to_owned();
    let change = ChangeOf {
        setting: File::new(machine, path, Form::Text),
        old,
        new: u32::from(threaded).to_string(),
    };
    let why = if threaded {
        "so that it is polled in threads of its own, off the shared poll list"
    } else {
        "so that it is polled by its IRQ threads themselves"
    };
    // Drivers without NAPI of their own refuse it (EOPNOTSUPP), as those of Wi-Fi cards do, and a veth that merges nothing.
    steps.push(if has_to {
        Step::required(change, why)
    } else {
        Step::optional(change, why)
    });
    Ok(())
}

/// RPS hands packets to the backlog of a CPU, which a softirq or a normal thread empties for all (`get_rps_cpu()`,
/// `enqueue_to_backlog()`).
fn no_packet_steering(machine: &Machine, profile: &NicProfile, steps: &mut Vec<Step>) {
    let queues = format!("/sys/class/net/{}/queues", profile.name);
    for queue in machine.tree.list(&queues).unwrap_or_default() {
        let Some(number) = queue.strip_prefix("rx-") else {
            continue;
        };
        let number: Option<u32> = number.parse().ok();
        let of_queue = number.and_then(|it| profile.queues.get(&it));
        if !is_ranked(of_queue.unwrap_or(&profile.class)) {
            continue;
        }
        let path = format!("{queues}/{queue}/rps_cpus");
        let why =
            "so that its packets stay in the thread that polls them, off the CPUs' shared backlogs";
        // Kernels without RPS have no such file.
        steps.extend(Step::file(machine, path, Form::CpuMask, "0", why));
    }
}

/// Whether a class has a rank for the threads that receive.
fn is_ranked(class: &Class) -> bool {
    let mut ranks = [class.irq, class.napi].into_iter();
    ranks.any(|rank| matches!(rank, Some(ThreadPriority::Fifo(_))))
}

/// An interrupt that stays off after the last packet leaves the next one to a timer, whatever the rank of the thread that polls
/// (`napi_complete_done()`).
fn no_deferral(
    machine: &Machine,
    (profile, napis): (&NicProfile, &[Napi]),
    is_ranked_napi: impl Fn(&Napi) -> bool,
    steps: &mut Vec<Step>,
) {
    let name = &profile.name;
    let why = "so that none of its packets waits for a timer";
    if napis.iter().any(|napi| napi.deferral.is_some()) {
        let ranked = napis.iter().filter(|napi| is_ranked_napi(napi));
        let changes = ranked.filter_map(|napi| NapiDeferral::none(machine, name, napi));
        steps.extend(changes.map(|change| Step::required(change, why)));
        return;
    }
    // Before Linux 6.13 all NAPIs of a device have one.
    let mut classes = profile.queues.values().chain([&profile.class]);
    if !classes.any(is_ranked) {
        return;
    }
    for file in ["napi_defer_hard_irqs", "gro_flush_timeout"] {
        let path = format!("/sys/class/net/{name}/{file}");
        steps.extend(Step::file(machine, path, Form::Text, "0", why));
    }
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

/// The kernel gives no thread to an interface that has no NAPI.
fn warn_of_no_napi(machine: &Machine, nic: &Nic, threaded: bool, wanted: &mut Wanted) {
    let name = &nic.name;
    let napis = machine.links.napis(name).unwrap_or_default();
    if threaded && nic.napi_threads.is_empty() && napis.is_empty() {
        wanted.warnings.push(format!(
            "{name} has no NAPI of its own: its packets wait with all others' in the backlog of the CPU; a veth gets one by \
             `ethtool -K {name} gro on`"
        ));
    }
}

fn warn_of_shared_interrupts(nic: &Nic, wanted: &mut Wanted) {
    for (irq, actions) in &nic.irqs {
        if actions.contains(", ") {
            wanted.warnings.push(format!(
                "IRQ {irq} of {} is shared ({actions}): the other devices' threads get the priority \
                 too",
                nic.name
            ));
        }
    }
}

fn irq_cpus(machine: &Machine, irq: u32, action: &str, cpus: &CpuSet) -> Result<Step, HostError> {
    let setting = IrqAffinity {
        irq,
        name: action.to_owned(),
    };
    let change = ChangeOf {
        old: setting.read(machine)?,
        setting,
        new: cpus.clone().into(),
    };
    Ok(Step::required(change, "because its class has these CPUs"))
}
