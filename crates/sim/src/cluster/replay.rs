//! A run: the events of a trace, one after the other, on hosts under one policy.
//!
//! - A VM that no host takes when it comes is rejected, and what it would have wished later is nothing.
//! - A host fails: its VMs are placed again, the oldest first. Those that no host takes wait until one returns.
//! - A host is drained: its VMs move, the oldest first. Those that no host takes stay.
//! - A resize looks at all hosts, as if the VM were on none. If none takes it, it stays as it was.

use std::collections::BTreeSet;

use serde::Serialize;
use steadyvm_config::PlacementPolicy;

use super::{
    claim::Needs,
    fleet::Fleet,
    scenario::Scenario,
    trace::{Event, Trace, What},
};

const HOUR_NS: f64 = 3.6e12;

/// What came of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Events of VMs and hosts, and VMs that a failure or a drain moved.
    pub events: u64,
    /// Real-time VMs that got a host when they came.
    pub admitted_rt: u64,
    /// Those that got none.
    pub rejected_rt: u64,
    /// Other VMs that got a host.
    pub admitted_other: u64,
    /// Those that got none.
    pub rejected_other: u64,
    /// Mean share of the real-time CPU of all hosts that VMs hold.
    pub rt_utilisation: f64,
    /// The same of memory.
    pub memory_utilisation: f64,
    /// Moves that somebody asked for.
    pub migrations: u64,
    /// Those that no host took.
    pub migrations_refused: u64,
    /// Changes of flavour.
    pub resizes: u64,
    /// Those that no host took.
    pub resizes_refused: u64,
    /// Changes of flavour that moved the VM.
    pub resizes_moved: u64,
    /// VMs that maintenance moved.
    pub drained: u64,
    /// Those that no host took.
    pub drained_stayed: u64,
    /// VMs of failed hosts that got another.
    pub evacuated: u64,
    /// Those that got none at once.
    pub without_host: u64,
    /// Hours that they waited, together.
    pub without_host_hours: f64,
    /// Hours of hosts whose real-time VMs have more than there is, together.
    pub overcommitted_host_hours: f64,
    /// Questions to the analysis.
    pub questions: u64,
    /// Those whose answer was not known yet.
    pub analyses: u64,
    /// The VMs of each host at the end, by number.
    #[serde(skip)]
    pub placement: Vec<Vec<u32>>,
}

impl Outcome {
    /// All moves that came true.
    pub fn moves(&self) -> u64 {
        self.migrations + self.resizes_moved + self.drained + self.evacuated
    }
}

/// What each flavour needs, by kind of host.
pub fn needs(scenario: &Scenario) -> Vec<Vec<Needs>> {
    (scenario.kinds.iter())
        .map(|kind| scenario.needs(kind))
        .collect()
}

/// Plays a trace.
pub fn replay(scenario: &Scenario, trace: &Trace, policy: PlacementPolicy) -> Outcome {
    replay_watched(scenario, trace, policy, |_, _| ())
}

/// Plays a trace, and shows the hosts after each event.
pub fn replay_watched(
    scenario: &Scenario,
    trace: &Trace,
    policy: PlacementPolicy,
    mut look: impl FnMut(&Event, &Fleet<'_>),
) -> Outcome {
    let claims = needs(scenario);
    let mut run = Run {
        fleet: Fleet::new(scenario, &claims, policy, &trace.flavours),
        waiting: BTreeSet::new(),
        found: Outcome::default(),
        sums: Sums::default(),
    };
    for event in &trace.events {
        run.pass(event.at_ns);
        run.event(event);
        look(event, &run.fleet);
    }
    run.pass(scenario.length_ns);
    run.finish(scenario)
}

/// Integrals over time in ns, up to now.
#[derive(Default)]
struct Sums {
    now: u64,
    held_ppm: f64,
    held_mib: f64,
    waiting: f64,
    overcommitted: f64,
}

struct Run<'s> {
    fleet: Fleet<'s>,
    /// VMs that lost their host.
    waiting: BTreeSet<u32>,
    found: Outcome,
    sums: Sums,
}

impl Run<'_> {
    fn pass(&mut self, at_ns: u64) {
        let passed = (at_ns - self.sums.now) as f64;
        self.sums.now = at_ns;
        self.sums.held_ppm += self.fleet.held_ppm as f64 * passed;
        self.sums.held_mib += self.fleet.held_mib as f64 * passed;
        self.sums.waiting += self.waiting.len() as f64 * passed;
        self.sums.overcommitted += f64::from(self.fleet.overcommitted) * passed;
    }

    fn event(&mut self, event: &Event) {
        self.found.events += 1;
        let subject = event.subject;
        match event.what {
            What::Arrive => self.arrive(subject),
            What::Depart => {
                self.fleet.take(subject);
                self.waiting.remove(&subject);
            }
            What::Migrate => self.migrate(subject),
            What::Resize(flavour) => self.resize(subject, flavour),
            What::Fail => self.fail(subject),
            What::Return => {
                self.fleet.set(subject, |host| host.has_failed = false);
                self.place_waiting();
            }
            What::Drain => self.drain(subject),
            What::Resume => {
                self.fleet.set(subject, |host| host.is_drained = false);
                self.place_waiting();
            }
        }
    }

    fn arrive(&mut self, vm: u32) {
        let flavour = self.fleet.vms[vm as usize].flavour;
        let place = self.fleet.choose(flavour, None);
        let found = &mut self.found;
        let counter = match (self.fleet.is_real_time(flavour), place.is_some()) {
            (true, true) => &mut found.admitted_rt,
            (true, false) => &mut found.rejected_rt,
            (false, true) => &mut found.admitted_other,
            (false, false) => &mut found.rejected_other,
        };
        *counter += 1;
        if let Some(place) = place {
            self.fleet.put(vm, place);
        }
    }

    /// Moves a VM to another host, if one takes it.
    fn moves(&mut self, vm: u32, from: u32) -> bool {
        let flavour = self.fleet.vms[vm as usize].flavour;
        let place = self.fleet.choose(flavour, Some(from));
        place.is_some_and(|place| {
            self.fleet.take(vm);
            self.fleet.put(vm, place);
            true
        })
    }

    fn migrate(&mut self, vm: u32) {
        if let Some(from) = self.fleet.vms[vm as usize].host {
            if self.moves(vm, from) {
                self.found.migrations += 1;
            } else {
                self.found.migrations_refused += 1;
            }
        }
    }

    fn resize(&mut self, vm: u32, flavour: u16) {
        let old = self.fleet.vms[vm as usize].flavour;
        if old == flavour {
            return;
        }
        let Some(before) = self.fleet.take(vm) else {
            return;
        };
        if let Some(place) = self.fleet.choose(flavour, None) {
            self.found.resizes += 1;
            self.found.resizes_moved += u64::from(place.host != before.host);
            self.fleet.vms[vm as usize].flavour = flavour;
            self.fleet.put(vm, place);
        } else {
            self.found.resizes_refused += 1;
            self.fleet.put(vm, before);
        }
    }

    /// A host's VMs, the oldest first.
    fn vms_of(&self, host: u32) -> Vec<u32> {
        let mut vms = self.fleet.hosts[host as usize].vms.clone();
        vms.sort_unstable();
        vms
    }

    fn fail(&mut self, host: u32) {
        self.fleet.set(host, |host| host.has_failed = true);
        let vms = self.vms_of(host);
        for &vm in &vms {
            self.fleet.take(vm);
        }
        for vm in vms {
            self.found.events += 1;
            let flavour = self.fleet.vms[vm as usize].flavour;
            if let Some(place) = self.fleet.choose(flavour, None) {
                self.found.evacuated += 1;
                self.fleet.put(vm, place);
            } else {
                self.found.without_host += 1;
                self.waiting.insert(vm);
            }
        }
    }

    fn drain(&mut self, host: u32) {
        self.fleet.set(host, |host| host.is_drained = true);
        for vm in self.vms_of(host) {
            self.found.events += 1;
            if self.moves(vm, host) {
                self.found.drained += 1;
            } else {
                self.found.drained_stayed += 1;
            }
        }
    }

    fn place_waiting(&mut self) {
        for vm in std::mem::take(&mut self.waiting) {
            let flavour = self.fleet.vms[vm as usize].flavour;
            match self.fleet.choose(flavour, None) {
                Some(place) => self.fleet.put(vm, place),
                None => {
                    self.waiting.insert(vm);
                }
            }
        }
    }

    fn finish(self, scenario: &Scenario) -> Outcome {
        let Self {
            fleet, found, sums, ..
        } = self;
        let kinds = || scenario.hosts.iter().map(|&kind| &scenario.kinds[kind]);
        let all_ppm: u64 = kinds()
            .map(|kind| u64::from(kind.cpus) * kind.limit_ppm)
            .sum();
        let all_mib: u64 = kinds().map(|kind| kind.memory_mib).sum();
        let length_ns = scenario.length_ns as f64;
        let share = |sum: f64, all: u64| sum / (all.max(1) as f64 * length_ns);
        let mut placement: Vec<Vec<u32>> = fleet.hosts.into_iter().map(|host| host.vms).collect();
        for vms in &mut placement {
            vms.sort_unstable();
        }
        Outcome {
            rt_utilisation: share(sums.held_ppm, all_ppm),
            memory_utilisation: share(sums.held_mib, all_mib),
            without_host_hours: sums.waiting / HOUR_NS,
            overcommitted_host_hours: sums.overcommitted / HOUR_NS,
            questions: fleet.judge.asked,
            analyses: fleet.judge.computed,
            placement,
            ..found
        }
    }
}
