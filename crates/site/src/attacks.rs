//! Attacks that the VMs of a file do not withstand, by what the file sets for them. Pure.
//!
//! The names are those of `steadyvm-lab load attack`. What steadyvm does against each, and what no setting bounds, is in
//! docs/design/security.md.

use serde::Serialize;
use steadyvm_host::profile::{Class, Profile, ThreadPriority, VmProfile};
use steadyvm_host::{PacketWay, Way};

/// Attacks by frames to anybody behind a card.
const FRAMES: &[&str] = &["udp-small", "tcp-connect", "icmp", "fragments", "arp"];
/// Attacks by frames to the VM itself that its way on a card brings.
const FRAMES_TO_ITSELF: &[&str] = &["udp-small", "tcp-connect", "icmp", "fragments"];
/// Attacks by a guest that sends.
const SENDING: &[&str] = &["transmit", "doorbells"];
/// Attacks by a guest that computes, sets timers or interrupts its own VCPUs.
const COMPUTING: &[&str] = &["compute", "timers", "interrupts"];

/// Attacks that do harm, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exposed {
    /// The VM whose settings leave it open.
    pub vm: String,
    /// The attacks.
    pub attacks: &'static [&'static str],
    /// Who is harmed, and by what.
    pub why: String,
    /// What bounds it.
    pub to_do: String,
}

/// Of the VMs that run.
pub fn of(profile: &Profile, packet_ways: &[PacketWay]) -> Vec<Exposed> {
    let running = packet_ways.iter().filter(|it| it.way != Way::NotRunning);
    running
        .filter_map(|packets| {
            let vm = profile.vms.iter().find(|vm| vm.name == packets.vm)?;
            Some(of_vm(vm, packets))
        })
        .flatten()
        .collect()
}

fn of_vm(vm: &VmProfile, packets: &PacketWay) -> Vec<Exposed> {
    let mut found = Vec::new();
    let mut add = |attacks, why: String, to_do: &str| {
        found.push(Exposed {
            vm: vm.name.clone(),
            attacks,
            why,
            to_do: to_do.to_owned(),
        });
    };
    if has_a_rank(&vm.class) && packets.waits_behind_others() {
        let why = "a flood to any other VM fills the ring that its packets wait in";
        let to_do = if vm.nic.is_some() {
            "see its line of packets"
        } else {
            "name the card in its table: nic"
        };
        add(FRAMES, why.to_owned(), to_do);
    }
    if let (Some(rank), None) = (fifo(vm.class.napi), vm.receive) {
        match &packets.way {
            Way::VirtualFunction { .. } | Way::XdpProgram { .. } => add(
                FRAMES_TO_ITSELF,
                format!("a flood to it makes the host work at rank {rank} without a bound"),
                "bound that work in its table: receive = { budget = \"2ms\" }",
            ),
            Way::OwnCard { .. } => add(
                FRAMES_TO_ITSELF,
                format!("a flood to its card is polled at rank {rank} without a bound"),
                "use nic and receive in its table instead of a class for the card",
            ),
            _ => {}
        }
    }
    let keeps_built_in = vm.budgets.is_empty() || !vm.class.vhost_is_built_in;
    if let Some(rank) = fifo(vm.class.vhost).filter(|_| keeps_built_in) {
        add(
            SENDING,
            format!(
                "its guest can keep CPUs from all below rank {rank}: its vhost workers have no bound"
            ),
            "give the VM a budget, or its class vhost = \"normal\", unless you trust the guest",
        );
    }
    if let Some(rank) = fifo(vm.class.vcpu).filter(|_| vm.budgets.is_empty()) {
        add(
            COMPUTING,
            format!("its guest can keep CPUs from all below rank {rank}: its VCPUs have no budget"),
            "give it budget and period, and the host enforce = \"auto\"",
        );
    }
    found
}

fn has_a_rank(class: &Class) -> bool {
    let ranks = [class.irq, class.napi, class.vhost, class.vcpu];
    ranks.into_iter().any(|it| fifo(it).is_some())
}

fn fifo(priority: Option<ThreadPriority>) -> Option<u32> {
    match priority {
        Some(ThreadPriority::Fifo(rank)) => Some(rank),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use steadyvm_host::PacketBudget;
    use steadyvm_host::profile::VcpuBudget;

    use super::*;

    fn exposed(vm: VmProfile, way: Way) -> Vec<(&'static str, String)> {
        let packets = PacketWay {
            vm: vm.name.clone(),
            way,
            why: String::new(),
            to_do: String::new(),
        };
        let profile = Profile {
            vms: vec![vm],
            ..Profile::default()
        };
        let found = of(&profile, &[packets]);
        found
            .into_iter()
            .map(|it| (it.attacks[0], it.why))
            .collect()
    }

    fn attacks(vm: VmProfile, way: Way) -> Vec<&'static str> {
        exposed(vm, way)
            .into_iter()
            .map(|(attack, _)| attack)
            .collect()
    }

    fn vm(class: &str) -> VmProfile {
        VmProfile {
            name: "web".to_owned(),
            class: Class::built_in(class).unwrap(),
            ..VmProfile::default()
        }
    }

    fn budgets() -> std::collections::BTreeMap<u32, VcpuBudget> {
        let budget = VcpuBudget {
            runtime_ns: 1_000_000,
            deadline_ns: 10_000_000,
            period_ns: 10_000_000,
            cpu: None,
            ..VcpuBudget::default()
        };
        [(0, budget)].into()
    }

    #[test]
    fn a_vm_with_ranks_and_nothing_else_withstands_none() {
        let shared = || Way::SharedRing {
            cards: vec!["eth0".to_owned()],
        };
        assert_eq!(
            attacks(vm("rt"), shared()),
            ["udp-small", "transmit", "compute"]
        );
        assert_eq!(attacks(vm("best-effort"), shared()), [""; 0]);
        let found = exposed(vm("rt"), shared());
        assert!(found[2].1.contains("no budget"), "{found:?}");
        assert_eq!(attacks(vm("rt"), Way::NotRunning), [""; 0]);
    }

    #[test]
    fn a_way_of_its_own_with_budgets_withstands_all_that_are_named() {
        let xdp = || Way::XdpProgram {
            card: "eth0".to_owned(),
            address: String::new(),
            in_force: true,
        };
        let with_budget = VmProfile {
            budgets: budgets(),
            ..vm("rt")
        };
        assert_eq!(attacks(with_budget.clone(), xdp()), ["udp-small"]);
        let with_both = VmProfile {
            receive: Some(PacketBudget {
                runtime_ns: 2_000_000,
                period_ns: 10_000_000,
                packet_ns: 5_000,
            }),
            ..with_budget
        };
        assert_eq!(attacks(with_both.clone(), xdp()), [""; 0]);
        // A class that writes `vhost` keeps it beside a budget.
        let mut written = with_both;
        written.class.vhost_is_built_in = false;
        assert_eq!(attacks(written, xdp()), ["transmit"]);
    }
}
