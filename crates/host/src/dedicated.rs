//! The steps that give a CPU to the RT path and move everything else off it.
//!
//! The means is the affinity of every thread, not a cpuset: see docs/design/host-methods.md.

use crate::change::{self, Change, Form, Step};
use crate::cpu_set::CpuSet;
use crate::error::HostError;
use crate::machine::{Machine, ThreadId};
use crate::method::Target;
use crate::parse;
use crate::plan::{Dedication, Path, Plan, add};

const KEPT_FREE: &str = "to keep the dedicated CPU free";
const SERVES: &str = "because the dedicated CPU serves the RT path";

/// The CPU to dedicate, and the others.
pub(crate) fn choose_cpu(machine: &Machine, target: &Target) -> Result<Dedication, HostError> {
    let online = machine.online()?;
    if online.len() < 2 {
        return Err(HostError::Unsupported {
            missing: format!("method dedicated needs two CPUs, only {online} is online"),
            fix: "use method preempt-rt".into(),
        });
    }
    let cpu = target.dedicated_cpu.or(online.last()).unwrap_or_default();
    if !online.contains(cpu) {
        return Err(HostError::BadInput {
            what: format!("CPU {cpu} is not online"),
            fix: format!("name one of {online}"),
        });
    }
    Ok(Dedication {
        cpu,
        others: online.without(cpu),
    })
}

/// Moves interrupts, workqueues and packet steering of everything else off the CPU. Threads are
/// moved by [`stragglers`], again and again until none is left.
pub(crate) fn clear(
    machine: &Machine,
    path: &Path,
    dedication: &Dedication,
    plan: &mut Plan,
) -> Result<(), HostError> {
    mask_file(
        machine,
        "/sys/devices/virtual/workqueue/cpumask",
        dedication,
        plan,
    );
    mask_file(machine, "/proc/irq/default_smp_affinity", dedication, plan);
    for nic in machine.tree.list("/sys/class/net").unwrap_or_default() {
        if path.nics.iter().any(|rt| rt.name == nic) {
            continue;
        }
        let queues = format!("/sys/class/net/{nic}/queues");
        for queue in machine.tree.list(&queues).unwrap_or_default() {
            if queue.starts_with("rx-") {
                mask_file(
                    machine,
                    &format!("{queues}/{queue}/rps_cpus"),
                    dedication,
                    plan,
                );
            }
        }
    }
    let names = parse::interrupts(&machine.must_read("/proc/interrupts")?);
    for entry in machine.tree.list("/proc/irq").unwrap_or_default() {
        let Ok(irq) = entry.parse::<u32>() else {
            continue;
        };
        if path.nics.iter().any(|nic| nic.irqs.contains_key(&irq)) {
            continue;
        }
        // Nobody has asked for the others: they do not fire.
        let used = names
            .iter()
            .find(|interrupt| interrupt.irq == irq && !interrupt.actions.is_empty());
        let Some(name) = used.map(|interrupt| interrupt.actions.join(", ")) else {
            continue;
        };
        let old = irq_affinity(machine, irq);
        if let Some(old) = old.filter(|old| old.contains(dedication.cpu)) {
            let new = remaining(&old, dedication);
            let change = irq_change(machine, irq, name, old, new);
            add(&mut plan.steps, change, KEPT_FREE, false);
        }
    }
    Ok(())
}

/// Puts the RT NICs' interrupts and the threads of the RT path on the CPU.
pub(crate) fn place(
    machine: &Machine,
    path: &Path,
    dedication: &Dedication,
    plan: &mut Plan,
) -> Result<(), HostError> {
    let new = CpuSet::single(dedication.cpu);
    for nic in &path.nics {
        for (&irq, name) in &nic.irqs {
            let old = irq_affinity(machine, irq).ok_or_else(|| HostError::Malformed {
                path: change::irq_file(irq),
                problem: format!("it has no CPU list, but {} uses the interrupt", nic.name),
            })?;
            let change = irq_change(machine, irq, name.clone(), old, new.clone());
            add(&mut plan.steps, change, SERVES, true);
        }
    }
    for thread in path.placed_threads() {
        let old = machine
            .threads
            .affinity(thread.tid)
            .map_err(|source| HostError::io("read the CPUs of", thread.to_string(), source))?;
        let change = Change::ThreadAffinity {
            thread,
            old,
            new: new.clone(),
        };
        add(&mut plan.steps, change, SERVES, true);
    }
    Ok(())
}

/// Threads that may still run on the dedicated CPU although they should not, without those in
/// `known` (which were tried before).
pub(crate) fn stragglers(
    machine: &Machine,
    dedication: &Dedication,
    is_known: impl Fn(&ThreadId) -> bool,
) -> Result<Vec<Step>, HostError> {
    let mut steps = Vec::new();
    for thread in machine.all_threads()? {
        // IRQ threads follow their interrupts.
        let follows = thread.is_kernel() && parse::irq_of_thread(&thread.id.comm).is_some();
        if follows || !thread.is_movable() || is_known(&thread.id) {
            continue;
        }
        let Ok(old) = machine.threads.affinity(thread.id.tid) else {
            continue;
        };
        if old.contains(dedication.cpu) {
            let new = remaining(&old, dedication);
            let change = Change::ThreadAffinity {
                thread: thread.id,
                old,
                new,
            };
            add(&mut steps, change, KEPT_FREE, false);
        }
    }
    Ok(steps)
}

/// What is left of a set without the dedicated CPU: all other CPUs if that is nothing.
fn remaining(old: &CpuSet, dedication: &Dedication) -> CpuSet {
    let rest = old.without(dedication.cpu);
    if rest.intersection(&dedication.others).is_empty() {
        dedication.others.clone()
    } else {
        rest
    }
}

fn mask_file(machine: &Machine, path: &str, dedication: &Dedication, plan: &mut Plan) {
    let Ok(text) = machine.tree.read(path) else {
        return;
    };
    let Ok(old) = CpuSet::from_mask(&text) else {
        return;
    };
    if !old.contains(dedication.cpu) {
        return;
    }
    let change = Change::File {
        path: path.to_owned(),
        form: Form::CpuMask,
        old: text.trim().to_owned(),
        new: remaining(&old, dedication).to_mask(),
    };
    add(&mut plan.steps, change, KEPT_FREE, false);
}

fn irq_affinity(machine: &Machine, irq: u32) -> Option<CpuSet> {
    machine.tree.read(&change::irq_file(irq)).ok()?.parse().ok()
}

fn irq_change(machine: &Machine, irq: u32, name: String, old: CpuSet, new: CpuSet) -> Change {
    let old_effective = change::effective_of(machine, irq).filter(|set| set.is_subset(&old));
    Change::IrqAffinity {
        irq,
        name,
        old,
        old_effective,
        new,
    }
}
