//! Random plans that the analysis accepts, enforced in the emulated host: every VCPU gets in any window what its budget
//! promises (Shin and Lee 2003, periodic resource model), beside neighbours that never sleep. As `tests/lab_sched.rs`.
//!
//! A sampler reads the CPU time of each thread again and again; every pair of its samples is a window. The plan counts the
//! costs of an emulated host, which are upper estimates.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

#[allow(dead_code, reason = "each file of tests uses its part")]
#[path = "support/sched.rs"]
mod sched;

use sched::{Lab, Spinner};
use std::fmt::Write as _;
use steadyvm_analysis::plan::random::{self, Random};
use steadyvm_experiment::engine::{Repetitions, STANDSTILL};
use steadyvm_lab::progress::Silent;

/// As many plans are enforced by each mechanism.
const PLANS: usize = 50;
/// What a sample may be late or early, in us: the kernel counts a running thread at its tick of 4 ms, and an emulated CPU
/// may stand still for as long as its thread waits for the machine's (`lab_sched.rs`, `REACTION_US`).
const TOLERANCE_US: i64 = 20_000;
/// So many plans are enforced again because this machine stood still meanwhile.
const MOST_AGAIN: u64 = 10;
/// Of each plan, in tenths of a second.
const WINDOW: u32 = 10;

/// A global host and one with a CPU for each VCPU, in turn.
const TEXT: &str = r#"
sets = 40
seed = 30
from = 0.4
to = 1.2
step = 0.2
vms = 4
tasks = 6
periods = { from = "400ms", to = "1s" }
vcpu_periods = ["100ms", "150ms", "200ms"]

[[columns]]
host = "gedf"
guest = "edf"
interface = "prm"

[[columns]]
host = "pedf"
guest = "edf"
interface = "prm"

[host]
pcpus = 2
enforce = "deadline"
overheads = { decision = "500us", context_switch = "1ms", migration = "1ms" }
"#;

/// A VCPU of a plan. Times in us.
#[derive(Debug, Clone)]
struct Vcpu {
    /// What its guest was analysed with.
    promised_us: i64,
    /// What is enforced: the same and the host's costs.
    budget_us: i64,
    period_us: i64,
    /// Its only one, on a partitioned host.
    cpu: Option<u32>,
}

impl Vcpu {
    /// The least in any window: `sbf` of the periodic resource model.
    fn least_us(&self, window_us: i64) -> i64 {
        let blackout = self.period_us - self.promised_us;
        let left = window_us - blackout;
        if left < 0 {
            return 0;
        }
        let (periods, rest) = (left / self.period_us, left % self.period_us);
        periods * self.promised_us + (rest - blackout).max(0)
    }

    /// The most in any window, of a deferrable server.
    fn most_us(&self, window_us: i64) -> i64 {
        (window_us / self.period_us + 2) * self.budget_us
    }
}

#[derive(Debug, Clone)]
struct Plan {
    partitioned: bool,
    vcpus: Vec<Vcpu>,
}

/// The accepted plans, spread over utilisations and hosts.
fn plans() -> Vec<Plan> {
    let random = Random::of(TEXT).unwrap();
    let mut accepted = Vec::new();
    random::each(TEXT, &random, |_, column, report| {
        if !report.feasible {
            return;
        }
        let partitioned = column == 1;
        let vcpus: Vec<Vcpu> = (report.vms.iter())
            .flat_map(|vm| &vm.vcpus)
            .filter(|vcpu| vcpu.budget > 0)
            .map(|vcpu| {
                let install = vcpu.install.as_ref().unwrap();
                Vcpu {
                    promised_us: vcpu.budget / 1000,
                    budget_us: install.runtime_ns / 1000,
                    period_us: install.period_ns / 1000,
                    cpu: partitioned.then(|| install.cpus[0]),
                }
            })
            .collect();
        accepted.push(Plan { partitioned, vcpus });
    })
    .unwrap();
    assert!(accepted.len() >= PLANS, "only {} plans", accepted.len());
    let step = accepted.len() / PLANS;
    accepted.into_iter().step_by(step).take(PLANS).collect()
}

/// What the sampler saw of a thread: when, and its CPU time, in us.
type Samples = Vec<(i64, i64)>;

/// The first window that had less than promised or more than granted.
fn violation(vcpu: &Vcpu, samples: &Samples) -> Option<String> {
    let pairs = samples
        .iter()
        .enumerate()
        .flat_map(|(at, from)| samples[at + 1..].iter().map(move |to| (from, to)));
    for (from, to) in pairs {
        let (window, got) = (to.0 - from.0, to.1 - from.1);
        let (least, most) = (vcpu.least_us(window), vcpu.most_us(window));
        if got + TOLERANCE_US < least || got - TOLERANCE_US > most {
            return Some(format!("{got} us in {window} us, not {least} to {most} us"));
        }
    }
    None
}

/// The furthest below what was promised, in us; below 0: nothing ever was.
fn worst_us(vcpu: &Vcpu, samples: &Samples) -> i64 {
    let missing = |(at, from): (usize, &(i64, i64))| {
        let later = samples[at + 1..].iter();
        later
            .map(|to| vcpu.least_us(to.0 - from.0) - (to.1 - from.1))
            .max()
    };
    samples
        .iter()
        .enumerate()
        .filter_map(missing)
        .max()
        .unwrap_or(0)
}

/// Reads each thread's CPU time again and again, without starting a process. It stands above all VCPUs of `ext`, which the
/// plan does not know: so it sleeps for much longer than it reads.
fn sample(lab: &Lab, tids: &[u32]) -> Vec<Samples> {
    let words: Vec<String> = tids.iter().map(u32::to_string).collect();
    let script = format!(
        "exec 3<> /run/never; end=$((${{EPOCHREALTIME/./}} + {WINDOW}00000))
         while ((${{EPOCHREALTIME/./}} < end)); do
             for tid in {}; do
                 read ran _ < /proc/$tid/schedstat; echo $tid ${{EPOCHREALTIME/./}} $ran
             done
             read -t 0.05 -u 3 _ || :
         done",
        words.join(" ")
    );
    let connection = lab.host.connection();
    let text = connection
        .text(&["chrt", "-f", "90", "bash", "-euc", &script])
        .unwrap();
    let mut samples = vec![Samples::new(); tids.len()];
    for line in text.lines() {
        let numbers: Vec<i64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        let at = tids
            .iter()
            .position(|&tid| i64::from(tid) == numbers[0])
            .unwrap();
        samples[at].push((numbers[1], numbers[2] / 1000));
    }
    samples
}

fn check(mechanism: &str, number: usize, plan: &Plan, samples: &[Samples]) -> i64 {
    for (vcpu, samples) in plan.vcpus.iter().zip(samples) {
        assert!(
            samples.len() > 2,
            "plan {number}: {} samples",
            samples.len()
        );
        if let Some(what) = violation(vcpu, samples) {
            panic!("{mechanism}, plan {number}: {vcpu:?} got {what}; the plan: {plan:#?}");
        }
    }
    let worst = plan
        .vcpus
        .iter()
        .zip(samples)
        .map(|(vcpu, it)| worst_us(vcpu, it));
    worst.max().unwrap_or(0)
}

/// What was seen while this machine did not stand still: a clock beside the lab says so, never what was seen.
fn undisturbed<T>(machine: &mut Repetitions, number: usize, see: impl Fn() -> T) -> T {
    loop {
        machine.begin();
        let seen = see();
        if !machine.are_needed(&format!("plan {number}"), &Silent) {
            return seen;
        }
    }
}

fn by_ext(lab: &Lab, machine: &mut Repetitions, plans: &[Plan], threads: &[Spinner]) {
    let section = |plan: &Plan| {
        let scheduler = if plan.partitioned { "pedf" } else { "gedf" };
        let mut text = format!("[host]\nenforce = \"ext\"\nscheduler = \"{scheduler}\"\n");
        let mut words = String::new();
        for (at, (vcpu, thread)) in plan.vcpus.iter().zip(threads).enumerate() {
            let (budget, period) = (vcpu.budget_us, vcpu.period_us);
            let _ = writeln!(
                text,
                "[[vm]]\nname = \"v{at}\"\nbudget = \"{budget}us\"\nperiod = \"{period}us\""
            );
            if let Some(cpu) = vcpu.cpu {
                let _ = writeln!(text, "cpus = [{cpu}]");
            }
            let _ = write!(words, " --thread v{at}={}", thread.tid);
        }
        (text, words)
    };
    let _loader = lab.load("[host]\nenforce = \"ext\"\nscheduler = \"gedf\"\n", "");
    let (mut worst, mut short, mut missing) = (0, 0, 0);
    for (number, plan) in plans.iter().enumerate() {
        let (text, words) = section(plan);
        let tids: Vec<u32> = threads
            .iter()
            .take(plan.vcpus.len())
            .map(|it| it.tid)
            .collect();
        let (samples, standing) = undisturbed(machine, number, || {
            lab.apply(&text, &words);
            let seen = (sample(lab, &tids), lab.show());
            // From their next budget on they are new: all is counted for one plan.
            lab.apply("[host]\nenforce = \"ext\"\nscheduler = \"gedf\"\n", "");
            lab.run(&format!(
                "for tid in {}; do taskset -cp 0,1 $tid > /dev/null; done",
                list(&tids)
            ));
            seen
        });
        worst = worst.max(check("ext", number, plan, &samples));
        for vcpu in standing["vcpus"].as_array().unwrap() {
            assert_eq!(vcpu["unexplained_periods"], 0, "plan {number}: {vcpu}");
            let of = |name: &str| vcpu[name].as_i64().unwrap();
            short += of("short_periods");
            missing = missing.max(of("most_short_ns") / 1000);
            // What is enforced, not only what is promised, in every single period.
            assert!(
                missing <= TOLERANCE_US,
                "ext, plan {number}: {vcpu}; the plan: {plan:#?}"
            );
        }
    }
    eprintln!(
        "ext: {} plans; at most {worst} us below a promise; {short} periods short, by {missing} us at most",
        plans.len()
    );
    lab.run("steadyvm sched ext stop");
}

fn by_deadline(lab: &Lab, machine: &mut Repetitions, plans: &[Plan], threads: &[Spinner]) {
    let mut worst = 0;
    // The plan admits; the kernel's admission knows global EDF only (crates/host/src/net/budget.rs).
    lab.run("echo -1 > /proc/sys/kernel/sched_rt_runtime_us");
    for (number, plan) in plans.iter().enumerate() {
        let mut script = String::new();
        for (vcpu, thread) in plan.vcpus.iter().zip(threads) {
            let tid = thread.tid;
            let cpus = vcpu.cpu.map_or("0,1".to_owned(), |cpu| cpu.to_string());
            let (budget, period) = (vcpu.budget_us * 1000, vcpu.period_us * 1000);
            let _ = writeln!(
                script,
                "taskset -cp {cpus} {tid} > /dev/null; chrt -d -T {budget} -D {period} -P {period} -p 0 {tid}"
            );
        }
        let tids: Vec<u32> = threads
            .iter()
            .take(plan.vcpus.len())
            .map(|it| it.tid)
            .collect();
        let samples = undisturbed(machine, number, || {
            lab.run(&script);
            let samples = sample(lab, &tids);
            lab.run(&format!(
                "for tid in {}; do chrt -o -p 0 $tid; taskset -cp 0,1 $tid > /dev/null; done",
                list(&tids)
            ));
            samples
        });
        worst = worst.max(check("deadline", number, plan, &samples));
    }
    eprintln!(
        "deadline: {} plans; at most {worst} us below a promise",
        plans.len()
    );
}

fn list(tids: &[u32]) -> String {
    let words: Vec<String> = tids.iter().map(u32::to_string).collect();
    words.join(" ")
}

#[test]
#[ignore = "needs the lab: make sched-tests"]
fn fifty_random_accepted_plans_keep_every_budget() {
    let plans = plans();
    let most = plans.iter().map(|plan| plan.vcpus.len()).max().unwrap();
    let lab = Lab::boot("plans");
    lab.run("mkfifo /run/never");
    // Those without a budget in a plan are its neighbours.
    let threads: Vec<Spinner> = (0..most + 2).map(|_| lab.spin("env")).collect();
    let mut machine = Repetitions::start(MOST_AGAIN, STANDSTILL).unwrap();
    by_ext(&lab, &mut machine, &plans, &threads);
    by_deadline(&lab, &mut machine, &plans, &threads);
    eprintln!("{:?}", machine.standstills());
    lab.require_quiet_kernel();
}

#[test]
fn plans_are_accepted_differ_and_have_both_queues() {
    let plans = plans();
    assert_eq!(plans.len(), PLANS);
    assert!(
        plans.iter().any(|plan| plan.partitioned) && plans.iter().any(|plan| !plan.partitioned)
    );
    let share = |vcpu: &Vcpu| vcpu.budget_us as f64 / vcpu.period_us as f64;
    let all: Vec<f64> = plans
        .iter()
        .map(|plan| plan.vcpus.iter().map(share).sum())
        .collect();
    assert!(all.iter().all(|&all| all > 0.0 && all < 1.8), "{all:?}");
    assert!(all.iter().any(|&all| all > 1.0), "{all:?}");
}

#[test]
fn a_budget_that_is_kept_is_no_violation_and_one_that_is_missed_is() {
    let vcpu = Vcpu {
        promised_us: 60_000,
        budget_us: 62_000,
        period_us: 100_000,
        cpu: None,
    };
    // At the start of each period.
    let kept: Samples = (0..100)
        .map(|at| {
            let now = at * 10_000;
            (now, now / 100_000 * 62_000 + (now % 100_000).min(62_000))
        })
        .collect();
    assert_eq!(violation(&vcpu, &kept), None);
    // One is left out.
    let missed: Samples = kept
        .iter()
        .map(|&(now, ran)| {
            let lost = if now >= 500_000 {
                (ran - 310_000).clamp(0, 62_000)
            } else {
                0
            };
            (now, ran - lost)
        })
        .collect();
    assert!(violation(&vcpu, &missed).is_some());
    // It never ends.
    let endless: Samples = kept.iter().map(|&(now, _)| (now, now)).collect();
    assert!(violation(&vcpu, &endless).is_some());
}
