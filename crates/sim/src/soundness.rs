//! What the plan accepts is never late: random plan files, over all keys, played in bad patterns.
//!
//! A case is a plan file, so that a counter-example can be read, kept and given to `steadyvm simulate`. [`draw`] makes
//! it: VMs join a host as long as the plan stays feasible, so that most hosts are nearly full. Each file is played in
//! several patterns: releases together or apart, execution times and gaps at their ends or anywhere, VMs of a given
//! budget as adversaries. What is late is made smaller ([`shrink`]): whatever can be left out of the file is.
//!
//! That the search can fail at all is shown by the same search with one VCPU's budget a unit less ([`Search::less`]).

mod draw;
mod shrink;

use std::{collections::BTreeMap, time::Instant};

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use steadyvm_config::Simulate;
use steadyvm_sched_policy::{Kind, Parameters};
use toml::Table;

use crate::{
    plan::{self, Scenario},
    simulate,
    system::KeptBy,
};

/// Patterns in which a file is played.
const PATTERNS: u64 = 4;

/// Where a file has its pattern, which is simulate.toml's, while it is made smaller.
const PATTERN: &str = "simulate";

/// What to search.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    /// The first file's number; they are counted up from here.
    pub seed: u64,
    /// Accepted files to play.
    pub files: u64,
    /// Ends the search before that.
    pub until: Option<Instant>,
    /// Counter-examples after which it ends.
    pub most: usize,
    /// Files whose switches cost time are played, too.
    pub costs: bool,
    /// One VCPU has a unit of the file's times less than is installed: the counter-check.
    pub less: bool,
}

impl Search {
    /// So many accepted files from `seed` on, to the first counter-example.
    pub const fn new(seed: u64, files: u64) -> Self {
        Self {
            seed,
            files,
            until: None,
            most: 1,
            costs: true,
            less: false,
        }
    }
}

/// A file that was accepted, and yet a job was late.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterExample {
    /// The number of the file it was found in.
    pub number: u64,
    /// Late jobs.
    pub late: u64,
    /// A plan file; `steadyvm simulate` shows the same, except in the counter-check.
    pub toml: String,
    /// simulate.toml for it.
    pub simulate: String,
}

/// What a search found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Files drawn.
    pub drawn: u64,
    /// Of these, accepted by the plan and played.
    pub accepted: u64,
    /// Of these, with a late job.
    pub late: u64,
    /// Plays: several of each file.
    pub plays: u64,
    /// Jobs that finished or should have.
    pub jobs: u64,
    /// Accepted files, and late ones, that have something: a server on a kind of host, a quantum, a mask, ...
    pub kinds: BTreeMap<String, (u64, u64)>,
    /// The first late ones, made smaller.
    pub found: Vec<CounterExample>,
}

/// Searches; `progress` sees the tally after each accepted file.
pub fn search(search: &Search, mut progress: impl FnMut(&Tally)) -> Tally {
    let mut tally = Tally::default();
    while tally.accepted < search.files && tally.found.len() < search.most {
        if search.until.is_some_and(|until| Instant::now() >= until) {
            break;
        }
        let number = search.seed.wrapping_add(tally.drawn);
        tally.drawn += 1;
        let Some(file) = draw::file(number) else {
            continue;
        };
        let Some(played) = play(&file, number, search) else {
            continue;
        };
        tally.accepted += 1;
        tally.plays += played.plays;
        tally.jobs += played.jobs;
        tally.late += u64::from(played.late.is_some());
        for kind in played.kinds {
            let (accepted, late) = tally.kinds.entry(kind).or_default();
            *accepted += 1;
            *late += u64::from(played.late.is_some());
        }
        if let Some(pattern) = played.late {
            let mut file = file.table;
            file.insert(PATTERN.to_owned(), pattern.into());
            if !search.less {
                file = shrink::smaller(file, |file| late(file) > 0);
            }
            let late = late(&file);
            let (toml, simulate) = split(file);
            tally.found.push(CounterExample {
                number,
                late,
                toml,
                simulate,
            });
        }
        progress(&tally);
    }
    tally
}

/// The plan file of a number, without a pattern.
pub fn file(number: u64) -> Option<String> {
    draw::file(number).map(|file| file.table.to_string())
}

/// Late jobs of a file; none if the plan is not feasible.
fn late(file: &Table) -> u64 {
    let Some(scenario) = accepted(file) else {
        return 0;
    };
    simulate(&scenario.system, scenario.seed, scenario.duration_ns)
        .map_or(0, |outcome| outcome.late())
}

/// The plan file and simulate.toml.
fn split(mut file: Table) -> (String, String) {
    let pattern = file.remove(PATTERN);
    let pattern = pattern.as_ref().and_then(toml::Value::as_table);
    let simulate = pattern.map_or_else(String::new, Table::to_string);
    (file.to_string(), simulate)
}

fn accepted(file: &Table) -> Option<Scenario> {
    let (file, pattern) = split(file.clone());
    let pattern = Simulate::parse("", &pattern).ok()?;
    let scenario = plan::parse(&file, &pattern).ok()?;
    scenario.report.feasible.then_some(scenario)
}

struct Played {
    plays: u64,
    jobs: u64,
    kinds: Vec<String>,
    /// The pattern in which a job is late, as the keys of simulate.toml.
    late: Option<Table>,
}

/// Plays a file in its patterns, up to the first late job; `None` if the plan does not accept it.
fn play(file: &draw::File, number: u64, search: &Search) -> Option<Played> {
    let scenario = accepted(&file.table)?;
    if !search.costs && scenario.system.overheads != crate::system::Overheads::default() {
        return None;
    }
    let mut random = ChaCha8Rng::seed_from_u64(!number);
    let mut played = Played {
        plays: 0,
        jobs: 0,
        kinds: kinds(&file.table, &scenario),
        late: None,
    };
    let mut scenario = scenario;
    if search.less && !take_away(&mut scenario, file.unit_us * 1_000, &mut random) {
        return None;
    }
    for turn in 0..PATTERNS {
        let pattern = Pattern::draw(number.wrapping_add(turn), file.longest_us, &mut random);
        let system = pattern.of(&scenario);
        let Ok(outcome) = simulate(&system.system, pattern.seed, pattern.duration_us * 1_000)
        else {
            return None;
        };
        played.plays += 1;
        played.jobs += outcome.due();
        if outcome.late() > 0 {
            played.late = Some(pattern.table());
            break;
        }
    }
    Some(played)
}

/// A pattern, as simulate.toml has it.
#[derive(Debug, Clone, Copy)]
struct Pattern {
    seed: u64,
    duration_us: u64,
    factor_percent: u32,
    gap_percent: u32,
    random_offsets: bool,
    adversary: bool,
}

impl Pattern {
    fn draw(seed: u64, longest_us: u64, random: &mut ChaCha8Rng) -> Self {
        Self {
            // As a file has it: a signed number.
            seed: seed & (u64::MAX >> 1),
            duration_us: longest_us * random.random_range(10..=40),
            factor_percent: [100, 100, 40, 1].choose(random).copied().unwrap_or(100),
            gap_percent: [100, 100, 150, 300].choose(random).copied().unwrap_or(100),
            random_offsets: random.random_bool(0.7),
            adversary: random.random_bool(0.8),
        }
    }

    fn of(self, scenario: &Scenario) -> Scenario {
        let mut scenario = scenario.clone();
        scenario.system.play.adversary = self.adversary;
        for task in (scenario.system.guests.iter_mut()).flat_map(|guest| &mut guest.tasks) {
            task.execution_factor_percent = self.factor_percent;
            task.longest_gap_percent = self.gap_percent;
        }
        scenario.random_offsets = self.random_offsets;
        scenario.system.play.random_phases = self.random_offsets;
        scenario.with_seed(self.seed)
    }

    fn table(self) -> Table {
        let mut table = Table::new();
        let mut set = |key: &str, value: toml::Value| {
            table.insert(key.to_owned(), value);
        };
        set("duration", format!("{}us", self.duration_us).into());
        set("seed", (self.seed as i64).into());
        set(
            "execution_factor_percent",
            i64::from(self.factor_percent).into(),
        );
        set("longest_gap_percent", i64::from(self.gap_percent).into());
        set("random_offsets", self.random_offsets.into());
        set("adversary", self.adversary.into());
        table
    }
}

/// One VCPU whose tasks are known gets `unit` less; false if no VCPU has so much and less than its period.
fn take_away(scenario: &mut Scenario, unit: u64, random: &mut ChaCha8Rng) -> bool {
    let mut vcpus: Vec<&mut Parameters> = (scenario.system.guests.iter_mut())
        .filter(|guest| !guest.tasks.is_empty())
        .flat_map(|guest| &mut guest.vcpus)
        .map(|vcpu| &mut vcpu.parameters)
        .filter(|given| given.budget_ns() > unit && given.budget_ns() < given.period_ns())
        .collect();
    if vcpus.is_empty() {
        return false;
    }
    let chosen = random.random_range(0..vcpus.len());
    let given = *vcpus[chosen];
    let less = Parameters::new(given.kind(), given.budget_ns() - unit, given.period_ns())
        .and_then(|less| less.with_deadline(given.deadline_ns()));
    less.map(|less| *vcpus[chosen] = less.with_priority(given.priority()))
        .is_ok()
}

/// What a file has, in words that are counted.
fn kinds(file: &Table, scenario: &Scenario) -> Vec<String> {
    let system = &scenario.system;
    let host = file.get("host").and_then(toml::Value::as_table);
    let word = |key: &str| (host.and_then(|host| host.get(key))).and_then(toml::Value::as_str);
    let real: Vec<&Parameters> = (system.guests.iter())
        .flat_map(|guest| &guest.vcpus)
        .map(|vcpu| &vcpu.parameters)
        .filter(|parameters| parameters.is_rt())
        .collect();
    let server = match system.play.kept_by {
        KeptBy::Deadline => "SCHED_DEADLINE",
        // A reservation is a sporadic server there.
        KeptBy::Policy if real.iter().any(|it| it.kind() == Kind::ConstantBandwidth) => "cbs",
        KeptBy::Policy => real.first().map_or("none", |it| it.kind().word()),
    };
    let scheduler = word("scheduler").unwrap_or("pedf");
    let mut kinds = vec!["all".to_owned(), format!("{scheduler} {server}")];
    let text = file.to_string();
    let has_overheads = system.overheads != crate::system::Overheads::default();
    let vms = file.get("vm").and_then(toml::Value::as_array);
    let vm_has = |key: &str| vms.is_some_and(|vms| vms.iter().any(|vm| vm.get(key).is_some()));
    for (what, has) in [
        ("quantum", system.host.quantum_ns > 0),
        ("overheads", has_overheads),
        ("mask", vm_has("cpus")),
        (
            "reservation",
            real.iter().any(|it| it.deadline_ns() < it.period_ns()),
        ),
        ("service", file.contains_key("service")),
        ("budget given", vm_has("budget")),
        ("self-suspension", text.contains("suspension = ")),
        ("jitter", text.contains("jitter = ")),
        (
            "several VCPUs",
            system.guests.iter().any(|guest| guest.vcpus.len() > 1),
        ),
        (
            "isolate = false",
            host.is_some_and(|host| host.contains_key("isolate")),
        ),
        ("enforce deadline", word("enforce") == Some("deadline")),
        ("enforce ext", word("enforce") == Some("ext")),
        ("class", file.contains_key("class")),
    ] {
        if has {
            kinds.push(what.to_owned());
        }
    }
    kinds
}
