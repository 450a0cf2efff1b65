//! Hosts and what they hold: put, take, and which of them takes a VM by a policy.
//!
//! | policy | a host holds a VM if | the best host |
//! |---|---|---|
//! | `nova` | its claim fits into the host's one sum | has most real-time CPU left |
//! | `nova-per-cpu` | each VCPU's share fits into the sum of a CPU | the same |
//! | `nova-stock` | no budget counts | has most memory left |
//! | `first-fit`, `best-fit`, `worst-fit` | the analysis admits it beside what is there | the first; has least left; has most left |
//!
//! All of them count memory, and VCPUs by the host's ratio. A VM without a budget goes where most memory is left (`best-fit`:
//! least; `first-fit`: the first). At equal merit the first host of the file has it, as Nova's weigher takes the first of its list.
//!
//! Cost: one look at a row of five numbers for each host; the rest for the one that is taken, and for those that the analysis
//! refuses though their sum would fit.

use steadyvm_config::PlacementPolicy;

use super::{
    claim::{Claim, Needs, WHOLE_PPM},
    judge::Judge,
    scenario::Scenario,
};

/// What is left of a host; negative where nothing bounds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Real-time CPU, in millionths of a CPU: RT-Weigher's measure.
    pub bandwidth_ppm: i64,
    /// Of the sum of claims.
    pub claim_ppm: i64,
    /// Memory.
    pub memory_mib: i64,
    /// VCPUs.
    pub vcpus: i64,
    /// It takes VMs: neither failed nor in maintenance.
    pub is_open: bool,
    /// The host's kind, here as well: a choice reads nothing else of a host.
    kind: u16,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its kind.
    pub kind: usize,
    /// Its VMs by number, in no order.
    pub vms: Vec<u32>,
    /// How many of each flavour.
    pub counts: Vec<u16>,
    /// What is left of each CPU's sum, of a million; only where a policy counts them.
    pub cpus_ppm: Vec<u32>,
    /// It has failed.
    pub has_failed: bool,
    /// It is in maintenance.
    pub is_drained: bool,
}

/// A VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vm {
    /// Its flavour now.
    pub flavour: u16,
    /// Its host.
    pub host: Option<u32>,
    /// The CPU of each VCPU; only where a policy counts them.
    pub cpus: Vec<u16>,
}

/// A place for a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The host.
    pub host: u32,
    /// The CPU of each VCPU; only where a policy counts them.
    pub cpus: Vec<u16>,
}

/// All hosts under one policy.
#[derive(Debug)]
pub struct Fleet<'s> {
    scenario: &'s Scenario,
    policy: PlacementPolicy,
    claims: &'s [Vec<Needs>],
    /// The analysis.
    pub judge: Judge<'s>,
    /// In the order of the file.
    pub hosts: Vec<Host>,
    /// What is left of each.
    pub rooms: Vec<Room>,
    /// By number.
    pub vms: Vec<Vm>,
    /// Real-time CPU that VMs hold.
    pub held_ppm: i64,
    /// Memory that VMs hold.
    pub held_mib: i64,
    /// Hosts whose real-time VMs have more than there is.
    pub overcommitted: u32,
}

impl<'s> Fleet<'s> {
    /// Empty hosts, and VMs of these flavours that are on none.
    pub fn new(
        scenario: &'s Scenario,
        claims: &'s [Vec<Needs>],
        policy: PlacementPolicy,
        flavours: &[u16],
    ) -> Self {
        let per_cpu = policy == PlacementPolicy::NovaPerCpu;
        let host = |&kind: &usize| {
            let cpus = if per_cpu {
                scenario.kinds[kind].cpus
            } else {
                0
            };
            Host {
                kind,
                vms: Vec::new(),
                counts: vec![0; scenario.flavours.len()],
                cpus_ppm: vec![WHOLE_PPM as u32; cpus as usize],
                has_failed: false,
                is_drained: false,
            }
        };
        let room = |&number: &usize| {
            let kind = &scenario.kinds[number];
            Room {
                kind: number as u16,
                bandwidth_ppm: i64::from(kind.cpus) * kind.limit_ppm as i64,
                claim_ppm: i64::from(kind.cpus) * WHOLE_PPM as i64,
                memory_mib: kind.memory_mib as i64,
                vcpus: kind.vcpus as i64,
                is_open: true,
            }
        };
        let vm = |&flavour: &u16| Vm {
            flavour,
            host: None,
            cpus: Vec::new(),
        };
        Self {
            scenario,
            policy,
            claims,
            judge: Judge::new(scenario, claims),
            hosts: scenario.hosts.iter().map(host).collect(),
            rooms: scenario.hosts.iter().map(room).collect(),
            vms: flavours.iter().map(vm).collect(),
            held_ppm: 0,
            held_mib: 0,
            overcommitted: 0,
        }
    }

    /// Whether VMs of this flavour have a budget.
    pub fn is_real_time(&self, flavour: u16) -> bool {
        self.scenario.flavours[usize::from(flavour)]
            .interface
            .is_some()
    }

    /// The place that the policy gives a VM of `flavour`, on no host of that number.
    pub fn choose(&mut self, flavour: u16, not_on: Option<u32>) -> Option<Place> {
        let best = self.best(flavour, not_on)?;
        if let Some(cpus) = self.fits(best, flavour) {
            return Some(Place { host: best, cpus });
        }
        // The sum fits there and the VCPUs do not: the others, by merit.
        let mut others: Vec<(i64, u32)> = (0..self.rooms.len() as u32)
            .filter(|&host| host != best && Some(host) != not_on)
            .filter_map(|host| Some((self.merit(host, flavour)?, host)))
            .collect();
        others.sort_unstable_by_key(|&(merit, host)| (std::cmp::Reverse(merit), host));
        others.into_iter().find_map(|(_, host)| {
            let cpus = self.fits(host, flavour)?;
            Some(Place { host, cpus })
        })
    }

    /// The host of most merit, the first of several.
    fn best(&self, flavour: u16, not_on: Option<u32>) -> Option<u32> {
        let is_first_fit = self.policy == PlacementPolicy::FirstFit;
        let mut best: Option<(i64, u32)> = None;
        for host in 0..self.rooms.len() as u32 {
            if Some(host) == not_on {
                continue;
            }
            if let Some(merit) = self.merit(host, flavour)
                && best.is_none_or(|(most, _)| merit > most)
            {
                best = Some((merit, host));
                if is_first_fit {
                    break;
                }
            }
        }
        best.map(|(_, host)| host)
    }

    /// How good a host is for a VM, of which only sums are looked at; none where these do not fit.
    fn merit(&self, host: u32, flavour: u16) -> Option<i64> {
        let room = &self.rooms[host as usize];
        let of_flavour = &self.scenario.flavours[usize::from(flavour)];
        let holds = room.is_open
            && room.memory_mib >= of_flavour.memory_mib as i64
            && room.vcpus >= i64::from(of_flavour.vcpus);
        if !holds {
            return None;
        }
        let claim = self.claims[usize::from(room.kind)][usize::from(flavour)];
        let left = match claim {
            Needs::Rest => room.memory_mib,
            _ if self.policy == PlacementPolicy::NovaStock => room.memory_mib,
            Needs::TooMuch => return None,
            Needs::Claim(claim) => {
                let holds = room.bandwidth_ppm >= claim.bandwidth_ppm as i64
                    && (self.policy != PlacementPolicy::Nova
                        || room.claim_ppm >= claim.host_ppm as i64);
                if !holds {
                    return None;
                }
                room.bandwidth_ppm
            }
        };
        Some(match self.policy {
            PlacementPolicy::FirstFit => 0,
            PlacementPolicy::BestFit => -left,
            _ => left,
        })
    }

    /// Whether a host whose sums fit holds a VM: the CPUs of its VCPUs, which only one policy counts.
    fn fits(&mut self, host: u32, flavour: u16) -> Option<Vec<u16>> {
        let of_host = &self.hosts[host as usize];
        let Needs::Claim(claim) = self.claims[of_host.kind][usize::from(flavour)] else {
            return Some(Vec::new());
        };
        match self.policy {
            // Claims that fit are a proof (claim.rs), and Nova alone asks nothing.
            PlacementPolicy::Nova | PlacementPolicy::NovaStock => Some(Vec::new()),
            PlacementPolicy::NovaPerCpu => pack(&of_host.cpus_ppm, &claim),
            _ => (self.judge)
                .holds(of_host.kind, &of_host.counts, Some(flavour))
                .then(Vec::new),
        }
    }

    /// Puts a VM there.
    pub fn put(&mut self, vm: u32, place: Place) {
        let Place { host, cpus } = place;
        let of_vm = &mut self.vms[vm as usize];
        of_vm.host = Some(host);
        of_vm.cpus = cpus;
        self.hosts[host as usize].vms.push(vm);
        self.count(vm, host, 1);
    }

    /// Takes a VM from its host: where it was.
    pub fn take(&mut self, vm: u32) -> Option<Place> {
        let host = self.vms[vm as usize].host?;
        self.count(vm, host, -1);
        let of_host = &mut self.hosts[host as usize];
        if let Some(position) = of_host.vms.iter().position(|&other| other == vm) {
            of_host.vms.swap_remove(position);
        }
        let of_vm = &mut self.vms[vm as usize];
        of_vm.host = None;
        let cpus = std::mem::take(&mut of_vm.cpus);
        Some(Place { host, cpus })
    }

    /// Adds what a VM has to what its host holds, or takes it away.
    fn count(&mut self, vm: u32, host: u32, sign: i64) {
        let Vm { flavour, cpus, .. } = &self.vms[vm as usize];
        let flavour = usize::from(*flavour);
        let of_host = &mut self.hosts[host as usize];
        let of_flavour = &self.scenario.flavours[flavour];
        let room = &mut self.rooms[host as usize];
        let count = &mut of_host.counts[flavour];
        *count = count.saturating_add_signed(sign as i16);
        room.memory_mib -= sign * of_flavour.memory_mib as i64;
        room.vcpus -= sign * i64::from(of_flavour.vcpus);
        self.held_mib += sign * of_flavour.memory_mib as i64;
        let Needs::Claim(claim) = self.claims[of_host.kind][flavour] else {
            return;
        };
        let was_over = room.bandwidth_ppm < 0;
        room.bandwidth_ppm -= sign * claim.bandwidth_ppm as i64;
        room.claim_ppm -= sign * claim.host_ppm as i64;
        self.held_ppm += sign * claim.bandwidth_ppm as i64;
        for &cpu in cpus {
            let left = &mut of_host.cpus_ppm[usize::from(cpu)];
            *left = (i64::from(*left) - sign * claim.share_ppm as i64) as u32;
        }
        match (was_over, room.bandwidth_ppm < 0) {
            (false, true) => self.overcommitted += 1,
            (true, false) => self.overcommitted -= 1,
            _ => {}
        }
    }

    /// Sets whether a host has failed, or is in maintenance.
    pub fn set(&mut self, host: u32, change: impl FnOnce(&mut Host)) {
        let of_host = &mut self.hosts[host as usize];
        change(of_host);
        self.rooms[host as usize].is_open = !of_host.has_failed && !of_host.is_drained;
    }
}

/// A CPU for each VCPU: the fullest that holds it, one without a sibling where there is one.
fn pack(cpus_ppm: &[u32], claim: &Claim) -> Option<Vec<u16>> {
    let share = claim.share_ppm as u32;
    let mut chosen: Vec<u16> = Vec::with_capacity(claim.vcpus as usize);
    for _ in 0..claim.vcpus {
        let siblings = |cpu: u16| chosen.iter().filter(|&&other| other == cpu).count() as u32;
        let next = (cpus_ppm.iter().zip(0_u16..))
            .filter_map(|(&left, cpu)| {
                let siblings = siblings(cpu);
                let rest = left.checked_sub(siblings.checked_add(1)?.checked_mul(share)?)?;
                Some((siblings > 0, rest, cpu))
            })
            .min()?;
        chosen.push(next.2);
    }
    Some(chosen)
}
