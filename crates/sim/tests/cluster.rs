//! Simulated clusters: no host is over-committed, small ones against brute force, the same seed gives the same, the
//! dissertation's seven hosts.

// A test's helper fails by panicking, as the test itself does, and files are short.
#![allow(clippy::unwrap_used, clippy::format_push_string)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use steadyvm_analysis::host::Vcpu;
use steadyvm_config::PlacementPolicy;
use steadyvm_sim::cluster::{
    Scenario, Trace,
    claim::{Claim, Needs},
    fleet::Fleet,
    judge::admits,
    replay::needs,
    replay_watched, study,
};

/// The VCPUs of a host for the analysis; where a policy counts CPUs each stays on its own.
fn vcpus(fleet: &Fleet<'_>, host: usize, needs: &[Needs]) -> Vec<Vcpu> {
    let mut found = Vec::new();
    for (number, &vm) in fleet.hosts[host].vms.iter().enumerate() {
        let vm = &fleet.vms[vm as usize];
        let Needs::Claim(claim) = needs[usize::from(vm.flavour)] else {
            continue;
        };
        for vcpu in 0..claim.vcpus as usize {
            let one = claim.vcpu(number).unwrap();
            found.push(match vm.cpus.get(vcpu) {
                Some(&cpu) => one.on(vec![cpu.into()]).unwrap(),
                None => one,
            });
        }
    }
    found
}

const POLICIES: [PlacementPolicy; 5] = [
    PlacementPolicy::Nova,
    PlacementPolicy::NovaPerCpu,
    PlacementPolicy::FirstFit,
    PlacementPolicy::BestFit,
    PlacementPolicy::WorstFit,
];

/// A file of few hosts, all of whose keys are drawn.
fn file() -> impl Strategy<Value = String> {
    let flavour = (0_u32..4, 1_u32..=3, 1_u64..8, 1_u64..=20, 5_u64..=20);
    let flavours = proptest::collection::vec(flavour, 1..4);
    (flavours, 1_u32..4, 1_u32..=4, 90_u32..=100, 10_u32..120).prop_map(
        |(flavours, hosts, cpus, percent, arrivals)| {
            let mut text = format!(
                "length = \"7200s\"\npolicies = [\"nova\"]\narrivals_per_hour = {arrivals}\n\
                 [[host]]\nname = \"h\"\ncount = {hosts}\ncpus = {cpus}\nmemory_mib = 20\nusable_percent = {percent}\n\
                 [failure]\nevery = \"3000s\"\nrepair = \"600s\"\n\
                 [maintenance]\nbegin = \"1000s\"\neach = \"500s\"\n"
            );
            for (number, (kind, vcpus, memory, budget, period)) in flavours.iter().enumerate() {
                text += &format!(
                    "[[vm]]\nname = \"v{number}\"\nvcpus = {vcpus}\nmemory_mib = {memory}\nlifetime = \"1500s\"\n\
                     migrations_per_day = 20\nresizes_per_day = 20\nresize_to = [\"v0\"]\n"
                );
                if *kind > 0 {
                    let budget = budget.min(period);
                    text += &format!("budget = \"{budget}ms\"\nperiod = \"{period}ms\"\n");
                }
            }
            text
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_host_is_overcommitted_by_the_analysis_at_any_event(text in file(), seed in 0_u64..1000) {
        let scenario = Scenario::parse("", &text).unwrap();
        let trace = Trace::draw(&scenario, seed).unwrap();
        let needs = needs(&scenario);
        for policy in POLICIES {
            let outcome = replay_watched(&scenario, &trace, policy, |event, fleet| {
                for (number, host) in fleet.hosts.iter().enumerate() {
                    let kind = &scenario.kinds[host.kind];
                    let vcpus = vcpus(fleet, number, &needs[host.kind]);
                    assert!(admits(kind.cpus, &vcpus), "{policy:?}, {event:?}, host {number}");
                    let of = |vm: &u32| &scenario.flavours[usize::from(fleet.vms[*vm as usize].flavour)];
                    let memory: u64 = host.vms.iter().map(|vm| of(vm).memory_mib).sum();
                    assert!(memory <= kind.memory_mib);
                    assert_eq!(fleet.rooms[number].memory_mib, (kind.memory_mib - memory) as i64);
                    assert!(!host.has_failed || host.vms.is_empty());
                    assert!(host.vms.iter().all(|&vm| fleet.vms[vm as usize].host == Some(number as u32)));
                }
            });
            prop_assert!(outcome.overcommitted_host_hours.abs() < 1e-9);
            let came = outcome.admitted_rt + outcome.rejected_rt + outcome.admitted_other + outcome.rejected_other;
            prop_assert_eq!(came, trace.flavours.len() as u64);
        }
    }

    /// Each choice against its definition, by looking at all hosts through the analysis.
    #[test]
    fn a_choice_is_the_definitions(text in file(), seed in 0_u64..1000) {
        let scenario = Scenario::parse("", &text).unwrap();
        let trace = Trace::draw(&scenario, seed).unwrap();
        let needs = needs(&scenario);
        for policy in [PlacementPolicy::FirstFit, PlacementPolicy::BestFit, PlacementPolicy::WorstFit] {
            let mut fleet = Fleet::new(&scenario, &needs, policy, &trace.flavours);
            for vm in 0..trace.flavours.len().min(30) as u32 {
                let flavour = trace.flavours[vm as usize];
                let found = fleet.choose(flavour, None);
                let wanted = by_brute_force(&fleet, &scenario, &needs, policy, flavour);
                prop_assert_eq!(found.as_ref().map(|place| place.host as usize), wanted);
                if let Some(place) = found {
                    fleet.put(vm, place);
                }
            }
        }
    }

    #[test]
    fn two_runs_with_one_seed_are_equal_on_any_number_of_threads(text in file(), seed in 0_u64..1000) {
        let mut scenario = Scenario::parse("", &text).unwrap();
        (scenario.seed, scenario.seeds, scenario.policies) = (seed, 2, POLICIES.to_vec());
        prop_assert_eq!(study(&scenario, 1).unwrap(), study(&scenario, 3).unwrap());
    }

    /// What nova/src/steadyvm_nova/claim.py proves.
    #[test]
    fn claims_that_fit_one_sum_pass_the_exact_test(
        cpus in 1_u32..6,
        vms in proptest::collection::vec((100_u64..20_000, 1_u64..=100, 1_u32..4), 1..20),
        percent in 85_u64..=100,
    ) {
        let (mut free, mut held) = (u64::from(cpus) * 1_000_000, Vec::new());
        for (number, (period_us, share, vcpus)) in vms.into_iter().enumerate() {
            let budget_us = (period_us * share / 100).max(2);
            let interface = steadyvm_analysis::plan::sold::SoldInterface { period_us, budget_us, vcpus };
            let Some(claim) = Claim::of(interface, percent * 10_000) else { continue };
            if claim.host_ppm <= free {
                free -= claim.host_ppm;
                held.extend((0..vcpus).map(|_| claim.vcpu(number).unwrap()));
            }
        }
        prop_assert!(admits(cpus, &held));
    }

    #[test]
    fn no_text_panics(text in "\\PC*") {
        let _ = Scenario::parse("f", &text);
    }
}

fn by_brute_force(
    fleet: &Fleet<'_>,
    scenario: &Scenario,
    needs: &[Vec<Needs>],
    policy: PlacementPolicy,
    flavour: u16,
) -> Option<usize> {
    let of_flavour = &scenario.flavours[usize::from(flavour)];
    let real_time = of_flavour.interface.is_some();
    let mut best: Option<(i64, usize)> = None;
    for (number, host) in fleet.hosts.iter().enumerate() {
        let (kind, needs) = (&scenario.kinds[host.kind], &needs[host.kind]);
        let there = |vm: &u32| usize::from(fleet.vms[*vm as usize].flavour);
        let memory: u64 = host
            .vms
            .iter()
            .map(|vm| scenario.flavours[there(vm)].memory_mib)
            .sum();
        let count: u64 = host
            .vms
            .iter()
            .map(|vm| u64::from(scenario.flavours[there(vm)].vcpus))
            .sum();
        let mut all = vcpus(fleet, number, needs);
        if let Needs::Claim(claim) = needs[usize::from(flavour)] {
            all.extend((0..claim.vcpus).map(|_| claim.vcpu(usize::MAX).unwrap()));
        }
        let holds = memory + of_flavour.memory_mib <= kind.memory_mib
            && count + u64::from(of_flavour.vcpus) <= kind.vcpus
            && needs[usize::from(flavour)] != Needs::TooMuch
            && (!real_time || admits(kind.cpus, &all));
        if !holds {
            continue;
        }
        let bandwidth = |vm: &u32| match needs[there(vm)] {
            Needs::Claim(claim) => claim.bandwidth_ppm,
            _ => 0,
        };
        let used: u64 = host.vms.iter().map(bandwidth).sum();
        let left = if real_time {
            (u64::from(kind.cpus) * kind.limit_ppm) as i64 - used as i64
        } else {
            (kind.memory_mib - memory) as i64
        };
        let merit = match policy {
            PlacementPolicy::FirstFit => 0,
            PlacementPolicy::BestFit => -left,
            _ => left,
        };
        if best.is_none_or(|(most, _)| merit > most) {
            best = Some((merit, number));
        }
    }
    best.map(|(_, host)| host)
}

const DISSERTATION: &str = include_str!("../../../examples/dissertation-cluster.toml");

/// The hosts of docs/results/openstack.md, "RT-OpenStack, seed 53", as a real Nova placed the same VMs.
#[test]
fn the_dissertations_cluster_takes_the_vms_that_a_real_nova_took() {
    let scenario = Scenario::parse("", DISSERTATION).unwrap();
    let found = study(&scenario, 1).unwrap();
    let outcome = &found.policies[0].runs[0];
    assert_eq!(
        (
            outcome.admitted_rt,
            outcome.rejected_rt,
            outcome.admitted_other
        ),
        (11, 1, 9)
    );
    let name = |&vm: &u32| {
        scenario.flavours[usize::from(found.first_flavours[vm as usize])]
            .name
            .as_str()
    };
    let placed: BTreeMap<&str, (Vec<&str>, usize)> =
        (scenario.hosts.iter().zip(&outcome.placement))
            .map(|(&kind, vms)| {
                let names: Vec<&str> = vms.iter().map(name).collect();
                let others = names.iter().filter(|&&it| it == "other").count();
                let real_time = names.into_iter().filter(|&it| it != "other").collect();
                (scenario.kinds[kind].name.as_str(), (real_time, others))
            })
            .collect();
    let wanted = BTreeMap::from([
        ("host0", (vec!["RT 7"], 0)),
        ("host1", (vec!["RT 6", "RT 10"], 0)),
        ("host2", (vec!["RT 1", "RT 2"], 1)),
        ("host3", (vec!["RT 5", "RT 9"], 2)),
        ("host4", (vec!["RT 3"], 2)),
        ("host5", (vec!["RT 4", "RT 11"], 2)),
        ("host6", (vec!["RT 8"], 2)),
    ]);
    assert_eq!(placed, wanted);
    // Nova alone overloads hosts, as in Figure 4.3.
    assert!(found.policies[1].runs[0].overcommitted_host_hours > 0.0);
}

#[test]
fn an_error_names_the_line_and_the_key() {
    let wrong = DISSERTATION.replacen("cpus = 5", "cpus = 0", 1);
    let line = wrong.lines().position(|line| line == "cpus = 0").unwrap();
    let message = Scenario::parse("c.toml", &wrong).unwrap_err().to_string();
    assert!(message.contains("cpus is 0; give 1 to 4096"), "{message}");
    let header = format!("c.toml line {}", line - 1);
    assert!(message.starts_with(&header), "{message}");
    let unknown = Scenario::parse("c.toml", "length = \"1s\"\nhots = 1\n")
        .unwrap_err()
        .to_string();
    assert!(
        unknown.starts_with("c.toml line 2") && unknown.contains("hots"),
        "{unknown}"
    );
}
