//! CPUs for the VCPUs that always run.
//!
//! Rule: each gets one CPU of its mask to itself. A maximum bipartite matching by augmenting paths, CPUs
//! tried from the highest number down, so that low-numbered CPUs are left for the others.
//! Complexity: O(VCPUs * edges).

use super::Vcpu;

/// A VCPU for which no CPU is left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crowded {
    /// Its index.
    pub vcpu: usize,
    /// The CPUs it could have directly or by moving others, all taken by VCPUs that can have no others.
    pub cpus: usize,
}

/// For each of `vcpus` a CPU below `cpus`, all different.
pub(super) fn dedicate(vcpus: &[(usize, &Vcpu)], cpus: u32) -> Result<Vec<u32>, Crowded> {
    let mut owner: Vec<Option<usize>> = vec![None; cpus as usize];
    for (position, &(index, _)) in vcpus.iter().enumerate() {
        let mut seen = vec![false; cpus as usize];
        if !augment(position, vcpus, &mut owner, &mut seen) {
            let cpus = seen.iter().filter(|&&seen| seen).count();
            return Err(Crowded { vcpu: index, cpus });
        }
    }
    let mut homes = vec![0; vcpus.len()];
    for (cpu, position) in (0..).zip(&owner) {
        if let Some(position) = *position {
            homes[position] = cpu;
        }
    }
    Ok(homes)
}

/// Iterative search for an augmenting path from `start`.
fn augment(
    start: usize,
    vcpus: &[(usize, &Vcpu)],
    owner: &mut [Option<usize>],
    seen: &mut [bool],
) -> bool {
    let mut came_from: Vec<Option<usize>> = vec![None; owner.len()];
    let mut queue = std::collections::VecDeque::from([(start, None)]);
    while let Some((position, via)) = queue.pop_front() {
        for cpu in allowed(vcpus[position].1, owner.len()) {
            if seen[cpu] {
                continue;
            }
            seen[cpu] = true;
            came_from[cpu] = via;
            if let Some(displaced) = owner[cpu] {
                queue.push_back((displaced, Some(cpu)));
                continue;
            }
            // Shift owners along the path.
            let mut free = cpu;
            while let Some(previous) = came_from[free] {
                owner[free] = owner[previous];
                free = previous;
            }
            owner[free] = Some(start);
            return true;
        }
    }
    false
}

fn allowed(vcpu: &Vcpu, cpus: usize) -> Vec<usize> {
    match &vcpu.mask {
        None => (0..cpus).rev().collect(),
        Some(mask) => mask
            .iter()
            .rev()
            .map(|&cpu| cpu as usize)
            .filter(|&c| c < cpus)
            .collect(),
    }
}
