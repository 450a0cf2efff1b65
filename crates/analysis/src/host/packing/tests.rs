//! What packing finds is what looking at every CPU finds.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::host::starts::Starts;

/// Best fit as it reads: every CPU that allows the VCPU and accepts it, by (sibling, falling bandwidth, position).
fn plain_best_fit(
    candidates: &[Candidate],
    order: &[usize],
    cpus: &[u32],
    rules: Rules,
    apart: bool,
) -> Result<Vec<Vec<usize>>, usize> {
    let mut bins = empty_bins(cpus);
    for &index in order {
        let candidate = &candidates[index];
        let home = (0..bins.len())
            .filter(|&b| candidate.allows(bins[b].cpu))
            .filter(|&b| {
                test(&bins[b], index, candidates, rules, &mut Work::default()).is_schedulable()
            })
            .min_by_key(|&b| {
                let mut members = bins[b].members.iter();
                let sibling = apart && members.any(|&member| candidates[member].vm == candidate.vm);
                (sibling, Reverse(bins[b].load))
            });
        match home {
            Some(home) => bins[home].put(index, &candidate.task),
            None => return Err(index),
        }
    }
    Ok(bins.into_iter().map(|bin| bin.members).collect())
}

fn random(rng: &mut ChaCha8Rng, cpus: u32) -> Vec<Candidate> {
    (0..rng.random_range(1..=12))
        .map(|index| {
            let period = rng.random_range(2..=12);
            let budget = rng.random_range(1..period);
            let deadline = if rng.random_bool(0.7) {
                period
            } else {
                rng.random_range(budget..=period)
            };
            let jitter = if rng.random_bool(0.8) {
                0
            } else {
                rng.random_range(0..=deadline - budget)
            };
            Candidate {
                index,
                reserved: false,
                vm: index / 3,
                task: Task::server(budget, deadline, period, jitter),
                mask: rng.random_bool(0.2).then(|| {
                    let low = rng.random_range(0..cpus);
                    (low..rng.random_range(low + 1..=cpus)).collect()
                }),
                starter: None,
            }
        })
        .collect()
}

#[test]
fn best_fit_is_what_it_was() {
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let (mut packed, mut refused) = (0, 0);
    for _ in 0..6_000 {
        let cpus = rng.random_range(1..=6);
        let candidates = random(&mut rng, cpus);
        let rules = Rules {
            dispatch: [Dispatch::EarliestDeadline, Dispatch::FixedPriority][rng.random_range(0..2)],
            server: [
                VcpuServer::Periodic,
                VcpuServer::ConstantBandwidth,
                VcpuServer::Deferrable,
            ][rng.random_range(0..3)],
            usable_percent: if rng.random_bool(0.3) { 90 } else { 100 },
            fair_server: None,
            starts: Starts::free(Dispatch::EarliestDeadline),
            isolated: true,
        };
        let cpus: Vec<u32> = (0..cpus).collect();
        let order: Vec<usize> = (0..candidates.len()).collect();
        for apart in [true, false] {
            let found = best_fit(
                &candidates,
                &order,
                &cpus,
                rules,
                apart,
                &mut Work::default(),
            );
            let found =
                found.map(|bins| bins.into_iter().map(|bin| bin.members).collect::<Vec<_>>());
            let expected = plain_best_fit(&candidates, &order, &cpus, rules, apart);
            packed += usize::from(found.is_ok());
            refused += usize::from(found.is_err());
            assert_eq!(
                found.map_err(|(index, _)| index),
                expected,
                "{candidates:?} {rules:?}"
            );
        }
    }
    assert!(
        packed > 2_000 && refused > 2_000,
        "{packed} packed, {refused} refused"
    );
}
