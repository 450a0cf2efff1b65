//! Admission: which VCPU runs where, or why the host cannot hold them.
//!
//! Rule: VCPUs that always run get CPUs of their own ([`super::matching`]); the rest is packed on what
//! is left (partitioned) or shares it (global). A global host with CPU masks is judged by the
//! interference test alone, one of constant-bandwidth servers under EDF by the densities in each cluster of
//! CPUs that share VCPUs; one with at least as many free CPUs as VCPUs, no masks and no fair servers needs no test. VCPUs that share
//! one CPU with each other and no other CPU with anybody are tested as that CPU of a partitioned host: it is the same
//! scheduler.
//!
//! Overlapping masks, densities: while a VCPU waits, each of its CPUs executes a more urgent one of its cluster, so
//! the cluster as a whole gets one CPU at least: it holds if its densities sum up to at most 1.
//!
//! Complexity: that of the tests named in [`super`].

use super::{
    Candidate, Dispatch, FairServer, Host, Vcpu, VcpuServer, bcl,
    clusters::{Cluster, clusters, pay_after_others, together},
    fair::FairServers,
    gfb, heavy, limited, matching,
    packing::{self, Packing, overloads},
    partitioned, reservation, rta,
    rules::Rules,
    starts::Starts,
};
use crate::{
    ratio::Fraction,
    task::Task,
    time::{Amount, Time},
    verdict::{Stop, Verdict, Violation},
    work::Work,
};

/// Where a VCPU runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// It always runs and has this CPU to itself.
    Dedicated(u32),
    /// It is pinned to this CPU.
    Pinned(u32),
    /// It shares these CPUs under the global scheduler.
    Shared(Vec<u32>),
}

/// Why a host cannot hold a set of VCPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The VCPU (position in the set given) that cannot be promised its budget.
    pub vcpu: usize,
    /// What it fails.
    pub reason: RejectionReason,
}

/// What an admission test found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RejectionReason {
    /// In some window, demand exceeds supply. The violation's index is a VCPU.
    Violation(Violation),
    /// With overheads the budget exceeds the period.
    OverheadsExceedPeriod,
    /// No CPU is left that its mask allows: those it allows are all taken by VCPUs that always run.
    NoCpu(Violation),
    /// A bound was reached before the test could decide.
    Undecided(Stop),
}

/// The answer of an admission test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// A placement of every VCPU, or the reason against it.
    pub outcome: Result<Vec<Placement>, Rejection>,
    /// What each VCPU costs the host in each period at its place, and so what is to be installed; empty for a rejection.
    pub costs: Vec<Time>,
    /// For a rejection: no other placement can do either (true), or the tests and heuristics, which
    /// are only sufficient, found none (false).
    pub proven: bool,
}

impl Admission {
    /// Whether the host keeps every promise.
    pub const fn is_feasible(&self) -> bool {
        self.outcome.is_ok()
    }

    const fn feasible(placements: Vec<Placement>, costs: Vec<Time>) -> Self {
        Self {
            outcome: Ok(placements),
            costs,
            proven: true,
        }
    }

    const fn rejected(vcpu: usize, reason: RejectionReason, proven: bool) -> Self {
        Self {
            outcome: Err(Rejection { vcpu, reason }),
            costs: Vec::new(),
            proven,
        }
    }
}

/// Decides whether `host` keeps the promise of every one of `vcpus`.
pub fn admit(host: &Host, vcpus: &[Vcpu], work: &mut Work) -> Admission {
    let full: Vec<(usize, &Vcpu)> = vcpus
        .iter()
        .enumerate()
        .filter(|(_, vcpu)| vcpu.is_full())
        .collect();
    let homes = match matching::dedicate(&full, host.cpus) {
        Ok(homes) => homes,
        Err(crowded) => {
            let reason = no_cpu(
                crowded.vcpu,
                vcpus,
                crowded.cpus,
                vcpus[crowded.vcpu].period(),
            );
            return Admission::rejected(crowded.vcpu, reason, true);
        }
    };
    let mut placements = vec![Placement::Dedicated(0); vcpus.len()];
    let costs = vcpus
        .iter()
        .map(|vcpu| vcpu.cost(&host.overheads))
        .collect();
    for (&(index, _), &cpu) in full.iter().zip(&homes) {
        placements[index] = Placement::Dedicated(cpu);
    }
    let free: Vec<u32> = (0..host.cpus).filter(|cpu| !homes.contains(cpu)).collect();
    let mut candidates = Vec::with_capacity(vcpus.len() - full.len());
    for (index, vcpu) in vcpus.iter().enumerate().filter(|(_, vcpu)| !vcpu.is_full()) {
        let Some(mut candidate) = Candidate::new(index, vcpu, host) else {
            return Admission::rejected(index, RejectionReason::OverheadsExceedPeriod, true);
        };
        let taken = candidate.mask.as_ref().map_or(homes.len(), |mask| {
            mask.iter().filter(|&&cpu| cpu < host.cpus).count()
        });
        if let Some(mask) = &mut candidate.mask {
            mask.retain(|cpu| free.binary_search(cpu).is_ok());
        }
        if free.is_empty() || candidate.mask.as_ref().is_some_and(Vec::is_empty) {
            // Another choice of dedicated CPUs, if there are any, might leave one where masks restrict it.
            let proven = candidate.mask.is_none() || homes.is_empty();
            let reason = no_cpu(index, vcpus, taken, candidate.task.demand());
            return Admission::rejected(index, reason, proven);
        }
        candidates.push(candidate);
    }
    if candidates.is_empty() {
        return Admission::feasible(placements, costs);
    }
    let places = (placements, costs);
    if host.scheduler.is_partitioned() {
        place_apart(host, &candidates, &free, places, work)
    } else {
        global(host, candidates, &free, places, work)
    }
}

/// VCPUs that always run fill `taken` CPUs, and this one demands `own` in its period on the same CPUs.
fn no_cpu(index: usize, vcpus: &[Vcpu], taken: usize, own: Time) -> RejectionReason {
    let at = vcpus[index].period();
    let supply = taken as Amount * Amount::from(at);
    RejectionReason::NoCpu(Violation {
        index,
        at,
        demand: supply + Amount::from(own),
        supply,
    })
}

fn place_apart(
    host: &Host,
    candidates: &[Candidate],
    free: &[u32],
    (mut placements, mut costs): (Vec<Placement>, Vec<Time>),
    work: &mut Work,
) -> Admission {
    let rules = Rules {
        dispatch: host.scheduler.dispatch(),
        server: host.server,
        usable_percent: host.usable_percent,
        fair_server: host.fair_server,
        starts: Starts::of(host),
        isolated: host.isolated,
    };
    match packing::pack(candidates, free, rules, work) {
        Packing::Packed(bins) => {
            for bin in bins {
                let sharing = bin.members.iter().map(|&member| &candidates[member]);
                let sharing: Vec<&Candidate> = sharing.collect();
                // They fit, as they have been tested.
                let tasks = together(&sharing, rules.starts).unwrap_or_default();
                for (candidate, task) in sharing.iter().zip(tasks) {
                    placements[candidate.index] = Placement::Pinned(bin.cpu);
                    costs[candidate.index] = task.demand();
                }
            }
            Admission::feasible(placements, costs)
        }
        Packing::Refused {
            candidate,
            verdict,
            proven,
        } => {
            let reason = match verdict {
                Verdict::Unschedulable(mut violation) => {
                    violation.index = candidates[violation.index].index;
                    RejectionReason::Violation(violation)
                }
                Verdict::Undecided(stop) => RejectionReason::Undecided(stop),
                Verdict::Schedulable => RejectionReason::Undecided(Stop::precision()),
            };
            Admission::rejected(candidates[candidate].index, reason, proven)
        }
    }
}

fn global(
    host: &Host,
    mut candidates: Vec<Candidate>,
    free: &[u32],
    (mut placements, mut costs): (Vec<Placement>, Vec<Time>),
    work: &mut Work,
) -> Admission {
    if let Err(violation) = pay_after_others(host, &mut candidates, free) {
        let index = violation.index;
        let reason = RejectionReason::Violation(violation);
        return Admission::rejected(index, reason, free.len() == 1);
    }
    let tasks = candidates.iter().map(|candidate| &candidate.task);
    let last = candidates.len() - 1;
    if let Some(violation) = packing::beyond_usable(host.usable_percent, tasks, free.len(), last) {
        let index = candidates[last].index;
        let reason = RejectionReason::Violation(Violation { index, ..violation });
        return Admission::rejected(index, reason, true);
    }
    let dispatch = host.scheduler.dispatch();
    if dispatch == Dispatch::FixedPriority {
        candidates.sort_by_key(|candidate| candidate.task.deadline());
    }
    let rules = Rules {
        dispatch,
        server: host.server,
        // It has been looked at for all CPUs together.
        usable_percent: 100,
        fair_server: host.fair_server,
        // What they pay after each other is in the tasks: [`pay_after_others`].
        starts: Starts::free(dispatch),
        isolated: host.isolated,
    };
    match global_test(rules, &candidates, free, work) {
        Ok(()) => {
            for candidate in candidates {
                let cpus = candidate.mask.unwrap_or_else(|| free.to_vec());
                costs[candidate.index] = candidate.task.demand();
                placements[candidate.index] = Placement::Shared(cpus);
            }
            Admission::feasible(placements, costs)
        }
        Err(Rejection { vcpu, reason }) => {
            // On one CPU there is one placement.
            let only = free.len() == 1 && matches!(reason, RejectionReason::Violation(_));
            let proven = only || overloads(&candidates, free.len());
            Admission::rejected(vcpu, reason, proven)
        }
    }
}

fn global_test(
    rules: Rules,
    candidates: &[Candidate],
    free: &[u32],
    work: &mut Work,
) -> Result<(), Rejection> {
    let Rules {
        dispatch, server, ..
    } = rules;
    let cpus = free.len();
    let masked = candidates.iter().any(|candidate| candidate.mask.is_some());
    if masked || cpus == 1 {
        let (single, rest): (Vec<Cluster<'_>>, Vec<Cluster<'_>>) = clusters(candidates, free)
            .into_iter()
            .partition(|cluster| cluster.all_cpus == 1);
        for cluster in &single {
            on_one(cluster, rules, work)?;
        }
        if !single.is_empty() {
            let members = rest.iter().flat_map(|cluster| &cluster.members);
            let mut rest: Vec<Candidate> = members.copied().cloned().collect();
            if dispatch == Dispatch::FixedPriority {
                rest.sort_by_key(|candidate| (candidate.task.deadline(), candidate.index));
            }
            if rest.is_empty() {
                return Ok(());
            }
            return global_test(rules, &rest, free, work);
        }
    }
    if server == VcpuServer::ConstantBandwidth && dispatch == Dispatch::EarliestDeadline {
        return clusters(candidates, free)
            .into_iter()
            .try_for_each(|cluster| densities(&cluster, rules.fair_server));
    }
    if !masked && candidates.len() <= cpus {
        return Ok(());
    }
    if server != VcpuServer::Deferrable && !masked && dispatch == Dispatch::EarliestDeadline {
        let cluster = Cluster {
            members: candidates.iter().collect(),
            cpus,
            all_cpus: cpus,
        };
        if densities(&cluster, None).is_ok() {
            return Ok(());
        }
    }
    match bcl::test(candidates, dispatch, cpus) {
        Verdict::Unschedulable(violation) => {
            let suspect = candidates
                .iter()
                .position(|candidate| candidate.index == violation.index)
                .unwrap_or_default();
            if server.idles()
                && !masked
                && !overloads(candidates, cpus)
                && (rta::test(candidates, suspect, dispatch, cpus, work)
                    || (dispatch == Dispatch::EarliestDeadline
                        && limited::test(candidates, cpus, work)))
            {
                return Ok(());
            }
            Err(Rejection {
                vcpu: violation.index,
                reason: RejectionReason::Violation(violation),
            })
        }
        _ => Ok(()),
    }
}

/// The test of one CPU.
fn on_one(cluster: &Cluster<'_>, rules: Rules, work: &mut Work) -> Result<(), Rejection> {
    let mut members = cluster.members.clone();
    members.sort_unstable_by_key(|member| member.index);
    let tasks: Vec<Task> = members.iter().map(|member| member.task).collect();
    let rules = rules.of(members.iter().copied());
    match partitioned::test(&tasks, rules, work) {
        Verdict::Schedulable => Ok(()),
        Verdict::Unschedulable(violation) => {
            let vcpu = members[violation.index].index;
            let reason = RejectionReason::Violation(Violation {
                index: vcpu,
                ..violation
            });
            Err(Rejection { vcpu, reason })
        }
        Verdict::Undecided(stop) => Err(Rejection {
            vcpu: members[0].index,
            reason: RejectionReason::Undecided(stop),
        }),
    }
}

fn densities(cluster: &Cluster, fair_server: Option<FairServer>) -> Result<(), Rejection> {
    let tasks: Vec<Task> = cluster.members.iter().map(|member| member.task).collect();
    let fair_servers = fair_server.map(|each| FairServers {
        each,
        cpus: cluster.all_cpus,
    });
    let held = match fair_servers {
        None => {
            tasks.len() <= cluster.cpus
                || u32::try_from(cluster.cpus).is_ok_and(|cpus| gfb::test(&tasks, cpus))
                || heavy::test(&tasks, cluster.cpus, None)
        }
        Some(them) => {
            let shortest = tasks.iter().map(Task::window).min();
            let lost = shortest.map_or(Fraction::new(0, 1), |shortest| them.share(shortest));
            u32::try_from(cluster.cpus).is_ok_and(|cpus| gfb::beside(&tasks, cpus, lost))
                || heavy::test(&tasks, cluster.cpus, fair_servers)
                || them.leave_each(&tasks, cluster.cpus)
        }
    };
    if held {
        return Ok(());
    }
    // No excess: the densities are too close to the limit to be compared in 128 bits.
    Err(
        match reservation::dense(&tasks, cluster.cpus, fair_servers) {
            None => Rejection {
                vcpu: cluster.members[0].index,
                reason: RejectionReason::Undecided(Stop::precision()),
            },
            Some(violation) => {
                let vcpu = cluster.members[violation.index].index;
                let reason = RejectionReason::Violation(Violation {
                    index: vcpu,
                    ..violation
                });
                Rejection { vcpu, reason }
            }
        },
    )
}
