//! The scheduler in C on a model of the kernel (`model/model.c`): no thread waits long, no storm of decisions, VCPUs get what
//! they are granted, and every decision is the policy's. Races between
//! CPUs are for the lab (`crates/steadyvm-lab/tests/lab/sched.rs`).

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

use std::path::{Path, PathBuf};
use std::process::Command;
use steadyvm_sched::Record;
use steadyvm_sched_policy::{Kind, ReplayError};
use tempfile::TempDir;

/// A kick, a turn of the loader's thread and a decision on each CPU, and as much again.
const REACTION_NS: u64 = 1_000_000;

#[path = "model/inversions.rs"]
mod inversions;

struct Model {
    place: TempDir,
}

/// What a thread of a scenario got.
struct Got {
    scenario: Vec<u32>,
    name: String,
    /// Per cent of a CPU.
    share: f64,
    granted: f64,
    longest_wait_us: u64,
    unexplained: u64,
    /// Periods in which it had work all the time and not its budget.
    short: u64,
    /// While it waited with budget, for how long a CPU ran what comes after it.
    inversion_us: u64,
}

impl Model {
    fn build() -> Self {
        Self::of(2)
    }

    fn of(cpus: u32) -> Self {
        let place = TempDir::new().unwrap();
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let include = |folder: &str| format!("-I{}", here.join(folder).display());
        let built = Command::new("gcc")
            .args(["-std=gnu11", "-O1", "-Wall", "-Wno-unused", "-Werror"])
            .args(["tests/model", "bpf", "../sched-policy/policy", "../stats/c"].map(include))
            .arg(format!("-DMODEL_CPUS={cpus}"))
            .arg(here.join("tests/model/model.c"))
            .arg("-o")
            .arg(place.path().join("model"))
            .output()
            .unwrap();
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        Self { place }
    }

    fn run(&self, words: &[&str]) -> Vec<Got> {
        let mut command = Command::new(self.place.path().join("model"));
        let done = command.args(words).output().unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        assert!(
            done.status.success(),
            "{words:?}: {}",
            text.lines().last().unwrap_or("it said nothing")
        );
        text.lines().map(Got::parse).collect()
    }

    fn record(&self) -> PathBuf {
        self.place.path().join("record")
    }
}

impl Got {
    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let [
            scenario @ ..,
            name,
            share,
            granted,
            wait,
            unexplained,
            short,
            inversion,
        ] = &words[..]
        else {
            panic!("{line}");
        };
        Self {
            scenario: scenario
                .iter()
                .filter_map(|word| word.parse().ok())
                .collect(),
            name: (*name).to_owned(),
            share: share.parse().unwrap(),
            granted: granted.parse().unwrap(),
            longest_wait_us: wait.parse().unwrap(),
            unexplained: unexplained.parse().unwrap(),
            short: short.parse().unwrap(),
            inversion_us: inversion.parse().unwrap(),
        }
    }
}

/// Section 2.6 of Xi's dissertation: what a VCPU without work leaves of its CPU to one of lower priority, per cent.
#[test]
fn a_vcpu_without_work_lends_its_cpu_as_its_server_says() {
    let model = Model::build();
    for (kind, sleeper_us, rt_us, expected) in [
        (Kind::Deferrable, "4000", "4000", 40.0),
        (Kind::Periodic, "4000", "4000", 40.0),
        (Kind::WorkConserving, "4000", "4000", 40.0),
        // It runs for nothing, and then on its own budget.
        (Kind::CapacityReclaiming, "4000", "4000", 80.0),
        // Granted more than the other leaves, and lent the rest.
        (Kind::WorkConserving, "8000", "6000", 60.0),
        // Not lent, less a decision at each end.
        (Kind::Periodic, "8000", "6000", 18.0),
    ] {
        let got = model.run(&["lend", &(kind as u32).to_string(), sleeper_us, rt_us]);
        let rt = got.iter().find(|it| it.name == "rt").unwrap();
        assert!(
            (rt.share - expected).abs() < 0.5,
            "{kind:?} {sleeper_us} {rt_us}: {}",
            rt.share
        );
        assert!(got.iter().all(|it| it.unexplained == 0));
        // Normal threads have the CPU while it is held, but for what runs there on reclaimed capacity.
        let normal = got.iter().find(|it| it.name == "normal").unwrap();
        assert!(normal.share > 95.0 - rt.share, "{kind:?}: {}", normal.share);
    }
}

/// As ksoftirqd does, which a VCPU's timers wait for. As a non-RT thread it had its turn after all that compute: 68 ms.
#[test]
fn a_kernel_thread_of_a_cpu_waits_for_nobody_within_its_allowance() {
    let model = Model::build();
    // 0.2 ms in 10 ms.
    let got = model.run(&["kernel", "200", "9800"]);
    let of = |name: &str| got.iter().find(|it| it.name == name).unwrap();
    assert!(
        of("kernel").longest_wait_us < 500,
        "{} us",
        of("kernel").longest_wait_us
    );
    assert!((of("kernel").share - 2.0).abs() < 0.2);
    assert!((of("rt").share - 80.0).abs() < 0.5, "{}", of("rt").share);
}

/// A flood in softirqs takes its allowance from VCPUs, and no more: this one's budget and the allowance fill the CPU.
#[test]
fn a_kernel_thread_that_computes_leaves_a_vcpu_its_budget() {
    let model = Model::build();
    let got = model.run(&["kernel", "0", "0"]);
    let of = |name: &str| got.iter().find(|it| it.name == name).unwrap();
    // But for the period in which it wakes and runs until a tick.
    assert!(of("rt").short <= 1, "{} periods", of("rt").short);
    assert!((of("rt").share - 80.0).abs() < 0.5, "{}", of("rt").share);
    assert!(
        (5.0..10.0).contains(&of("kernel").share),
        "{}",
        of("kernel").share
    );
}

/// The tick tells of an end of a budget that is near: for one that the VCPU sleeps before, the loader is not woken.
#[test]
fn the_loader_has_nothing_to_do_for_a_vcpu_that_sleeps_before_its_budget_ends() {
    let model = Model::build();
    let run = |work_us, sleep_us| {
        let got = model.run(&["sleep", work_us, sleep_us, "20000"]);
        let share = |name: &str| got.iter().find(|it| it.name == name).unwrap().share;
        (share("loader"), share("rt"))
    };
    let (loader, rt) = run("5000", "45000");
    assert!((rt - 10.0).abs() < 0.5, "{rt}");
    assert!(loader < 0.02, "{loader}");
    // It wants more than its budget: every end is seen, and every return.
    let (loader, rt) = run("1000000", "1");
    assert!((rt - 40.0).abs() < 0.5, "{rt}");
    assert!(loader > 0.2, "{loader}");
}

/// A CPU that idles as the FIFO thread wakes is asked for a choice. What it chose waited in its local queue for as long as that
/// thread ran, all budgets of that time lost.
#[test]
fn a_vcpu_waits_for_no_fifo_thread_that_takes_a_cpu_as_it_wakes_up() {
    let model = Model::build();
    // At every place of the VCPU's period that the FIFO thread can wake.
    for leaves_us in ["2000", "3500", "5000", "6500", "8000", "9900"] {
        let got = model.run(&["fifo", leaves_us, "0"]);
        let rt = got.iter().find(|it| it.name == "rt").unwrap();
        assert!(
            (rt.share - 40.0).abs() < 0.2 && rt.longest_wait_us < 12_000,
            "{leaves_us}: {} %, {} us",
            rt.share,
            rt.longest_wait_us
        );
    }
}

/// The kernel keeps a thread from migrating while it runs a program of the scheduler, as one does that loses its CPU. Taken for
/// bound to that CPU, it waited there for the FIFO thread, and CPUs idled.
#[test]
fn threads_that_lose_their_cpu_go_to_another() {
    let model = Model::build();
    let got = model.run(&["fifo", "50000", "4"]);
    let normal: Vec<f64> = got
        .iter()
        .filter(|it| it.name == "normal")
        .map(|it| it.share)
        .collect();
    // 150 % of a CPU, less the VCPU's 40, among four.
    assert_eq!(normal.len(), 4);
    for share in &normal {
        assert!((25.0..28.0).contains(share), "{normal:?}");
    }
    let waits = got.iter().map(|it| it.longest_wait_us).max();
    assert!(waits < Some(45_000), "{waits:?}");
}

/// A thread that has another class as it is named asks for nothing, and so idles nothing away.
#[test]
fn a_vcpu_of_another_class_holds_no_cpu() {
    let model = Model::build();
    let periodic = (Kind::Periodic as u32).to_string();
    let share = |words: &[&str]| {
        let got = model.run(&[&["lend", &periodic, "8000", "6000"], words].concat());
        got.iter().find(|it| it.name == "rt").unwrap().share
    };
    assert!((share(&[]) - 18.0).abs() < 0.5);
    assert!((share(&["fifo"]) - 60.0).abs() < 0.5);
}

/// The ring of records is full for a while: the record says how many it lacks, and nothing is made of the rest.
#[test]
fn a_record_says_how_much_of_it_is_lost() {
    let model = Model::build();
    let record = model.record();
    model.run(&["mix", "1", record.to_str().unwrap(), "5000", "7"]);
    let bytes = std::fs::read(&record).unwrap();
    let replayed = Record::parse(&bytes).unwrap().replay(REACTION_NS);
    // Of the seven that found no room three were to say that some are lost.
    assert_eq!(replayed, Err(ReplayError::Lost(4)));
}

#[test]
fn every_mix_of_servers_orders_and_queues_runs_as_granted_and_as_the_policy_decides() {
    let model = Model::build();
    let record = model.record();
    for seed in 1..=3 {
        let got = model.run(&["mix", &seed.to_string(), record.to_str().unwrap()]);
        assert_eq!(got.len(), 2 * 7 * 4 * 12);
        for it in &got {
            let Got {
                scenario,
                name,
                share,
                granted,
                longest_wait_us,
                unexplained,
                ..
            } = it;
            let case = format!(
                "seed {seed}, {scenario:?}, {name}: {share} of {granted}, {longest_wait_us} us"
            );
            assert_eq!(*unexplained, 0, "{case}");
            assert!(*longest_wait_us < 100_000, "{case}");
            // The last scenario's use is paid for in this one.
            let reclaims = scenario[1] == Kind::CapacityReclaiming as u32;
            assert!(
                *granted == 0.0 || reclaims || *share < granted + 1.5,
                "{case}"
            );
            assert!(
                !name.starts_with("computes") || *share > granted - 1.5,
                "{case}"
            );
        }
        let bytes = std::fs::read(&record).unwrap();
        let replayed = Record::parse(&bytes).unwrap().replay(REACTION_NS);
        let replayed = replayed.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(
            replayed.decisions > 10_000 && replayed.holds > 1_000 && replayed.lent > 1_000,
            "{replayed:?}"
        );
    }
}
