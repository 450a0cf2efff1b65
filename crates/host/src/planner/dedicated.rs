//! The steps that give CPUs to the RT path and move everything else off them.
//!
//! The means is the affinity of every thread, not a cpuset: see docs/design/host-methods.md.
//!
//! Rule: what was moved is planned from where it was before steadyvm came, so that planning again
//! wants the same.

use std::collections::{HashMap, HashSet};

use super::step::Step;
use crate::cpu_set::CpuSet;
use crate::error::HostError;
use crate::parse;
use crate::settings::{
    Change, ChangeOf, File, Form, IrqAffinity, IrqCpus, Machine, SettingKind, Thread,
    ThreadAffinity, ThreadId,
};

const KEPT_FREE: &str = "to keep the dedicated CPU free";
const SERVES: &str = "because the dedicated CPU serves the RT path";

/// What serves the real-time traffic of this host.
#[derive(Debug, Default)]
pub(crate) struct Path {
    /// Its interrupts, by number.
    pub irqs: HashMap<u32, String>,
    /// Its network interfaces.
    pub nics: HashSet<String>,
    /// Its threads that are put on the CPU, or in turn on one of several. IRQ threads are not among
    /// them: they follow their interrupt.
    pub threads: Vec<ThreadId>,
}

/// CPUs that are given to the RT path.
struct Dedication<'a> {
    machine: &'a Machine,
    cpus: &'a CpuSet,
    /// All other CPUs that are online.
    others: CpuSet,
    own: Before<'a>,
}

/// What the settings that steadyvm has made were before.
#[derive(Default)]
struct Before<'a> {
    threads: HashMap<(u32, u64), &'a CpuSet>,
    irqs: HashMap<u32, &'a IrqCpus>,
    files: HashMap<&'a str, &'a str>,
}

impl<'a> Before<'a> {
    fn of(own: &'a [Step]) -> Self {
        let mut before = Self::default();
        for step in own {
            match &step.change {
                Change::ThreadAffinity(change) => {
                    let thread = &change.setting.thread;
                    let key = (thread.tid, thread.start_time);
                    before.threads.entry(key).or_insert(&change.old);
                }
                Change::IrqAffinity(change) => {
                    before.irqs.entry(change.setting.irq).or_insert(&change.old);
                }
                Change::File(change) => {
                    let path = change.setting.path.as_str();
                    before.files.entry(path).or_insert(&change.old);
                }
                _ => {}
            }
        }
        before
    }
}

/// The steps that dedicate CPUs.
///
/// # Errors
/// One of them is not online, or the host cannot be read.
pub(crate) fn steps(
    machine: &Machine,
    threads: &[Thread],
    cpus: &CpuSet,
    path: &Path,
    own: &[Step],
) -> Result<Vec<Step>, HostError> {
    let online = machine.online()?;
    if !cpus.is_subset(&online) {
        return Err(HostError::Unsupported {
            missing: format!("the dedicated CPU {cpus} is not online ({online} are)"),
            fix: format!("bring it online, or name one of {online} (--cpu)"),
        });
    }
    let dedication = Dedication {
        machine,
        cpus,
        others: without(&online, cpus),
        own: Before::of(own),
    };
    let mut steps = dedication.clear(path)?;
    steps.extend(dedication.place(path)?);
    steps.extend(dedication.move_others(threads, path));
    Ok(steps)
}

/// The steps that take CPUs out of masks in files; none for a file that is not there.
pub(crate) fn masks(
    machine: &Machine,
    cpus: &CpuSet,
    files: impl IntoIterator<Item = String>,
    own: &[Step],
) -> Result<Vec<Step>, HostError> {
    let dedication = Dedication {
        machine,
        cpus,
        others: without(&machine.online()?, cpus),
        own: Before::of(own),
    };
    let files = files.into_iter();
    Ok(files
        .filter_map(|path| dedication.mask_file(path))
        .collect())
}

impl Dedication<'_> {
    /// Moves interrupts, workqueues and packet steering of everything else off the CPU.
    fn clear(&self, path: &Path) -> Result<Vec<Step>, HostError> {
        let mut files = vec![
            "/sys/devices/virtual/workqueue/cpumask".to_owned(),
            "/proc/irq/default_smp_affinity".to_owned(),
        ];
        let tree = &self.machine.tree;
        for nic in tree.list("/sys/class/net").unwrap_or_default() {
            if path.nics.contains(&nic) {
                continue;
            }
            let queues = format!("/sys/class/net/{nic}/queues");
            let names = tree.list(&queues).unwrap_or_default().into_iter();
            let receive = names.filter(|queue| queue.starts_with("rx-"));
            files.extend(receive.map(|queue| format!("{queues}/{queue}/rps_cpus")));
        }
        let mut steps: Vec<Step> = files
            .into_iter()
            .filter_map(|path| self.mask_file(path))
            .collect();
        let names = parse::interrupts(&self.machine.must_read("/proc/interrupts")?);
        for entry in tree.list("/proc/irq").unwrap_or_default() {
            let Ok(irq) = entry.parse::<u32>() else {
                continue;
            };
            // Nobody has asked for those without a name: they do not fire.
            let used = names
                .iter()
                .find(|interrupt| interrupt.irq == irq && !interrupt.actions.is_empty());
            let Some(used) = used.filter(|_| !path.irqs.contains_key(&irq)) else {
                continue;
            };
            let name = used.actions.join(", ");
            let setting = IrqAffinity { irq, name };
            let Ok(now) = setting.read(self.machine) else {
                continue;
            };
            let before = self.own.irqs.get(&irq).map_or(&now.cpus, |old| &old.cpus);
            if self.is_touched_by(before) {
                let new = self.remaining(before).into();
                let change = ChangeOf {
                    setting,
                    old: now,
                    new,
                };
                steps.push(Step::optional(change, KEPT_FREE));
            }
        }
        Ok(steps)
    }

    /// Puts the RT NICs' interrupts and the threads of the RT path on the CPU.
    fn place(&self, path: &Path) -> Result<Vec<Step>, HostError> {
        let mut steps = Vec::new();
        let mut irqs: Vec<(&u32, &String)> = path.irqs.iter().collect();
        irqs.sort();
        for (&irq, name) in irqs {
            let name = name.clone();
            let setting = IrqAffinity { irq, name };
            let change = ChangeOf {
                old: setting.read(self.machine)?,
                setting,
                new: self.cpus.clone().into(),
            };
            steps.push(Step::required(change, SERVES));
        }
        let cpus: Vec<usize> = self.cpus.iter().collect();
        for (thread, &cpu) in path.threads.iter().zip(cpus.iter().cycle()) {
            // One that ended meanwhile needs no CPU.
            let Ok(old) = self.machine.threads.affinity(thread.tid) else {
                continue;
            };
            let change = ChangeOf {
                setting: ThreadAffinity {
                    thread: thread.clone(),
                },
                old,
                new: CpuSet::single(cpu),
            };
            steps.push(Step::required(change, SERVES));
        }
        Ok(steps)
    }

    /// Moves all other threads off the CPU.
    fn move_others(&self, threads: &[Thread], path: &Path) -> Vec<Step> {
        let placed: HashSet<u32> = path.threads.iter().map(|thread| thread.tid).collect();
        let mut steps = Vec::new();
        for thread in threads {
            // IRQ threads follow their interrupts.
            let follows = thread.is_kernel() && parse::irq_of_thread(&thread.id.comm).is_some();
            if follows || !thread.is_movable() || placed.contains(&thread.id.tid) {
                continue;
            }
            let Ok(old) = self.machine.threads.affinity(thread.id.tid) else {
                continue;
            };
            let key = (thread.id.tid, thread.id.start_time);
            let before = self.own.threads.get(&key).copied().unwrap_or(&old);
            if self.is_touched_by(before) {
                let change = ChangeOf {
                    setting: ThreadAffinity {
                        thread: thread.id.clone(),
                    },
                    new: self.remaining(before),
                    old,
                };
                steps.push(Step::optional(change, KEPT_FREE));
            }
        }
        steps
    }

    fn is_touched_by(&self, set: &CpuSet) -> bool {
        !set.intersection(self.cpus).is_empty()
    }

    /// What is left of a set without the CPUs: all other CPUs if that is nothing.
    fn remaining(&self, set: &CpuSet) -> CpuSet {
        let rest = without(set, self.cpus);
        if rest.intersection(&self.others).is_empty() {
            self.others.clone()
        } else {
            rest
        }
    }

    fn mask_file(&self, path: String) -> Option<Step> {
        let setting = File::new(self.machine, path, Form::CpuMask);
        let old = setting.read(self.machine).ok()?;
        let before = self.own.files.get(setting.path.as_str());
        let before = CpuSet::from_mask(before.unwrap_or(&old.as_str())).ok()?;
        self.is_touched_by(&before).then(|| {
            let new = self.remaining(&before).to_mask();
            Step::optional(ChangeOf { setting, old, new }, KEPT_FREE)
        })
    }
}

fn without(set: &CpuSet, cpus: &CpuSet) -> CpuSet {
    set.iter().filter(|&cpu| !cpus.contains(cpu)).collect()
}
