//! What the analysis accepts is never late in the simulator, under the policy it was accepted for.

use steadyvm_sim::soundness::{Space, check};

fn holds(space: &Space, accepted: u64) {
    match check(space, accepted, 1) {
        Ok(tally) => assert_eq!(tally.accepted, accepted),
        Err(found) => panic!(
            "accepted, but {} jobs are late (system {}):\n\n{}",
            found.late, found.number, found.toml
        ),
    }
}

#[test]
fn accepted_systems_are_never_late() {
    holds(&Space::default(), 2_000);
}

/// The harness finds what is unsound: a polling server does not give what a periodic one does, for which the plan's
/// interfaces are computed, as work that comes just after the poll waits for the next.
#[test]
fn a_server_that_gives_less_is_found_out() {
    let toml = "[host]\npcpus = 1\nscheduler = \"pedf\"\nserver = \"periodic\"\n\n[simulate]\nserver = \"polling\"\nduration = \"1s\"\nrandom_offsets = true\n\n[[vm]]\nname = \"a\"\nperiod = \"10ms\"\ntasks = [{ c = \"9ms\", t = \"20ms\" }]\n";
    let scenario = steadyvm_sim::plan::parse(toml).expect("a plan");
    assert!(scenario.report.feasible);
    let late = (1..50).any(|seed| {
        let scenario = scenario.clone().with_seed(seed);
        steadyvm_sim::simulate(&scenario.system, seed, scenario.duration_ns)
            .expect("valid")
            .late()
            > 0
    });
    assert!(late);
}
