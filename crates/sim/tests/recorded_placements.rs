//! Claims and choices of the Python package for Nova, recorded: `nova/tests/test_recorded_placements.py` writes and checks them.

// A test's helper fails by panicking, as the test itself does, and files are short.
#![allow(clippy::unwrap_used, clippy::format_push_string)]

use serde::Deserialize;
use steadyvm_analysis::plan::sold::SoldInterface;
use steadyvm_config::PlacementPolicy;
use steadyvm_sim::cluster::{
    Scenario,
    claim::{Claim, Needs},
    fleet::Fleet,
};

#[derive(Deserialize)]
struct Case {
    cpu_limit_ppm: u64,
    cpus: Vec<u32>,
    /// Period, budget and VCPUs.
    vms: Vec<(u64, u64, u32)>,
    /// Bandwidth, share of a VCPU and claim; none if no host holds it.
    claims: Vec<Option<(u64, u64, u64)>>,
    hosts: Vec<Option<u32>>,
}

#[test]
fn choices_are_those_of_the_package_for_nova() {
    let text = include_str!("../../../nova/tests/data/placements.json");
    let cases: Vec<Case> = serde_json::from_str(text).unwrap();
    assert!(!cases.is_empty());
    for case in cases {
        let mut file = "length = \"1s\"\npolicies = [\"nova\"]\n".to_owned();
        let percent = case.cpu_limit_ppm / 10_000;
        for cpus in &case.cpus {
            file += &format!(
                "[[host]]\nname = \"h\"\ncpus = {cpus}\nmemory_mib = 1000\nusable_percent = {percent}\nvcpus_per_cpu = 1000\n"
            );
        }
        for (number, (period, budget, vcpus)) in case.vms.iter().enumerate() {
            file += &format!(
                "[[vm]]\nname = \"v{number}\"\nvcpus = {vcpus}\nmemory_mib = 1\nbudget = \"{budget}us\"\nperiod = \"{period}us\"\n"
            );
        }
        let scenario = Scenario::parse("", &file).unwrap();
        let needs: Vec<Vec<Needs>> = (scenario.kinds.iter())
            .map(|kind| scenario.needs(kind))
            .collect();
        let flavours: Vec<u16> = (0..case.vms.len() as u16).collect();
        let mut fleet = Fleet::new(&scenario, &needs, PlacementPolicy::Nova, &flavours);
        for &flavour in &flavours {
            let vm = usize::from(flavour);
            let (period_us, budget_us, vcpus) = case.vms[vm];
            let interface = SoldInterface {
                period_us,
                budget_us,
                vcpus,
            };
            let claim = Claim::of(interface, case.cpu_limit_ppm);
            let parts = claim.map(|it| (it.bandwidth_ppm, it.share_ppm, it.host_ppm));
            assert_eq!(parts, case.claims[vm]);
            let place = fleet.choose(flavour, None);
            assert_eq!(
                place.as_ref().map(|place| place.host),
                case.hosts[vm],
                "VM {vm}"
            );
            if let Some(place) = place {
                fleet.put(flavour.into(), place);
            }
        }
    }
}
