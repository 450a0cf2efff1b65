//! VMs that can keep other VMs from CPUs. Pure.

use std::collections::BTreeSet;

use steadyvm_host::{CpuSet, Policy};

use super::frame::{Group, Stage};

/// One VM can keep another from CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Starving<'f> {
    /// The VM whose VCPUs may wait.
    pub vm: &'f str,
    /// The VM whose VCPUs need not let them run.
    pub by: &'f str,
    /// On so many CPUs.
    pub cpus: usize,
}

/// A rank of VCPUs, and where they may run: most VMs have one or two.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// 0 is a normal thread; none has a deadline, which the kernel runs before all ranks.
    rank: Option<u32>,
    /// Whether it runs until it waits, whatever else of its rank wants to.
    is_fifo: bool,
    cpus: Vec<usize>,
}

/// All pairs of VMs of which one has VCPUs without a budget and of a rank that the other's VCPUs are not above, on CPUs of
/// both. A guest that computes without end then stops the other VM there.
pub fn starving(vms: &[Group]) -> Vec<Starving<'_>> {
    let places: Vec<(&str, BTreeSet<Place>)> =
        vms.iter().map(|vm| (&*vm.name, places(vm))).collect();
    let mut found = Vec::new();
    for (number, (vm, waiting)) in places.iter().enumerate() {
        for (other, (by, running)) in places.iter().enumerate() {
            if number == other {
                continue;
            }
            let cpus: BTreeSet<usize> = waiting
                .iter()
                .flat_map(|waits| running.iter().flat_map(|runs| lost(waits, runs)))
                .collect();
            if !cpus.is_empty() {
                let cpus = cpus.len();
                found.push(Starving { vm, by, cpus });
            }
        }
    }
    found
}

fn places(vm: &Group) -> BTreeSet<Place> {
    let vcpus = vm.stages.iter().filter(|stage| stage.stage == "vcpu");
    vcpus.filter_map(place).collect()
}

fn place(stage: &Stage) -> Option<Place> {
    let cpus: CpuSet = stage.cpus.parse().ok()?;
    let scheduling = &stage.scheduling;
    Some(Place {
        rank: (scheduling.policy != Policy::Deadline).then_some(scheduling.priority),
        is_fifo: scheduling.policy == Policy::Fifo,
        cpus: cpus.iter().collect(),
    })
}

/// CPUs on which one waits as long as the other computes.
fn lost(waits: &Place, runs: &Place) -> Vec<usize> {
    let starves = match (waits.rank, runs.rank) {
        (Some(low), Some(high)) => high > low || (high == low && high > 0 && runs.is_fifo),
        _ => false,
    };
    let shared = waits.cpus.iter().filter(|cpu| runs.cpus.contains(cpu));
    shared.filter(|_| starves).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::text::tests::frame;
    use steadyvm_host::Scheduling;

    fn vm(name: &str, scheduling: Scheduling, cpus: &str) -> Group {
        let mut vm = frame().vms.remove(0);
        vm.name = name.to_owned();
        vm.stages[0].scheduling = scheduling;
        vm.stages[0].cpus = cpus.to_owned();
        vm
    }

    fn pairs(vms: &[Group]) -> Vec<(&str, &str, usize)> {
        let found = starving(vms).into_iter();
        found.map(|it| (it.vm, it.by, it.cpus)).collect()
    }

    #[test]
    fn a_rank_without_a_budget_keeps_those_that_are_not_above_it_from_shared_cpus() {
        let relay = vm("relay", Scheduling::fifo(50, 0), "2-3");
        let bulk = vm("bulk", Scheduling::normal(), "0-3");
        assert_eq!(pairs(&[relay.clone(), bulk]), [("bulk", "relay", 2)]);
        let twin = vm("twin", Scheduling::fifo(50, 0), "3");
        assert_eq!(
            pairs(&[relay.clone(), twin]),
            [("relay", "twin", 1), ("twin", "relay", 1)]
        );
        let apart = vm("apart", Scheduling::fifo(50, 0), "4-5");
        assert!(pairs(&[relay.clone(), apart]).is_empty());
        let with_budget = vm("edf", Scheduling::deadline(1, 2, 2, 0), "2-3");
        assert!(pairs(&[relay, with_budget]).is_empty());
        let normal = |name| vm(name, Scheduling::normal(), "0-3");
        assert!(pairs(&[normal("a"), normal("b")]).is_empty());
    }
}
