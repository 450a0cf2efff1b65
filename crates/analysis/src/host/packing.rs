//! Which VCPU on which CPU of a partitioned host.
//!
//! Rule: best fit: each VCPU goes to the CPU of the largest bandwidth among those that allow it and can
//! still keep every promise; CPUs that already hold a sibling (a VCPU of the same VM) come last. Tried
//! in the order given, then by falling bandwidth, then without regard to siblings; for up to
//! [`EXACT_LIMIT`] VCPUs, last, by exhaustive search with a bound on its work. So a refusal is a proof
//! up to that size (if the search ended), a heuristic's answer beyond.
//!
//! Complexity: CPUs are kept in order of bandwidth, so the first one that accepts is the best, and those that a VCPU
//! would overload are passed over at once. Where utilisation decides that is one look a VCPU; else at most
//! VCPUs * CPUs tests of one CPU. At most [`SEARCH_NODES`] tests in the search.
//! Source: the dissertation's section 3.3.1.

use std::cmp::{Ordering, Reverse};

use super::{Candidate, Dispatch, VcpuServer, clusters::together, partitioned, rules::Rules};
use crate::{
    ratio::{Fraction, Interval},
    task::Task,
    time::{Amount, Time},
    verdict::{Stop, Verdict, Violation},
    work::{STEPS_SHARE, Work},
};

/// More utilisation than CPUs, for certain.
pub(super) fn overloads(candidates: &[Candidate], cpus: usize) -> bool {
    let sum = Interval::of(
        candidates
            .iter()
            .map(|candidate| candidate.task.utilization()),
    );
    sum.compare(Fraction::new(cpus as i128, 1))
        .is_some_and(std::cmp::Ordering::is_gt)
}

#[cfg(test)]
mod tests;

/// Up to this many VCPUs a packing is searched for exhaustively.
pub const EXACT_LIMIT: usize = 16;

/// Tests of one CPU that the exhaustive search may spend.
pub const SEARCH_NODES: usize = 20_000;

/// Where VCPUs have more of so many CPUs than they may: a witness of a second.
///
/// Counted as `SCHED_DEADLINE` does, in 2^-20 of a CPU, each rounded down (`to_ratio()`).
pub(super) fn beyond_usable<'t>(
    usable_percent: u8,
    vcpus: impl Iterator<Item = &'t Task>,
    cpus: usize,
    index: usize,
) -> Option<Violation> {
    if usable_percent >= 100 {
        return None;
    }
    beyond(usable_percent, vcpus.map(ratio).sum(), cpus, index)
}

/// What `SCHED_DEADLINE` counts of a VCPU.
fn ratio(vcpu: &Task) -> Amount {
    (Amount::from(vcpu.demand()) << 20) / Amount::from(vcpu.period())
}

fn beyond(usable_percent: u8, load: Amount, cpus: usize, index: usize) -> Option<Violation> {
    const SECOND: Time = 1_000_000_000;
    let usable = Amount::from(usable_percent) * cpus as Amount;
    let supply = usable * Amount::from(SECOND / 100);
    (load * 100 > usable << 20).then(|| Violation {
        index,
        at: SECOND,
        demand: ((load * Amount::from(SECOND)) >> 20).max(supply + 1),
        supply,
    })
}

/// A CPU and the candidates on it.
#[derive(Debug, Clone)]
pub(super) struct Bin {
    pub cpu: u32,
    pub members: Vec<usize>,
    load: Interval,
    /// The sum of [`ratio`].
    ratio: Amount,
    /// None of its members has jitter, or a deadline below its period.
    plain: bool,
}

impl Bin {
    fn put(&mut self, index: usize, task: &Task) {
        self.members.push(index);
        self.load = self.load.plus(task.utilization());
        self.ratio += ratio(task);
        self.plain &= plain(task);
    }
}

fn plain(task: &Task) -> bool {
    task.jitter() == 0 && task.deadline() == task.period()
}

/// The result of packing.
pub(super) enum Packing {
    Packed(Vec<Bin>),
    /// The first candidate without a place, why its best CPU refuses it, and whether that is a proof.
    Refused {
        candidate: usize,
        verdict: Verdict,
        proven: bool,
    },
}

/// Packs `candidates` on `cpus`.
pub(super) fn pack(
    candidates: &[Candidate],
    cpus: &[u32],
    rules: Rules,
    work: &mut Work,
) -> Packing {
    let given: Vec<usize> = (0..candidates.len()).collect();
    let mut falling = given.clone();
    let by_load: Vec<Interval> = candidates
        .iter()
        .map(|candidate| Interval::default().plus(candidate.task.utilization()))
        .collect();
    // Restricted candidates choose first.
    falling.sort_by_key(|&i| (candidates[i].mask.is_none(), Reverse(by_load[i])));
    let mut refused = None;
    for (order, apart) in [(&given, true), (&falling, true), (&falling, false)] {
        match best_fit(candidates, order, cpus, rules, apart, work) {
            Ok(bins) => return Packing::Packed(bins),
            Err(misfit) => refused = refused.or(Some(misfit)),
        }
    }
    let mut proven = overloads(candidates, cpus.len());
    if !proven && candidates.len() <= EXACT_LIMIT {
        let mut search = Search {
            candidates,
            order: &falling,
            rules,
            nodes: SEARCH_NODES,
            work,
        };
        let mut bins = empty_bins(cpus);
        match search.place(0, &mut bins) {
            Some(true) => return Packing::Packed(bins),
            Some(false) => proven = true,
            None => {}
        }
    }
    let (candidate, verdict) = refused.unwrap_or((0, Verdict::Undecided(Stop::precision())));
    Packing::Refused {
        candidate,
        verdict,
        proven,
    }
}

fn empty_bins(cpus: &[u32]) -> Vec<Bin> {
    cpus.iter()
        .map(|&cpu| Bin {
            cpu,
            members: Vec::new(),
            load: Interval::default(),
            ratio: 0,
            plain: true,
        })
        .collect()
}

fn best_fit(
    candidates: &[Candidate],
    order: &[usize],
    cpus: &[u32],
    rules: Rules,
    apart: bool,
    work: &mut Work,
) -> Result<Vec<Bin>, (usize, Verdict)> {
    let mut bins = empty_bins(cpus);
    let one = Fraction::new(1, 1);
    // The fullest first; at equal bandwidths in the order of `cpus`.
    let rank = |bins: &[Bin], bin: usize| (Reverse(bins[bin].load), bin);
    let mut fullest: Vec<usize> = (0..bins.len()).collect();
    for &index in order {
        let candidate = &candidates[index];
        if let Err(exhausted) = work.spend(bins.len() / STEPS_SHARE + 1, 0) {
            return Err((index, exhausted.into()));
        }
        let own = candidate.task.utilization();
        let overloaded =
            |&bin: &usize| bins[bin].load.plus(own).compare(one) == Some(Ordering::Greater);
        let begin = fullest.partition_point(overloaded);
        let mut siblings = Vec::new();
        // Without a mask empty CPUs are alike.
        let mut refused_empty = false;
        let mut accepts = |&bin: &usize| {
            let empty = candidate.mask.is_none() && bins[bin].members.is_empty();
            if refused_empty && empty {
                return false;
            }
            let accepted = fits(&bins[bin], index, candidates, rules, work);
            refused_empty |= empty && !accepted;
            accepted
        };
        let mut usable = (fullest[begin..].iter().copied())
            .filter(|&bin| candidate.allows(bins[bin].cpu))
            .filter(|&bin| {
                let mut members = bins[bin].members.iter();
                let sibling = apart && members.any(|&member| candidates[member].vm == candidate.vm);
                if sibling {
                    siblings.push(bin);
                }
                !sibling
            });
        let home = usable.find(&mut accepts);
        let home = home.or_else(|| siblings.iter().copied().find(&mut accepts));
        let Some(home) = home else {
            // The emptiest CPU comes closest: its reason explains.
            let emptiest = bins
                .iter()
                .filter(|bin| candidate.allows(bin.cpu))
                .min_by_key(|bin| bin.load);
            let verdict = emptiest.map(|bin| test(bin, index, candidates, rules, work));
            return Err((
                index,
                verdict.unwrap_or(Verdict::Undecided(Stop::precision())),
            ));
        };
        let old = fullest.partition_point(|&bin| rank(&bins, bin) < rank(&bins, home));
        fullest.remove(old);
        bins[home].put(index, &candidate.task);
        let new = fullest.partition_point(|&bin| rank(&bins, bin) < rank(&bins, home));
        fullest.insert(new, home);
    }
    Ok(bins)
}

/// Whether `bin` keeps every promise with one more candidate.
fn fits(bin: &Bin, index: usize, candidates: &[Candidate], rules: Rules, work: &mut Work) -> bool {
    let task = &candidates[index].task;
    let load = bin.load.plus(task.utilization());
    if crowded(bin, index, candidates, rules).is_some() {
        return false;
    }
    let implicit = rules.fair_server.is_none()
        && rules.starts.are_free()
        && rules.server != VcpuServer::Deferrable
        && plain(task)
        && bin.plain;
    // Up to here utilisation alone decides: 1 under EDF; ln 2 = 0.693.. under DM (Liu and Layland).
    let enough = match rules.dispatch {
        Dispatch::EarliestDeadline => Fraction::new(1, 1),
        Dispatch::FixedPriority => Fraction::new(69, 100),
    };
    match (load.compare(Fraction::new(1, 1)), load.compare(enough)) {
        (Some(Ordering::Greater), _) => false,
        (_, Some(Ordering::Less | Ordering::Equal)) if implicit => true,
        _ => test(bin, index, candidates, rules, work).is_schedulable(),
    }
}

/// Where `bin` with one more candidate has more of its CPU than it may.
fn crowded(bin: &Bin, index: usize, candidates: &[Candidate], rules: Rules) -> Option<Violation> {
    if rules.usable_percent >= 100 {
        return None;
    }
    let load = bin.ratio + ratio(&candidates[index].task);
    beyond(rules.usable_percent, load, 1, index)
}

/// The verdict of `bin` with one more candidate; a violation's index is a candidate.
fn test(
    bin: &Bin,
    index: usize,
    candidates: &[Candidate],
    rules: Rules,
    work: &mut Work,
) -> Verdict {
    if let Some(violation) = crowded(bin, index, candidates, rules) {
        return Verdict::Unschedulable(violation);
    }
    let mut members: Vec<usize> = bin.members.iter().copied().chain([index]).collect();
    // In order of number, as priorities are installed: of equal deadlines the first one comes first.
    members.sort_unstable();
    let tasks: Vec<Task> = if rules.starts.are_free() {
        members.iter().map(|&it| candidates[it].task).collect()
    } else {
        match paying(&members, index, candidates, rules) {
            Ok(tasks) => tasks,
            Err(violation) => return Verdict::Unschedulable(violation),
        }
    };
    let rules = rules.of(members.iter().map(|&it| &candidates[it]));
    match partitioned::test(&tasks, rules, work) {
        Verdict::Unschedulable(mut violation) => {
            violation.index = members[violation.index];
            Verdict::Unschedulable(violation)
        }
        verdict => verdict,
    }
}

/// The tasks of `members` with what they pay after each other, if each has room for that and all have for their CPU's share.
fn paying(
    members: &[usize],
    index: usize,
    candidates: &[Candidate],
    rules: Rules,
) -> Result<Vec<Task>, Violation> {
    let sharing: Vec<&Candidate> = members.iter().map(|&it| &candidates[it]).collect();
    let tasks = together(&sharing, rules.starts).map_err(|violation| {
        let of = |&&it: &&usize| candidates[it].index == violation.index;
        let index = members.iter().find(of).copied().unwrap_or(index);
        Violation { index, ..violation }
    })?;
    match beyond_usable(rules.usable_percent, tasks.iter(), 1, index) {
        Some(violation) => Err(violation),
        None => Ok(tasks),
    }
}

struct Search<'a> {
    candidates: &'a [Candidate],
    order: &'a [usize],
    rules: Rules,
    nodes: usize,
    work: &'a mut Work,
}

impl Search<'_> {
    /// Places the rest of the order; `None` if the allowed tests ran out.
    fn place(&mut self, depth: usize, bins: &mut [Bin]) -> Option<bool> {
        let Some(&index) = self.order.get(depth) else {
            return Some(true);
        };
        let masked = self
            .candidates
            .iter()
            .any(|candidate| candidate.mask.is_some());
        let mut tried_empty = false;
        for b in 0..bins.len() {
            let empty = bins[b].members.is_empty();
            // Without masks empty CPUs are alike.
            if !self.candidates[index].allows(bins[b].cpu) || (empty && tried_empty && !masked) {
                continue;
            }
            tried_empty |= empty;
            self.nodes = self.nodes.checked_sub(1)?;
            match test(&bins[b], index, self.candidates, self.rules, self.work) {
                Verdict::Schedulable => {}
                Verdict::Unschedulable(_) => continue,
                Verdict::Undecided(_) => return None,
            }
            let before = (bins[b].load, bins[b].ratio, bins[b].plain);
            bins[b].put(index, &self.candidates[index].task);
            if self.place(depth + 1, bins)? {
                return Some(true);
            }
            bins[b].members.pop();
            (bins[b].load, bins[b].ratio, bins[b].plain) = before;
        }
        Some(false)
    }
}
