//! When a server's use is accounted is the scheduler's affair: at ticks, as other VCPUs wake, or at the end. What comes back,
//! and when, is the same.

use proptest::prelude::*;
use steadyvm_sched_policy::{CpuSet, Host, Kind, Order, Parameters, Server};

/// The VCPU waits for a CPU or sleeps, and then runs, whatever budget it has: some decisions come late.
#[derive(Debug, Clone)]
struct Stretch {
    sleeps: bool,
    before: u64,
    runs: u64,
    /// Where it is accounted besides at its end.
    looks: Vec<u64>,
}

fn stretches() -> impl Strategy<Value = Vec<Stretch>> {
    let stretch = (
        any::<bool>(),
        0_u64..40,
        1_u64..30,
        proptest::collection::vec(1_u64..30, 0..6),
    )
        .prop_map(|(sleeps, before, runs, looks)| Stretch {
            sleeps,
            before,
            runs,
            looks,
        });
    proptest::collection::vec(stretch, 1..20)
}

fn server(kind: Kind, budget: u64, period: u64) -> Server {
    let parameters = Parameters::new(kind, budget, period).expect("valid");
    let mut server = Server::new(&parameters, &CpuSet::first(1), 0).expect("valid");
    server.wake(0, 0);
    server
}

/// What it may use at each instant of the next periods, if it runs no more, and its place in the queue.
fn outlook(server: &Server, now: u64, period: u64) -> (Vec<u64>, u64) {
    let host = Host::new(Order::EarliestDeadline, false, 0);
    let mut later = server.clone();
    let comes = (now..now + 4 * period)
        .map(|at| {
            later.advance(at);
            later.remaining_ns(at)
        })
        .collect();
    (comes, server.key(&host))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn what_comes_back_does_not_depend_on_when_it_is_accounted(
        (budget, period) in (2_u64..60).prop_flat_map(|period| (1..=period, Just(period))),
        stretches in stretches(),
    ) {
        let (mut once, mut often) = (server(Kind::Sporadic, budget, period), server(Kind::Sporadic, budget, period));
        let mut now = 0;
        for stretch in &stretches {
            for server in [&mut once, &mut often] {
                if stretch.sleeps {
                    server.block(now);
                    server.wake(now + stretch.before, 0);
                }
            }
            now += stretch.before;
            let end = now + stretch.runs;
            let mut looks: Vec<u64> = stretch.looks.iter().map(|look| now + look).filter(|&at| at < end).collect();
            looks.sort_unstable();
            looks.push(end);
            // A budget at most, as an end of it is seen.
            for start in (now..end).step_by(budget as usize) {
                let at = end.min(start + budget);
                once.account(at - start, at);
            }
            for at in looks {
                while now < at {
                    let next = at.min(now + budget);
                    often.account(next - now, next);
                    now = next;
                }
            }
            prop_assert!(often.is_consistent() && once.is_consistent(), "{once:?}, {often:?}");
            prop_assert_eq!(outlook(&once, now, period), outlook(&often, now, period), "at {}", now);
        }
    }
}

/// 4 in 10, first used at 8: within the period, so all of it comes back one period after the instant from which it could be used.
#[test]
fn a_sporadic_server_gives_back_by_first_use() {
    for looks in [&[12][..], &[9, 12], &[10, 11, 12]] {
        let mut server = server(Kind::Sporadic, 4, 10);
        let mut now = 8;
        for &at in looks {
            server.account(at - now, at);
            now = at;
        }
        assert_eq!(server.remaining_ns(12), 4, "accounted at {looks:?}");
        assert_eq!(server.next_event(9, false), 10);
    }
    // First used after its period: from that use on, however late it is accounted.
    for looks in [&[16][..], &[13, 16]] {
        let mut server = server(Kind::Sporadic, 4, 10);
        let mut now = 12;
        for &at in looks {
            server.account(at - now, at);
            now = at;
        }
        assert_eq!(
            (server.remaining_ns(21), server.remaining_ns(22)),
            (0, 4),
            "accounted at {looks:?}"
        );
    }
}
