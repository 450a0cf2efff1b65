//! No VCPU waits with budget beside a CPU that runs what comes after it, longer than calls and decisions take; no CPU's key is
//! stale, which the model itself looks at (`watch.h`).

use super::{Got, Model};
use steadyvm_sched_policy::Kind;

/// A turn of the loader's thread, late by its slack, two calls and two decisions.
const MOST_US: u64 = 400;
/// … whose turns take longer than it thinks, by `LATE_NS` at most: so late is the end of a claim seen.
const MOST_OF_A_CROWD_US: u64 = 900;

/// The model's kernels: kicks from an interrupt, and by `irq_work/N` on PREEMPT_RT.
const KICKS: [&str; 2] = ["direct", "rt"];

fn longest(got: &[Got]) -> &Got {
    got.iter().max_by_key(|it| it.inversion_us).unwrap()
}

/// All called one CPU, and nobody looked again after the first was taken: the third waited with its whole budget, up to 20.2 ms of
/// 20, beside VCPUs of lower priority.
#[test]
fn budgets_that_come_back_together_each_find_a_cpu() {
    let model = Model::of(4);
    for kicks in KICKS {
        for period_us in ["10000", "20000", "100000"] {
            for first in ["3", "4"] {
                for kind in [Kind::Deferrable, Kind::Sporadic, Kind::ConstantBandwidth] {
                    let kind_number = (kind as u32).to_string();
                    let got = model.run(&["together", &kind_number, period_us, first, kicks]);
                    let worst = longest(&got);
                    assert!(
                        worst.inversion_us < MOST_US,
                        "{kicks}, {kind:?}, {first} in {period_us}: {} waits {} us",
                        worst.name,
                        worst.inversion_us
                    );
                    for it in got.iter().filter(|it| it.name == "first") {
                        assert!((it.share - 20.0).abs() < 0.2, "{kicks}: {}", it.share);
                    }
                }
            }
        }
    }
}

/// Every server that does not idle, every order, random VCPUs on 2 and 4 CPUs, some of them bound.
#[test]
fn no_cpu_runs_what_comes_after_a_vcpu_that_waits() {
    for cpus in [2, 4] {
        let model = Model::of(cpus);
        for kicks in KICKS {
            for seed in 1..=3 {
                let got = model.run(&["crowd", &seed.to_string(), kicks]);
                let worst = longest(&got);
                assert!(
                    worst.inversion_us < MOST_OF_A_CROWD_US,
                    "{cpus} CPUs, {kicks}, seed {seed}, {:?}: {} waits {} us",
                    worst.scenario,
                    worst.name,
                    worst.inversion_us
                );
                assert!(got.iter().all(|it| it.unexplained == 0));
                // The check is of something: VCPUs do wait.
                assert!(got.iter().any(|it| it.longest_wait_us > 1_000));
            }
        }
    }
}

/// Its key stayed, and `coming`: with servers that idle their budget away, no VCPU found that CPU again.
#[test]
fn a_vcpu_that_is_withdrawn_before_it_runs_leaves_no_key() {
    for cpus in [2, 4] {
        let model = Model::of(cpus);
        model.run(&["withdraw"]);
        model.run(&["withdraw", "idles"]);
    }
}

/// `stopping()` took the key of the VCPU that `dispatch()` had chosen: for some us the CPU looked free, and was called in vain.
#[test]
fn a_cpu_has_the_key_of_whom_it_has_chosen() {
    let model = Model::of(4);
    for kicks in KICKS {
        model.run(&["together", "0", "4000", "3", kicks]);
    }
}
