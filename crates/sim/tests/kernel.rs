//! The model of `SCHED_DEADLINE` beside the kernel that runs this: the same jobs end at the same time.
//!
//! By hand, as root: `cargo test -p steadyvm-sim --test kernel -- --ignored --nocapture`. It takes 3 seconds and half of a CPU.

use std::process::Command;

use steadyvm_sim::server::linux::Entity;

/// Takes the reservation, waits for each job's instant, then computes; prints when each ended. Times are ms after the first wake-up.
const JOBS: &str = r"
import os, subprocess, sys, time
runtime, deadline, period = sys.argv[1:4]
jobs = [tuple(map(float, word.split(':'))) for word in sys.argv[4:]]
subprocess.run(['chrt', '--deadline', '--sched-runtime', runtime, '--sched-deadline', deadline,
    '--sched-period', period, '--pid', '0', str(os.getpid())], check=True)
start = time.monotonic_ns() + 300_000_000
for at, work in jobs:
    time.sleep(max(0, start + at * 1e6 - time.monotonic_ns()) / 1e9)
    end = time.thread_time_ns() + work * 1e6
    while time.thread_time_ns() < end:
        pass
    print((time.monotonic_ns() - start) / 1e6)
";

const MS: f64 = 1e6;

/// Runtime, deadline, period; then (instant, work) of each job. All ms.
struct Case {
    what: &'static str,
    reservation: [f64; 3],
    jobs: &'static [(f64, f64)],
}

const CASES: [Case; 6] = [
    Case {
        what: "within the runtime",
        reservation: [20.0, 40.0, 100.0],
        jobs: &[(0.0, 15.0), (110.0, 15.0)],
    },
    Case {
        what: "runtime used up: the next request is cut",
        reservation: [20.0, 40.0, 100.0],
        jobs: &[(0.0, 20.4), (110.0, 18.0)],
    },
    Case {
        what: "a wake-up after the deadline waits for the period",
        reservation: [20.0, 40.0, 100.0],
        jobs: &[(0.0, 5.0), (60.0, 5.0)],
    },
    Case {
        what: "a wake-up before the deadline is cut to the density",
        reservation: [20.0, 40.0, 100.0],
        jobs: &[(0.0, 6.0), (30.0, 12.0)],
    },
    Case {
        what: "D = T: runtime used up, the next period is whole",
        reservation: [20.0, 100.0, 100.0],
        jobs: &[(0.0, 20.4), (110.0, 18.0)],
    },
    Case {
        what: "D = T: an overrun waits",
        reservation: [20.0, 100.0, 100.0],
        jobs: &[(0.0, 30.0), (150.0, 14.0)],
    },
];

fn kernel(case: &Case) -> Vec<f64> {
    let ns = |ms: f64| format!("{}", (ms * MS) as u64);
    let [runtime, deadline, period] = case.reservation.map(ns);
    let words: Vec<String> = (case.jobs.iter())
        .map(|(at, work)| format!("{at}:{work}"))
        .collect();
    let output = Command::new("python3")
        .args(["-c", JOBS, &runtime, &deadline, &period])
        .args(words)
        .output()
        .expect("python3 runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("numbers");
    text.lines()
        .map(|line| line.parse().expect("a number"))
        .collect()
}

/// Alone on a CPU.
fn model(case: &Case) -> Vec<f64> {
    let [runtime, deadline, period] = case.reservation.map(|ms| (ms * MS) as u64);
    let base = 1_000_000_000;
    let mut entity = Entity::new(runtime, deadline, period, 0);
    let mut now = base;
    let mut ends = Vec::new();
    for &(at, work) in case.jobs {
        now = now.max(base + (at * MS) as u64);
        let mut left = (work * MS) as u64;
        entity.wake(now);
        while left > 0 {
            if entity.is_queued() {
                let ran = left.min(entity.remaining_ns());
                now += ran;
                left -= ran;
                entity.update_curr(ran, now);
            } else {
                now = entity.timer_ns().expect("throttled");
                entity.advance(now);
            }
        }
        ends.push((now - base) as f64 / MS);
        entity.block(now);
    }
    ends
}

#[test]
#[ignore = "needs root, and a machine whose CPUs nobody steals"]
fn the_kernel_ends_jobs_when_the_model_does() {
    for case in &CASES {
        let (found, said) = (kernel(case), model(case));
        println!("{}: kernel {found:.2?}, model {said:.2?} ms", case.what);
        for (found, said) in found.iter().zip(&said) {
            assert!(
                (found - said).abs() < 2.5,
                "{}: {found} and {said}",
                case.what
            );
        }
    }
}
