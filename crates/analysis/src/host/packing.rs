//! Which VCPU on which CPU of a partitioned host.
//!
//! Rule: best fit: each VCPU goes to the CPU of the largest bandwidth among those that allow it and can
//! still keep every promise; CPUs that already hold a sibling (a VCPU of the same VM) come last. Tried
//! in the order given, then by falling bandwidth, then without regard to siblings; for up to
//! [`EXACT_LIMIT`] VCPUs, last, by exhaustive search with a bound on its work. So a refusal is a proof
//! up to that size (if the search ended), a heuristic's answer beyond.
//!
//! Complexity: VCPUs * CPUs tests of one CPU; at most [`SEARCH_NODES`] tests in the search.
//! Source: the dissertation's section 3.3.1.

use std::cmp::{Ordering, Reverse};

use super::{Candidate, Dispatch, VcpuServer, admission::overloads, partitioned};
use crate::{
    ratio::{Fraction, Interval},
    task::Task,
    time::{Amount, Time},
    verdict::{Stop, Verdict, Violation},
    work::{STEPS_SHARE, Work},
};

/// Up to this many VCPUs a packing is searched for exhaustively.
pub const EXACT_LIMIT: usize = 16;

/// Tests of one CPU that the exhaustive search may spend.
pub const SEARCH_NODES: usize = 20_000;

/// The rules of one CPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub dispatch: Dispatch,
    pub server: VcpuServer,
    /// Of each CPU, what VCPUs may have together.
    pub usable_percent: u8,
}

/// Where VCPUs have more of so many CPUs than they may: a witness of a second.
///
/// Counted as `SCHED_DEADLINE` does, in 2^-20 of a CPU, each rounded down (`to_ratio()`).
pub(super) fn beyond_usable<'t>(
    usable_percent: u8,
    vcpus: impl Iterator<Item = &'t Task>,
    cpus: usize,
    index: usize,
) -> Option<Violation> {
    const SECOND: Time = 1_000_000_000;
    if usable_percent >= 100 {
        return None;
    }
    let ratio = |vcpu: &Task| (Amount::from(vcpu.demand()) << 20) / Amount::from(vcpu.period());
    let load: Amount = vcpus.map(ratio).sum();
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
    for &index in order {
        let candidate = &candidates[index];
        if let Err(exhausted) = work.spend(bins.len() / STEPS_SHARE + 1, 0) {
            return Err((index, exhausted.into()));
        }
        let mut home: Option<((bool, Reverse<Interval>), usize)> = None;
        for (b, bin) in bins
            .iter()
            .enumerate()
            .filter(|(_, bin)| candidate.allows(bin.cpu))
        {
            let sibling = apart
                && bin
                    .members
                    .iter()
                    .any(|&member| candidates[member].vm == candidate.vm);
            let rank = (sibling, Reverse(bin.load));
            let better = home.is_none_or(|(best, _)| rank < best);
            if better && fits(bin, index, candidates, rules, work) {
                home = Some((rank, b));
            }
        }
        let Some((_, home)) = home else {
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
        bins[home].members.push(index);
        bins[home].load = bins[home].load.plus(candidate.task.utilization());
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
    let plain = |task: &Task| task.jitter() == 0 && task.deadline() == task.period();
    let implicit = rules.server != VcpuServer::Deferrable
        && plain(task)
        && (bin.members.iter()).all(|&member| plain(&candidates[member].task));
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
    let members = bin.members.iter().copied().chain([index]);
    let tasks = members.map(|member| &candidates[member].task);
    beyond_usable(rules.usable_percent, tasks, 1, index)
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
    let members: Vec<usize> = bin.members.iter().copied().chain([index]).collect();
    let tasks: Vec<Task> = members
        .iter()
        .map(|&member| candidates[member].task)
        .collect();
    match partitioned::test(&tasks, rules.dispatch, rules.server, work) {
        Verdict::Unschedulable(mut violation) => {
            violation.index = members[violation.index];
            Verdict::Unschedulable(violation)
        }
        verdict => verdict,
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
            let before = bins[b].load;
            bins[b].members.push(index);
            bins[b].load = before.plus(self.candidates[index].task.utilization());
            if self.place(depth + 1, bins)? {
                return Some(true);
            }
            bins[b].members.pop();
            bins[b].load = before;
        }
        Some(false)
    }
}
