//! The fair server's way there and back on a kernel that refuses, and on one that forgets what it has counted.

use super::scenario::{control, directory, paper_host, paper_target};
use crate::fake::Fault;
use crate::method::{Method, Target};

#[test]
fn a_fair_server_that_the_kernel_does_not_let_through_fails_and_rolls_back() {
    let (host, directory) = (paper_host(2), directory());
    // SCHED_DEADLINE tasks have all that they may have: 95 % of two CPUs.
    host.edit(|state| {
        state.deadline_threads = (19 << 21) / 20;
        state.recount();
    });
    let before = host.state();
    let control = control(&host, &directory);
    let error = control
        .apply(&paper_target(), Method::PreemptRt)
        .unwrap_err();
    assert!(error.to_string().contains("SCHED_DEADLINE"), "{error}");
    assert_eq!(
        (error.blame().exit_code(), host.state() == before),
        (3, true)
    );
    let target = Target {
        keep_fair_server: true,
        ..paper_target()
    };
    control.apply(&target, Method::PreemptRt).unwrap();
}

/// Whoever reads `sched_rt_runtime_us` while a server is halfway has 6.12 forget it (seen on Debian's
/// 6.12.117: the decrease that follows was refused, and each later undo).
#[test]
fn what_the_kernel_forgets_at_any_moment_neither_stops_apply_nor_undo() {
    let host = paper_host(2);
    // Shares that the shorter pieces meet exactly, and not.
    for (runtime_ns, period_ns) in [(50_000_000, 1_000_000_000), (49_999_999, 999_999_937)] {
        for cpu in 0..2 {
            for (name, value) in [("runtime", runtime_ns), ("period", period_ns)] {
                host.writable_file(
                    &crate::settings::fair_server::file(cpu, name),
                    &format!("{value}\n"),
                );
            }
        }
        let before = host.state();
        let start = host.mutations();
        let both_ways = |shown: &str| {
            let directory = directory();
            let control = control(&host, &directory);
            control
                .apply(&paper_target(), Method::PreemptRt)
                .expect(shown);
            let undone = control.undo().expect(shown);
            assert!(undone.failed.is_empty(), "{shown}: {undone:?}");
            assert_eq!(host.state(), before, "{shown}");
        };
        both_ways("nothing forgotten");
        let mutations = host.mutations() - start;
        assert!(mutations > 40, "{mutations}");
        for at in 0..mutations {
            host.fault_at(at, Fault::Recount);
            both_ways(&format!(
                "forgotten before mutation {at} of {runtime_ns}/{period_ns}"
            ));
            host.heal();
        }
    }
}
