//! Attacks that the VMs of a file do not withstand, by what the file sets for them. Pure.
//!
//! The names are those of `steadyvm-lab load attack`. What steadyvm does against each, and what no setting bounds, is in
//! docs/design/security.md.

use std::collections::BTreeSet;

use serde::Serialize;
use steadyvm_host::profile::{Class, Profile, SchedulerProfile, ThreadPriority, VmProfile};
use steadyvm_host::{PacketWay, Way};

/// Attacks by frames to anybody behind a card.
const FRAMES: &[&str] = &[
    "udp-small",
    "tcp-connect",
    "icmp",
    "fragments",
    "arp",
    "multicast",
    "broadcast",
];
/// Attacks by frames to the VM's address.
const FRAMES_TO_ITSELF: &[&str] = &["udp-small", "tcp-connect", "icmp", "fragments"];
/// Those that a function or a card of its own brings: broadcast, too.
const FRAMES_TO_ITS_DEVICE: &[&str] = &[
    "udp-small",
    "tcp-connect",
    "icmp",
    "fragments",
    "arp",
    "broadcast",
];
/// Attacks by a guest that sends.
const SENDING: &[&str] = &["transmit", "doorbells"];
/// Attacks by a guest that writes.
const DISKS: &[&str] = &["disk"];
/// What a normal vhost worker works for.
const WORKING: &[&str] = &["udp-small", "transmit", "doorbells"];
/// Attacks by a guest that computes, sets timers or interrupts its own VCPUs.
const COMPUTING: &[&str] = &["compute", "timers", "interrupts"];

const BOUND_IT: &str = "bound that work in its table: receive = { budget = \"2ms\" }";

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

/// What is known of VMs that run, beside what is set for them. By name.
#[derive(Debug, Default)]
pub struct Found<'n> {
    /// Those of which a VCPU has a rank now, and no budget.
    pub ranked: BTreeSet<&'n str>,
    /// Those whose cgroups limit no disk.
    pub without_disk_limit: BTreeSet<&'n str>,
}

/// Of the VMs that run.
pub fn of(profile: &Profile, packet_ways: &[PacketWay], found: &Found<'_>) -> Vec<Exposed> {
    let running = packet_ways.iter().filter(|it| it.way != Way::NotRunning);
    running
        .filter_map(|packets| {
            let vm = profile.vms.iter().find(|vm| vm.name == packets.vm)?;
            let by_ext = profile.vcpu_scheduler.as_ref();
            Some(of_vm(vm, packets, by_ext, found))
        })
        .flatten()
        .collect()
}

fn of_vm(
    vm: &VmProfile,
    packets: &PacketWay,
    by_ext: Option<&SchedulerProfile>,
    found: &Found<'_>,
) -> Vec<Exposed> {
    let name = vm.name.as_str();
    let attacks = [
        of_ring(vm, packets),
        of_polls(vm, packets),
        of_workers(vm, packets, by_ext),
        of_vcpus(vm, by_ext, found.ranked.contains(name)),
        of_disks(found.without_disk_limit.contains(name)),
    ];
    let exposed = |(attacks, why, to_do): Attack| Exposed {
        vm: vm.name.clone(),
        attacks,
        why,
        to_do: to_do.to_owned(),
    };
    attacks.into_iter().flatten().map(exposed).collect()
}

/// Attacks, why they do harm, and what bounds them.
type Attack = (&'static [&'static str], String, &'static str);

/// What its packets wait behind.
fn of_ring(vm: &VmProfile, packets: &PacketWay) -> Option<Attack> {
    if !has_a_rank(&vm.class) || !packets.waits_behind_others() {
        return None;
    }
    let why = "a flood to any other VM fills the ring that its packets wait in";
    let to_do = if vm.nic.is_some() {
        "see its line of packets"
    } else {
        "name the card in its table: nic"
    };
    Some((FRAMES, why.to_owned(), to_do))
}

/// What polls its card.
fn of_polls(vm: &VmProfile, packets: &PacketWay) -> Option<Attack> {
    if vm.receive.is_some() {
        return None;
    }
    let Some(rank) = fifo(vm.class.napi) else {
        let why = "a flood to it takes CPU time from other normal threads: the polls of its function have no bound";
        let is_function = matches!(packets.way, Way::VirtualFunction { .. });
        return is_function.then(|| (FRAMES_TO_ITS_DEVICE, why.to_owned(), BOUND_IT));
    };
    let to_it = format!("a flood to it makes the host work at rank {rank} without a bound");
    match &packets.way {
        Way::VirtualFunction { .. } => Some((FRAMES_TO_ITS_DEVICE, to_it, BOUND_IT)),
        Way::XdpProgram { .. } => Some((FRAMES_TO_ITSELF, to_it, BOUND_IT)),
        Way::OwnCard { .. } => Some((
            FRAMES_TO_ITS_DEVICE,
            format!("a flood to its card is polled at rank {rank} without a bound"),
            "use nic and receive in its table instead of a class for the card",
        )),
        _ => None,
    }
}

/// Its vhost workers.
fn of_workers(
    vm: &VmProfile,
    packets: &PacketWay,
    by_ext: Option<&SchedulerProfile>,
) -> Option<Attack> {
    if !vm.vhost_budgets.is_empty() {
        return None;
    }
    if let Some(rank) = fifo(vm.vhost(by_ext)) {
        let to_do = if vm.class.vhost_is_built_in {
            "bound them: receive = { vhost_budget = \"2ms\" }; or give the VM a budget, or its class vhost = \"normal\""
        } else {
            "bound them: receive = { vhost_budget = \"2ms\" }; or write vhost = \"normal\" in its class"
        };
        let why = format!(
            "its guest can keep CPUs from all below rank {rank}: its vhost workers have no bound"
        );
        return Some((SENDING, why, to_do));
    }
    if matches!(packets.way, Way::NoCard | Way::UserSpace) {
        return None;
    }
    let why = "its guest, and a flood to it, take CPU time from other normal threads: its vhost workers have no bound, unless \
               its cgroup has a quota (cpu.max) with its VCPUs in it";
    let to_do = "bound them: receive = { vhost_budget = \"2ms\" }";
    Some((WORKING, why.to_owned(), to_do))
}

/// Its virtual CPUs.
fn of_vcpus(
    vm: &VmProfile,
    by_ext: Option<&SchedulerProfile>,
    has_ranked_vcpus: bool,
) -> Option<Attack> {
    let is_of_ext = by_ext.is_some_and(|it| it.vms.contains_key(&vm.name));
    let has_none = vm.budgets.is_empty() || has_ranked_vcpus;
    let rank = fifo(vm.class.vcpu).filter(|_| !is_of_ext && has_none)?;
    let whose = if vm.budgets.is_empty() {
        "its VCPUs have"
    } else {
        "some of its VCPUs have"
    };
    Some((
        COMPUTING,
        format!("its guest can keep CPUs from all below rank {rank}: {whose} no budget"),
        "give it budget and period, and the host enforce = \"auto\"",
    ))
}

/// Its disks.
fn of_disks(is_unlimited: bool) -> Option<Attack> {
    let why = "its guest can keep the disks of this host busy: no cgroup of its limits one";
    let to_do = "set io.max of its cgroup (libvirt: virsh blkdeviotune; systemd: IOWriteIOPSMax=, IOReadIOPSMax=)";
    is_unlimited.then(|| (DISKS, why.to_owned(), to_do))
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
    use std::collections::BTreeMap;

    use steadyvm_host::PacketBudget;
    use steadyvm_host::profile::VcpuBudget;
    use steadyvm_sched::config;

    use super::*;

    /// The first of the attacks each, and the words.
    fn exposed_to(profile: &Profile, way: Way, is_ranked: bool) -> Vec<(&'static str, String)> {
        let packets = PacketWay {
            vm: "web".to_owned(),
            way,
            why: String::new(),
            to_do: String::new(),
        };
        let found = Found {
            ranked: is_ranked.then_some("web").into_iter().collect(),
            ..Found::default()
        };
        let found = of(profile, &[packets], &found).into_iter();
        let words = |it: Exposed| (it.attacks[0], format!("{}; {}", it.why, it.to_do));
        found.map(words).collect()
    }

    fn exposed(vm: VmProfile, way: Way) -> Vec<(&'static str, String)> {
        let profile = Profile {
            vms: vec![vm],
            ..Profile::default()
        };
        exposed_to(&profile, way, false)
    }

    fn attacks(vm: VmProfile, way: Way) -> Vec<&'static str> {
        let found = exposed(vm, way).into_iter();
        found.map(|(attack, _)| attack).collect()
    }

    fn vm(class: &str) -> VmProfile {
        VmProfile {
            name: "web".to_owned(),
            class: Class::built_in(class).unwrap(),
            ..VmProfile::default()
        }
    }

    fn budgets() -> BTreeMap<u32, VcpuBudget> {
        let budget = VcpuBudget {
            runtime_ns: 1_000_000,
            deadline_ns: 10_000_000,
            period_ns: 10_000_000,
            ..VcpuBudget::default()
        };
        [(0, budget)].into()
    }

    fn receive() -> PacketBudget {
        PacketBudget {
            runtime_ns: 2_000_000,
            period_ns: 10_000_000,
            packet_ns: 5_000,
        }
    }

    fn xdp() -> Way {
        Way::XdpProgram {
            card: "eth0".to_owned(),
            address: String::new(),
            in_force: true,
        }
    }

    #[test]
    fn a_vm_with_ranks_and_nothing_else_withstands_none() {
        let shared = || Way::SharedRing {
            cards: vec!["eth0".to_owned()],
        };
        let all = ["udp-small", "transmit", "compute"];
        assert_eq!(attacks(vm("rt"), shared()), all);
        // An ordinary VM harms ordinary VMs, by what has no bound.
        assert_eq!(attacks(vm("best-effort"), shared()), ["udp-small"]);
        let function = || Way::VirtualFunction {
            card: "eth0".to_owned(),
            number: 0,
            device: Some("eth0v0".to_owned()),
            address: String::new(),
            in_force: true,
        };
        let found = exposed(vm("best-effort"), function());
        assert!(
            found.len() == 2 && found[0].1.contains("polls of its function"),
            "{found:?}"
        );
        let bounded = VmProfile {
            receive: Some(receive()),
            vhost_budgets: vec![VcpuBudget::default()],
            ..vm("best-effort")
        };
        assert_eq!(attacks(bounded, function()), [""; 0]);
        let found = exposed(vm("rt"), shared());
        assert!(found[2].1.contains("no budget"), "{found:?}");
        assert_eq!(attacks(vm("rt"), Way::NotRunning), [""; 0]);
    }

    #[test]
    fn a_way_of_its_own_with_budgets_withstands_all_that_are_named() {
        let with_budget = VmProfile {
            budgets: budgets(),
            ..vm("rt")
        };
        assert_eq!(attacks(with_budget.clone(), xdp()), ["udp-small"; 2]);
        let with_both = VmProfile {
            receive: Some(receive()),
            vhost_budgets: vec![VcpuBudget::default()],
            ..with_budget
        };
        assert_eq!(attacks(with_both.clone(), xdp()), [""; 0]);
        // One of its VCPUs is planned a whole CPU, and keeps the rank of its class.
        let profile = Profile {
            vms: vec![with_both.clone()],
            ..Profile::default()
        };
        let found = exposed_to(&profile, xdp(), true);
        assert!(found[0].1.contains("some of its VCPUs"), "{found:?}");
        // A class that writes `vhost` keeps it beside a budget.
        let mut written = with_both;
        written.vhost_budgets.clear();
        written.class.vhost_is_built_in = false;
        let found = exposed(written, xdp());
        let is_told = found[0].0 == "transmit" && found[0].1.contains("or write vhost");
        assert!(is_told && found.len() == 1, "{found:?}");
    }

    #[test]
    fn a_vm_whose_cgroups_limit_no_disk_is_named_for_that() {
        let profile = Profile {
            vms: vec![vm("best-effort")],
            ..Profile::default()
        };
        let ways = [PacketWay {
            vm: "web".to_owned(),
            way: Way::NoCard,
            why: String::new(),
            to_do: String::new(),
        }];
        let found = Found {
            without_disk_limit: ["web"].into(),
            ..Found::default()
        };
        let exposed = of(&profile, &ways, &found);
        assert_eq!(exposed[0].attacks, ["disk"]);
        assert_eq!(of(&profile, &ways, &Found::default()), []);
    }

    #[test]
    fn a_budget_that_sched_ext_keeps_without_a_plan_counts() {
        let budget = config::Vm {
            budget_ns: 1_000_000,
            period_ns: 10_000_000,
            deadline_ns: None,
            priority: 0,
            cpus: Vec::new(),
        };
        let profile = Profile {
            vms: vec![VmProfile {
                receive: Some(receive()),
                vhost_budgets: vec![VcpuBudget::default()],
                ..vm("rt")
            }],
            vcpu_scheduler: Some(SchedulerProfile {
                vms: [("web".to_owned(), budget)].into(),
                ..SchedulerProfile::default()
            }),
            ..Profile::default()
        };
        assert_eq!(exposed_to(&profile, xdp(), false), []);
    }
}
