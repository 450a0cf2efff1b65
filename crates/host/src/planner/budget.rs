//! Budgets of virtual CPUs, enforced by `SCHED_DEADLINE`; `vcpu_scheduler` has the other mechanism.
//!
//! A virtual CPU then gets its runtime in every period before all FIFO and normal threads, and no more
//! (kernel/sched/deadline.c, constant bandwidth server). The kernel refuses what the CPUs cannot hold, and
//! threads that may not run on all CPUs of their root domain: that is global EDF.
//!
//! **Partitioned EDF.** A cpuset partition would take the CPU from every other thread of the host. So the
//! kernel's admission is switched off (`sched_rt_runtime_us` = -1), the plan's takes its place, and each
//! virtual CPU is pinned to the CPU of its plan. From 6.12 on that sysctl limits nothing else: the fair server
//! keeps normal threads alive. Before, it also bounds FIFO threads, so that older kernels are refused.

use std::collections::{BTreeMap, BTreeSet};

use steadyvm_sched::enforcement::Reserved;

use super::step::Step;
use crate::cpu_set::CpuSet;
use crate::error::{HostError, at};
use crate::parse;
use crate::profile::VmProfile;
use crate::profile::{USABLE_BY_EXT_PERCENT, USABLE_PERCENT, VcpuBudget};
use crate::settings::{
    ChangeOf, File, Form, Machine, SettingKind, ThreadAffinity, ThreadId, ThreadPolicy,
};

/// Its -1 switches admission off.
const THROTTLING: &str = "/proc/sys/kernel/sched_rt_runtime_us";

/// A budget, and the CPUs that it is promised on; none: all.
struct Promise {
    cpus: BTreeSet<usize>,
    /// Of 2^20, as the kernel's `to_ratio()` counts.
    share: u64,
}

impl Promise {
    fn new(cpus: impl IntoIterator<Item = u32>, budget_ns: u64, period_ns: u64) -> Self {
        let share = (u128::from(budget_ns) << 20) / u128::from(period_ns.max(1));
        let share = u64::try_from(share).unwrap_or(u64::MAX);
        let cpus = cpus.into_iter().map(|cpu| cpu as usize).collect();
        Self { cpus, share }
    }
}

/// What CPUs have to give: a share of each, and why not more.
#[derive(Clone, Copy)]
struct Room {
    percent: u8,
    why: &'static str,
    fix: &'static str,
}

/// Where the kernel admits nobody, and we do in its place.
const BY_DEADLINE: Room = Room {
    percent: USABLE_PERCENT,
    why: "95 % of a CPU, less its fair server's 5 %",
    fix: "plan with enforce = \"deadline\", smaller budgets or more CPUs",
};

/// Beyond it normal threads get nothing, and the watchdog of `sched_ext` ends the scheduler after 30 s.
const BY_EXT: Room = Room {
    percent: USABLE_BY_EXT_PERCENT,
    why: "threads without a budget need the rest",
    fix: "use smaller budgets or more CPUs",
};

/// More sets of CPUs are refused: masks of a host are those of its nodes, and few.
const MOST_SETS: usize = 1024;

/// The sets of CPUs that promises may fill: each mask, and masks together that share a CPU. What fits each of these fits all. None
/// if they are more than [`MOST_SETS`].
fn sets(promises: &[Promise]) -> Option<BTreeSet<BTreeSet<usize>>> {
    let masks: BTreeSet<_> = (promises.iter())
        .map(|promise| promise.cpus.clone())
        .filter(|mask| !mask.is_empty())
        .collect();
    let mut sets = masks.clone();
    let mut new: Vec<_> = masks.iter().cloned().collect();
    while let Some(set) = new.pop() {
        for mask in masks.iter().filter(|mask| !set.is_disjoint(mask)) {
            let joined = &set | mask;
            if sets.insert(joined.clone()) {
                new.push(joined);
            }
            if sets.len() > MOST_SETS {
                return None;
            }
        }
    }
    Some(sets)
}

/// Refuses what would be promised beyond this share of some CPUs, or of all together. Else budgets would starve every other
/// thread.
fn admit(promises: &[Promise], online: &CpuSet, room: Room) -> Result<(), HostError> {
    let Room { percent, why, fix } = room;
    let percent = u64::from(percent);
    let check = |place: String, load: u64, cpus: u64| {
        let room = percent * cpus * (1 << 20);
        if load.saturating_mul(100) <= room {
            return Ok(());
        }
        Err(HostError::BadInput {
            what: format!(
                "budgets of {:.1} % on {place} are more than the {} % that it has to give: {why}",
                load as f64 * 100.0 / f64::from(1 << 20),
                percent * cpus
            ),
            fix: format!("{fix}; nothing was changed"),
        })
    };
    let sum = |load: u64, promise: &Promise| load.saturating_add(promise.share);
    let sets = sets(promises).ok_or_else(|| HostError::BadInput {
        what: format!(
            "the VMs' lists of CPUs overlap in more than {MOST_SETS} ways: whether their budgets fit cannot be told"
        ),
        fix: "give VMs the same cpus, or ones that share none; nothing was changed".into(),
    })?;
    for set in sets {
        let inside = |promise: &&Promise| !promise.cpus.is_empty() && promise.cpus.is_subset(&set);
        let load = promises.iter().filter(inside).fold(0, sum);
        let here: CpuSet = set
            .iter()
            .copied()
            .filter(|&cpu| online.contains(cpu))
            .collect();
        let cpus = here.len() as u64;
        // Another check says that none of them is online.
        if cpus == 0 {
            continue;
        }
        let word = if cpus == 1 { "CPU" } else { "CPUs" };
        check(format!("{word} {here}"), load, cpus)?;
    }
    let all = promises.iter().fold(0, sum);
    check("all CPUs".into(), all, online.len() as u64)
}

/// Promises of VMs that were admitted one after the other: a VM that does not fit beside those before it takes nothing from
/// them.
pub(super) struct Admission<'a> {
    online: &'a CpuSet,
    room: Room,
    promises: Vec<Promise>,
}

impl<'a> Admission<'a> {
    /// Of the `sched_ext` scheduler.
    pub fn by_ext(online: &'a CpuSet) -> Self {
        Self {
            online,
            room: BY_EXT,
            promises: Vec::new(),
        }
    }

    /// Admits all of these beside those that were admitted before, or none.
    ///
    /// # Errors
    /// The CPU that has no room, and how much it has.
    pub fn admit(&mut self, reserved: &[Reserved]) -> Result<(), HostError> {
        let one = |vcpu: &Reserved| {
            Promise::new(vcpu.cpus.iter().copied(), vcpu.budget_ns, vcpu.period_ns)
        };
        self.add(reserved.iter().map(one))
    }

    fn add(&mut self, promises: impl Iterator<Item = Promise>) -> Result<(), HostError> {
        let before = self.promises.len();
        self.promises.extend(promises);
        let admitted = admit(&self.promises, self.online, self.room);
        if admitted.is_err() {
            self.promises.truncate(before);
        }
        admitted
    }
}

/// Whether some budget is to be kept on one CPU.
pub(super) fn is_partitioned(vms: &[VmProfile]) -> bool {
    let mut budgets = vms.iter().flat_map(VmProfile::deadline_budgets);
    budgets.any(|budget| budget.cpu.is_some())
}

/// Admits the VMs one after the other in the place of the kernel, which knows global EDF only. Returns how many have budgets
/// that are admitted, and why the others are not.
pub(super) fn admit_each(
    vms: &[&VmProfile],
    online: &CpuSet,
) -> (usize, BTreeMap<String, HostError>) {
    let mut admission = Admission {
        online,
        room: BY_DEADLINE,
        promises: Vec::new(),
    };
    let mut admitted = 0;
    let mut refused = BTreeMap::new();
    let has_some = |vm: &&&VmProfile| vm.deadline_budgets().next().is_some();
    for vm in vms.iter().filter(has_some) {
        let promise =
            |budget: &VcpuBudget| Promise::new(budget.cpu, budget.runtime_ns, budget.period_ns);
        match admission.add(vm.deadline_budgets().map(promise)) {
            Ok(()) => admitted += 1,
            Err(error) => drop(refused.insert(vm.name.clone(), error)),
        }
    }
    (admitted, refused)
}

/// The step that switches off the kernel's admission, whose place ours has taken.
pub(super) fn admission_off(machine: &Machine) -> Result<Step, HostError> {
    let release = machine.kernel_release().unwrap_or_default();
    if parse::kernel_version(&release).is_none_or(|version| version < (6, 12)) {
        return Err(HostError::Unsupported {
            missing: format!(
                "budgets on CPUs of their own on kernel {release}: without its admission its FIFO threads \
                 have no bound either"
            ),
            fix: "plan with scheduler = \"gedf\", or use Linux 6.12 or later".into(),
        });
    }
    let setting = File::new(machine, THROTTLING, Form::Text);
    let old = setting.read(machine)?;
    let new = "-1".to_owned();
    let why = "so that virtual CPUs with budgets stay on the CPUs of their plan, which admits them";
    Ok(Step::required(ChangeOf { setting, old, new }, why))
}

/// What a VM's threads of one kind get from `receive`, in the order of their numbers: as many as the plan has counted, or fewer.
pub(super) fn receive_steps(
    machine: &Machine,
    (threads, budgets): (&[ThreadId], &[VcpuBudget]),
    key: &str,
    why: &str,
    place: &str,
) -> Result<Vec<Step>, HostError> {
    if threads.len() > budgets.len() {
        return Err(HostError::BadInput {
            what: at(
                place,
                &format!(
                    "receive: the budget is for {} threads, and {} do that work",
                    budgets.len(),
                    threads.len()
                ),
            ),
            fix: format!("write {key} = {} into receive", threads.len()),
        });
    }
    let mut threads: Vec<&ThreadId> = threads.iter().collect();
    threads.sort_by_key(|thread| thread.tid);
    let mut made = Vec::new();
    for (thread, budget) in threads.into_iter().zip(budgets) {
        made.extend(steps(machine, thread, budget, why, place)?);
    }
    Ok(made)
}

/// Why a virtual CPU has a budget.
pub(super) const OF_PLAN: &str = "so that it gets its planned budget in every period, and no more";

/// The steps that give a thread its budget, and its CPU before that. None if it ended meanwhile. `place` is
/// the VM's in the file, for messages.
pub(super) fn steps(
    machine: &Machine,
    thread: &ThreadId,
    budget: &VcpuBudget,
    why: &str,
    place: &str,
) -> Result<Vec<Step>, HostError> {
    budget.check().map_err(|what| HostError::BadInput {
        what: at(place, &what),
        fix: "choose another period or budget".into(),
    })?;
    let setting = ThreadPolicy {
        thread: thread.clone(),
    };
    let old = match setting.read(machine) {
        Ok(old) => old,
        Err(HostError::Vanished { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut steps = Vec::new();
    if let Some(cpu) = budget.cpu {
        let cpus = CpuSet::single(cpu as usize);
        let Some(step) = on_its_cpus(machine, thread, cpus, place)? else {
            return Ok(Vec::new());
        };
        steps.push(step);
    }
    // Without it a thread with a budget cannot start others (kernel/sched/core.c, sched_fork).
    let new = budget.scheduling(crate::settings::threads::RESET_ON_FORK);
    steps.push(Step::required(ChangeOf { setting, old, new }, why));
    Ok(steps)
}

/// The step that keeps a virtual CPU on the CPUs of its plan. None if it ended meanwhile.
pub(super) fn on_its_cpus(
    machine: &Machine,
    thread: &ThreadId,
    cpus: CpuSet,
    place: &str,
) -> Result<Option<Step>, HostError> {
    if !cpus.is_subset(&machine.online()?) {
        return Err(HostError::BadInput {
            what: at(
                place,
                &format!("its plan is for CPU {cpus}, which is not online"),
            ),
            fix: "bring the CPU online, or plan with fewer pcpus".into(),
        });
    }
    let setting = ThreadAffinity {
        thread: thread.clone(),
    };
    let old = match setting.read(machine) {
        Ok(old) => old,
        Err(HostError::Vanished { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let why = "because its budget is planned there";
    let new = cpus;
    Ok(Some(Step::required(ChangeOf { setting, old, new }, why)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CPUS: usize = 4;

    fn online() -> CpuSet {
        (0..CPUS).collect()
    }

    proptest! {
        /// What every set of CPUs has room for is admitted, and nothing else.
        #[test]
        fn what_any_cpus_together_lack_room_for_is_refused(
            asked in prop::collection::vec((0_u32..1 << CPUS, 1_u64..=100), 0..7),
        ) {
            let cpus = |mask: u32| (0..CPUS as u32).filter(move |cpu| (mask >> cpu) & 1 == 1);
            let promises: Vec<Promise> = (asked.iter())
                .map(|&(mask, percent)| Promise::new(cpus(mask), percent, 100))
                .collect();
            let fits = |within: u32| {
                // No mask: all CPUs.
                let mask_of = |mask: u32| if mask == 0 { (1 << CPUS) - 1 } else { mask };
                let inside = asked.iter().filter(|(mask, _)| mask_of(*mask) & !within == 0);
                let load: u64 = inside.map(|(_, percent)| (percent << 20) / 100).sum();
                load * 100 <= (u64::from(USABLE_PERCENT) * u64::from(within.count_ones())) << 20
            };
            let all_fit = (1..1_u32 << CPUS).all(fits);
            prop_assert_eq!(admit(&promises, &online(), BY_DEADLINE).is_ok(), all_fit);
        }
    }

    #[test]
    fn the_cpus_without_room_are_named() {
        let pair = || [0, 1];
        let promises = [(); 3].map(|()| Promise::new(pair(), 70, 100));
        let error = admit(&promises, &online(), BY_EXT).unwrap_err().to_string();
        assert!(
            error.contains("210.0 % on CPUs 0-1 are more than the 190 %"),
            "{error}"
        );
        // Each list has CPU 0 and one more: any of them together are a set of their own.
        let promises: Vec<Promise> = (1..12).map(|cpu| Promise::new([0, cpu], 1, 100)).collect();
        let all = (0..12).collect();
        let error = admit(&promises, &all, BY_EXT).unwrap_err().to_string();
        assert!(error.contains("more than 1024 ways"), "{error}");
        // An offline CPU gives nothing.
        let promises = [Promise::new([0, 9], 96, 100)];
        assert!(admit(&promises, &online(), BY_EXT).is_err());
    }
}
