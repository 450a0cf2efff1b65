//! Random systems that the analysis accepts, simulated under the policy they were accepted for: none may be late.
//!
//! A case is a plan file, so that a counter-example can be read, kept and given to `steadyvm simulate`. One that is
//! found is made smaller first: VMs, tasks and CPUs are left out while a job is still late and the plan still feasible.

use std::fmt::Write;

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use crate::{plan, simulate};

/// What may be drawn.
#[derive(Debug, Clone)]
pub struct Space {
    /// Host schedulers, words of plan files.
    pub hosts: Vec<&'static str>,
    /// Servers, words of plan files.
    pub servers: Vec<&'static str>,
}

impl Default for Space {
    /// What the analysis claims to be sound for.
    fn default() -> Self {
        Self {
            hosts: vec!["pedf", "gedf", "pdm", "gdm"],
            servers: vec!["deferrable", "periodic", "sporadic", "cbs"],
        }
    }
}

/// A system that was accepted and yet late.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterExample {
    /// The number of the system it was found in.
    pub number: u64,
    /// Late jobs.
    pub late: u64,
    /// A plan file; `steadyvm simulate` shows the same.
    pub toml: String,
}

/// What a run found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Systems drawn.
    pub drawn: u64,
    /// Of these, accepted by the analysis and simulated.
    pub accepted: u64,
    /// Jobs that finished or should have.
    pub jobs: u64,
    /// Simulated events.
    pub events: u64,
}

#[derive(Debug, Clone)]
struct Case {
    cpus: u32,
    host: &'static str,
    server: &'static str,
    gap_percent: u32,
    factor_percent: u32,
    random_offsets: bool,
    seed: u64,
    vms: Vec<CaseVm>,
}

#[derive(Debug, Clone)]
struct CaseVm {
    scheduler: &'static str,
    interface: &'static str,
    period_ms: u64,
    vcpus: Option<u32>,
    /// Execution, deadline and period, ms.
    tasks: Vec<(u64, u64, u64)>,
}

/// Draws systems until `accepted` were simulated, from `seed` on.
///
/// # Errors
/// The first counter-example, made smaller.
pub fn check(space: &Space, accepted: u64, seed: u64) -> Result<Tally, Box<CounterExample>> {
    let mut tally = Tally::default();
    while tally.accepted < accepted {
        let number = seed.wrapping_add(tally.drawn);
        tally.drawn += 1;
        let case = draw(space, number);
        let Some(outcome) = case.play() else {
            continue;
        };
        if outcome.late() > 0 {
            let case = case.smaller();
            return Err(Box::new(CounterExample {
                number,
                late: case.play().map_or(0, |outcome| outcome.late()),
                toml: case.toml(),
            }));
        }
        tally.accepted += 1;
        tally.jobs += outcome.due();
        tally.events += outcome.events;
    }
    Ok(tally)
}

fn draw(space: &Space, number: u64) -> Case {
    let mut random = ChaCha8Rng::seed_from_u64(number);
    let pick = |random: &mut ChaCha8Rng, words: &[&'static str]| {
        words.choose(random).copied().unwrap_or("")
    };
    let cpus = random.random_range(1..=3);
    let host = pick(&mut random, &space.hosts);
    // Shares that fill the CPUs to between a third and all of them.
    let total = f64::from(cpus) * random.random_range(0.3..1.0);
    let count = random.random_range(1..=cpus as usize + 2);
    let vms = (0..count)
        .map(|_| {
            let share = total / count as f64 * random.random_range(0.5..1.2);
            let scheduler = pick(&mut random, &["edf", "dm", "gedf", "pedf"]);
            let tasks = random.random_range(1..=3);
            let several = matches!(scheduler, "gedf" | "pedf");
            CaseVm {
                scheduler,
                interface: if scheduler == "gedf" {
                    pick(&mut random, &["mpr", "dmpr"])
                } else {
                    "prm"
                },
                period_ms: random.random_range(1..=10),
                vcpus: several.then(|| random.random_range(1..=2)),
                tasks: (0..tasks)
                    .map(|_| {
                        let period = random.random_range(4..=40_u64);
                        let execution = (share / f64::from(tasks) * period as f64).round() as u64;
                        let execution = execution.clamp(1, period);
                        let deadline = if random.random_bool(0.7) {
                            period
                        } else {
                            random.random_range(execution..=period)
                        };
                        (execution, deadline, period)
                    })
                    .collect(),
            }
        })
        .collect();
    Case {
        cpus,
        host,
        server: pick(&mut random, &space.servers),
        gap_percent: if random.random_bool(0.5) { 100 } else { 150 },
        factor_percent: if random.random_bool(0.7) { 100 } else { 40 },
        random_offsets: random.random_bool(0.7),
        seed: number,
        vms,
    }
}

impl Case {
    /// Simulates it; `None` if the analysis does not accept it.
    fn play(&self) -> Option<crate::Outcome> {
        let scenario = plan::parse(&self.toml()).ok()?;
        if !scenario.report.feasible {
            return None;
        }
        simulate(&scenario.system, scenario.seed, scenario.duration_ns).ok()
    }

    fn toml(&self) -> String {
        let mut text = format!(
            "[host]\npcpus = {}\nscheduler = \"{}\"\nserver = \"{}\"\n\n[simulate]\nduration = \"1s\"\nseed = {}\nlongest_gap_percent = {}\nexecution_factor_percent = {}\nrandom_offsets = {}\n",
            self.cpus,
            self.host,
            self.server,
            self.seed,
            self.gap_percent,
            self.factor_percent,
            self.random_offsets
        );
        // Writing to a string does not fail.
        for (number, vm) in self.vms.iter().enumerate() {
            let _ = write!(
                text,
                "\n[[vm]]\nname = \"vm{number}\"\nscheduler = \"{}\"\ninterface = \"{}\"\nperiod = \"{}ms\"\n",
                vm.scheduler, vm.interface, vm.period_ms
            );
            if let Some(vcpus) = vm.vcpus {
                let _ = writeln!(text, "vcpus = {vcpus}");
            }
            let _ = writeln!(text, "tasks = [");
            for (c, d, t) in &vm.tasks {
                let _ = writeln!(text, "  {{ c = \"{c}ms\", d = \"{d}ms\", t = \"{t}ms\" }},");
            }
            let _ = writeln!(text, "]");
        }
        text
    }

    /// Leaves out what is not needed for a late job.
    fn smaller(mut self) -> Self {
        loop {
            let next = self
                .reductions()
                .into_iter()
                .find(|case| case.play().is_some_and(|outcome| outcome.late() > 0));
            match next {
                Some(case) => self = case,
                None => return self,
            }
        }
    }

    fn reductions(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let mut add = |change: &dyn Fn(&mut Self)| {
            let mut case = self.clone();
            change(&mut case);
            all.push(case);
        };
        for vm in 0..self.vms.len() {
            if self.vms.len() > 1 {
                add(&|case| {
                    case.vms.remove(vm);
                });
            }
            for task in 0..self.vms[vm].tasks.len() {
                if self.vms[vm].tasks.len() > 1 {
                    add(&|case| {
                        case.vms[vm].tasks.remove(task);
                    });
                }
                if self.vms[vm].tasks[task].0 > 1 {
                    add(&|case| case.vms[vm].tasks[task].0 -= 1);
                }
            }
        }
        if self.cpus > 1 {
            add(&|case| case.cpus -= 1);
        }
        if self.gap_percent > 100 {
            add(&|case| case.gap_percent = 100);
        }
        if self.factor_percent < 100 {
            add(&|case| case.factor_percent = 100);
        }
        if self.random_offsets {
            add(&|case| case.random_offsets = false);
        }
        all
    }
}
