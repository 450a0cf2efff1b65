//! VCPUs that share CPUs, and what each of them pays after the others.

use std::collections::BTreeMap;

use super::{Candidate, Host, starts::Starts};
use crate::{task::Task, verdict::Violation};

/// VCPUs that share CPUs with no others.
pub(super) struct Cluster<'a> {
    pub members: Vec<&'a Candidate>,
    /// CPUs on which global EDF is certain to be work conserving for all of them: those of their mask, or 1
    /// where masks overlap without being equal.
    pub cpus: usize,
    /// Those of any member.
    pub all_cpus: usize,
}

pub(super) fn clusters<'a>(candidates: &'a [Candidate], free: &'a [u32]) -> Vec<Cluster<'a>> {
    // Those of one mask, in the order of their first: mostly that is one group.
    let mut groups: Vec<(&[u32], Vec<&Candidate>)> = Vec::new();
    let mut group_of = BTreeMap::new();
    for candidate in candidates {
        let mask = candidate.mask.as_deref().unwrap_or(free);
        let group = *group_of.entry(mask).or_insert(groups.len());
        if group == groups.len() {
            groups.push((mask, Vec::new()));
        }
        groups[group].1.push(candidate);
    }
    // The CPUs of a cluster, its members, and whether all of them have all of the CPUs.
    let mut found: Vec<(Vec<u32>, Vec<&Candidate>, bool)> = Vec::new();
    for (mask, mut members) in groups {
        let (mut cpus, mut equal) = (mask.to_vec(), true);
        found.retain(|(other, others, _)| {
            let apart = !other.iter().any(|cpu| cpus.contains(cpu));
            if !apart {
                equal = false;
                members.extend(others);
                cpus.extend(other);
                cpus.sort_unstable();
                cpus.dedup();
            }
            apart
        });
        found.push((cpus, members, equal));
    }
    found
        .into_iter()
        .map(|(cpus, members, equal)| Cluster {
            members,
            cpus: if equal { cpus.len() } else { 1 },
            all_cpus: cpus.len(),
        })
        .collect()
}

/// The tasks of those that share CPUs, each with what it pays after the others.
pub(super) fn together(members: &[&Candidate], starts: Starts) -> Result<Vec<Task>, Violation> {
    let paying = |one: &&Candidate| match &one.starter {
        Some(starter) => {
            let others = members.iter().filter_map(|other| other.starter.as_deref());
            one.paying(starts.after(starter, others))
        }
        None => Ok(one.task),
    };
    members.iter().map(paying).collect()
}

/// Gives each VCPU what it pays after those with which it shares CPUs.
pub(super) fn pay_after_others(
    host: &Host,
    candidates: &mut [Candidate],
    free: &[u32],
) -> Result<(), Violation> {
    let starts = Starts::of(host);
    if starts.are_free() {
        return Ok(());
    }
    let mut paid = Vec::new();
    for cluster in clusters(candidates, free) {
        // With a CPU for each nobody's is taken.
        if cluster.members.len() > cluster.cpus {
            let tasks = together(&cluster.members, starts)?;
            paid.extend(cluster.members.iter().map(|one| one.index).zip(tasks));
        }
    }
    paid.sort_unstable_by_key(|&(index, _)| index);
    for candidate in candidates {
        if let Ok(at) = paid.binary_search_by_key(&candidate.index, |&(index, _)| index) {
            candidate.task = paid[at].1;
        }
    }
    Ok(())
}
