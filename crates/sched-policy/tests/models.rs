//! Every kind of server against a simple model of it, one time unit after the other, and against the most that theory
//! lets it supply in any window.

use proptest::prelude::*;
use steadyvm_sched_policy::{
    CpuSet, Host, KEY_NON_RT, Kind, MAX_PERIOD_NS, Order, Parameters, Server,
};

/// What happens in one unit of time: at its start the VCPU has work or not; then it may have the CPU or not.
#[derive(Debug, Clone, Copy)]
struct Unit {
    work: bool,
    cpu: bool,
}

fn units() -> impl Strategy<Value = Vec<Unit>> {
    // Runs of equal units: single coin flips never use a budget up.
    let run = (any::<bool>(), any::<bool>(), 1_usize..9)
        .prop_map(|(work, cpu, length)| vec![Unit { work, cpu }; length]);
    proptest::collection::vec(run, 1..40).prop_map(|runs| runs.concat())
}

fn shapes() -> impl Strategy<Value = (u64, u64)> {
    (2_u64..17).prop_flat_map(|period| (1..=period.min(12), Just(period)))
}

/// A model: its budget at the start of a unit, and what happens in it.
trait Model {
    fn start(&mut self, now: u64, woke: bool, blocked: bool, work: bool);
    fn remaining(&self, now: u64) -> u64;
    fn run(&mut self, now: u64);
}

/// Deferrable, polling and the three periodic servers.
struct PeriodicModel {
    kind: Kind,
    budget: u64,
    period: u64,
    left: u64,
}

impl Model for PeriodicModel {
    fn start(&mut self, now: u64, _woke: bool, _blocked: bool, work: bool) {
        if now.is_multiple_of(self.period) {
            self.left = self.budget;
        }
        if self.kind == Kind::Polling && !work {
            self.left = 0;
        }
    }

    fn remaining(&self, _now: u64) -> u64 {
        self.left
    }

    fn run(&mut self, _now: u64) {
        self.left -= 1;
    }
}

/// A sporadic server as single units of budget, each with the instant from which it may be used.
struct SporadicModel {
    period: u64,
    from: Vec<u64>,
    /// The instant of those of which some are used.
    begun: Option<u64>,
}

impl Model for SporadicModel {
    fn start(&mut self, now: u64, woke: bool, _blocked: bool, _work: bool) {
        if woke {
            if self.from.iter().any(|&from| from <= now) {
                self.begun = None;
            }
            for from in self.from.iter_mut().filter(|from| **from <= now) {
                *from = now;
            }
        }
        self.from.sort_unstable();
    }

    fn remaining(&self, now: u64) -> u64 {
        self.from.iter().filter(|&&from| from <= now).count() as u64
    }

    fn run(&mut self, now: u64) {
        // First used after its period had passed: what is due counts from now.
        if self.begun != Some(self.from[0]) && now >= self.from[0] + self.period {
            self.start(now, true, false, true);
        }
        let from = self.from[0];
        self.from[0] += self.period;
        self.from.sort_unstable();
        self.begun = (self.from[0] == from).then_some(from);
    }
}

/// Hard CBS after the text of the kernel's documentation, with fractions as they are.
struct ConstantBandwidthModel {
    budget: u64,
    period: u64,
    left: u64,
    deadline: u64,
}

impl ConstantBandwidthModel {
    fn anew(&mut self, now: u64) {
        self.left = self.budget;
        self.deadline = now + self.period;
    }
}

impl Model for ConstantBandwidthModel {
    fn start(&mut self, now: u64, woke: bool, _blocked: bool, _work: bool) {
        if self.left == 0 && self.deadline <= now {
            self.left = self.budget;
            self.deadline += self.period;
            if self.deadline <= now {
                self.anew(now);
            }
        }
        if woke && self.left > 0 {
            let too_much = self.deadline <= now
                || self.left * self.period > (self.deadline - now) * self.budget;
            if too_much {
                self.anew(now);
            }
        }
    }

    fn remaining(&self, _now: u64) -> u64 {
        self.left
    }

    fn run(&mut self, _now: u64) {
        self.left -= 1;
    }
}

fn model(kind: Kind, budget: u64, period: u64) -> Box<dyn Model> {
    match kind {
        Kind::Sporadic => Box::new(SporadicModel {
            period,
            begun: None,
            from: vec![0; usize::try_from(budget).expect("small")],
        }),
        Kind::ConstantBandwidth => Box::new(ConstantBandwidthModel {
            budget,
            period,
            left: budget,
            deadline: period,
        }),
        _ => Box::new(PeriodicModel {
            kind,
            budget,
            period,
            left: budget,
        }),
    }
}

/// Plays `units` on the server and on its model; what ran in each unit.
fn play(kind: Kind, budget: u64, period: u64, units: &[Unit]) -> Vec<bool> {
    let parameters = Parameters::new(kind, budget, period).expect("valid");
    let mut server = Server::new(&parameters, &CpuSet::first(1), 0).expect("valid");
    let mut model = model(kind, budget, period);
    let mut ran = Vec::with_capacity(units.len());
    let mut had_work = false;
    for (now, unit) in (0..).zip(units) {
        let (woke, blocked) = (unit.work && !had_work, !unit.work && had_work);
        if woke {
            server.wake(now, 0);
        } else if blocked {
            server.block(now);
        }
        server.advance(now);
        model.start(now, woke, blocked, unit.work);
        had_work = unit.work;
        let left = server.remaining_ns(now);
        // A polling server's budget is discarded after the instant of its poll.
        if unit.work || kind != Kind::Polling {
            assert_eq!(left, model.remaining(now), "{kind:?} at {now}");
        }
        assert_eq!(server.is_runnable(now), unit.work && left > 0);
        let runs = unit.cpu && server.is_runnable(now);
        if runs {
            server.account(1, now + 1);
            model.run(now);
        } else if unit.cpu && server.claims(now) {
            server.account_lent(1, now + 1);
            model.run(now);
        }
        assert!(server.is_consistent(), "{kind:?} at {now}: {server:?}");
        ran.push(runs);
    }
    assert_eq!(
        server.supplied_ns(),
        ran.iter().filter(|&&ran| ran).count() as u64
    );
    ran
}

/// The most that `budget` in every period supplies in a window: at the end of one period and from then on.
fn most(budget: u64, period: u64, window: u64) -> u64 {
    let shifted = window + period - budget;
    shifted / period * budget + budget.min(shifted % period)
}

/// Every window of `ran`: (length, supply).
fn windows(ran: &[bool]) -> impl Iterator<Item = (u64, u64)> {
    (0..ran.len()).flat_map(|start| {
        let mut supply = 0;
        (1..).zip(&ran[start..]).map(move |(length, &ran)| {
            supply += u64::from(ran);
            (length, supply)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn supplies_as_its_model_and_never_more_than_theory_allows(
        kind in proptest::sample::select(Kind::ALL.to_vec()),
        (budget, period) in shapes(),
        units in units(),
    ) {
        let ran = play(kind, budget, period, &units);
        for (length, supply) in windows(&ran) {
            // One that was served late uses an old budget, the next one, and may renew that on waking.
            let limit = match kind {
                Kind::ConstantBandwidth | Kind::Sporadic => 3 * budget + length * budget / period,
                _ => most(budget, period, length),
            };
            prop_assert!(supply <= limit, "{supply} > {limit} in {length}");
        }
    }

    /// With a CPU whenever it asks, a sporadic server never has more than a sporadic task; a deferrable one may
    /// (`a_deferrable_server_can_run_twice_in_a_row`).
    #[test]
    fn a_sporadic_server_that_never_waits_has_one_budget_in_any_period(
        (budget, period) in shapes(),
        units in units(),
    ) {
        let units: Vec<Unit> = units.iter().map(|unit| Unit { cpu: true, ..*unit }).collect();
        let ran = play(Kind::Sporadic, budget, period, &units);
        for (length, supply) in windows(&ran) {
            prop_assert!(supply <= length.div_ceil(period) * budget);
        }
    }

    /// Decisions that come late, by up to `late` units: what is overrun is paid back.
    #[test]
    fn overrun_is_paid_back(
        kind in proptest::sample::select(Kind::ALL.to_vec()),
        (budget, period) in shapes(),
        late in 1_u64..40,
        rounds in 1_u64..40,
    ) {
        let parameters = Parameters::new(kind, budget, period).expect("valid");
        let mut server = Server::new(&parameters, &CpuSet::first(1), 0).expect("valid");
        server.wake(0, 0);
        let mut now = 0;
        for _ in 0..rounds {
            let next = server.next_event(now, server.is_runnable(now));
            prop_assert!(next > now);
            let seen = next.next_multiple_of(late);
            if server.is_runnable(now) {
                server.account(seen - now, seen);
            }
            now = seen;
            server.advance(now);
            prop_assert!(server.is_consistent(), "{server:?}");
        }
        // At most one budget ahead, and one late decision.
        let granted = (now / period + 1) * budget + late;
        prop_assert!(server.supplied_ns() <= granted, "{} > {granted}", server.supplied_ns());
    }

    /// Budgets are conserved: no change of parameters brings back what is used.
    #[test]
    fn a_change_of_parameters_conserves_the_budget(
        changes in proptest::collection::vec(
            (proptest::sample::select(Kind::ALL.to_vec()), shapes(), 0_u64..9, any::<bool>()), 1..30),
    ) {
        let first = Parameters::new(Kind::Deferrable, 5, 10).expect("valid");
        let mut server = Server::new(&first, &CpuSet::first(1), 0).expect("valid");
        let mut now = 0;
        for (kind, (budget, period), run, work) in changes {
            if work { server.wake(now, 0) } else { server.block(now) }
            let ran = if server.is_runnable(now) { run.min(server.remaining_ns(now)) } else { 0 };
            server.account(ran, now + ran);
            now += run;
            server.advance(now);
            let old = *server.parameters();
            let left = server.remaining_ns(now);
            let parameters = Parameters::new(kind, budget, period).expect("valid");
            server.set_parameters(&parameters, now).expect("valid");
            prop_assert!(server.is_consistent(), "{server:?}");
            // A shorter period may end at once: then a whole new budget is due.
            // So may that of a constant-bandwidth server, renewed only when used up.
            if period >= old.period_ns() && old.kind() != Kind::ConstantBandwidth {
                let allowed = left + budget.saturating_sub(old.budget_ns());
                prop_assert!(server.remaining_ns(now) <= allowed.min(budget));
            }
            prop_assert!(server.next_event(now, true) > now);
        }
    }

    /// A server that is left alone gets its whole budget back within two periods of any change.
    #[test]
    fn a_change_of_parameters_starves_nobody(
        from in (proptest::sample::select(Kind::ALL.to_vec()), shapes()),
        to in (proptest::sample::select(Kind::ALL.to_vec()), shapes()),
        run in 0_u64..12,
    ) {
        let (kind, (budget, period)) = from;
        let parameters = Parameters::new(kind, budget, period).expect("valid");
        let mut server = Server::new(&parameters, &CpuSet::first(1), 0).expect("valid");
        server.wake(0, 0);
        let ran = run.min(budget);
        server.account(ran, ran);
        let (kind, (budget, new_period)) = to;
        let parameters = Parameters::new(kind, budget, new_period).expect("valid");
        server.set_parameters(&parameters, ran).expect("valid");
        // What was used beyond the new budget is paid first.
        let owed = ran.div_ceil(budget);
        let later = ran + period + (owed + 2) * new_period;
        server.advance(later);
        if kind == Kind::ConstantBandwidth {
            // It renews its budget when that is used up.
            prop_assert!(server.remaining_ns(later) > 0);
        } else {
            prop_assert_eq!(server.remaining_ns(later), budget);
        }
    }
}

#[test]
fn a_deferrable_server_can_run_twice_in_a_row() {
    let unit = |work| Unit { work, cpu: true };
    let units: Vec<Unit> = (0..20).map(|now| unit((7..13).contains(&now))).collect();
    let ran = play(Kind::Deferrable, 3, 10, &units);
    assert_eq!(ran[7..13], [true; 6]);
    let ran = play(Kind::Sporadic, 3, 10, &units);
    assert_eq!(ran[7..13], [true, true, true, false, false, false]);
}

#[test]
fn non_rt_vcpus_share_by_weight_and_sleep_earns_nothing() {
    let cpus = CpuSet::first(1);
    let mut light =
        Server::new(&Parameters::best_effort(1024).expect("valid"), &cpus, 0).expect("valid");
    let mut heavy =
        Server::new(&Parameters::best_effort(2048).expect("valid"), &cpus, 0).expect("valid");
    light.wake(0, 0);
    heavy.wake(0, 0);
    for now in (1_000..=300_000).step_by(1_000) {
        let next = if light.virtual_runtime_ns() <= heavy.virtual_runtime_ns() {
            &mut light
        } else {
            &mut heavy
        };
        next.account(1_000, now);
    }
    assert_eq!(
        (light.supplied_ns(), heavy.supplied_ns()),
        (100_000, 200_000)
    );
    let mut late =
        Server::new(&Parameters::best_effort(1024).expect("valid"), &cpus, 0).expect("valid");
    late.wake(300_000, light.virtual_runtime_ns());
    assert_eq!(late.virtual_runtime_ns(), light.virtual_runtime_ns());
}

/// Under fixed priorities the analysis counts only VCPUs of higher priority, so two must never be equal: a tie broken
/// now one way and now the other made an accepted system late.
#[test]
fn equal_deadlines_are_ordered_by_priority() {
    for order in [Order::DeadlineMonotonic, Order::RateMonotonic] {
        let host = Host::new(order, false, 0);
        let key = |period, priority| {
            let parameters = Parameters::new(Kind::Deferrable, 1, period).expect("valid");
            let parameters = parameters.with_priority(priority);
            Server::new(&parameters, &CpuSet::first(1), 0)
                .expect("valid")
                .key(&host)
        };
        assert!(key(5_000_000, 1) < key(5_000_000, 2));
        assert!(key(5_000_000, u32::MAX) < key(5_000_001, 0));
        assert!(key(MAX_PERIOD_NS, u32::MAX) < KEY_NON_RT);
    }
}

/// A guest that sleeps for a moment is due later than if it had gone on: nothing bounds a job that suspends itself there, and
/// a plan refuses it. Deferrable and periodic servers keep their deadline.
#[test]
fn a_vcpu_that_sleeps_and_wakes_may_be_due_later() {
    let host = Host::new(Order::EarliestDeadline, false, 0);
    let due = |kind| {
        let parameters = Parameters::new(kind, 4, 10).expect("valid");
        let mut server = Server::new(&parameters, &CpuSet::first(1), 0).expect("valid");
        server.wake(0, 0);
        let first = server.key(&host);
        server.account(1, 1);
        server.block(1);
        server.advance(8);
        server.wake(8, 0);
        server.key(&host) > first
    };
    assert!(due(Kind::ConstantBandwidth) && due(Kind::Sporadic));
    assert!(!due(Kind::Deferrable) && !due(Kind::Periodic));
}

/// Budget used in pieces comes back in pieces: a guest that asks for 2 at 6 may wait for the last one until 25, the end of
/// that piece's period: 19, where a periodic resource of 2 in 10 promises 2 within 2 x 10 - 2 = 18. The analysis counts on
/// 2 within 2 x 10 (crates/analysis/src/supply/prm.rs).
#[test]
fn a_sporadic_server_returns_pieces_later_than_a_periodic_resource() {
    let parameters = Parameters::new(Kind::Sporadic, 2, 10).expect("valid");
    let host = Host::new(Order::EarliestDeadline, false, 0);
    let mut server = Server::new(&parameters, &CpuSet::first(1), 0).expect("valid");
    for start in [0, 5] {
        server.wake(start, 0);
        server.account(1, start + 1);
        server.block(start + 1);
    }
    server.wake(6, 0);
    let deadlines: Vec<u64> = [(10, 20), (15, 25)]
        .map(|(back, finish)| {
            assert_eq!(server.next_event(finish - 10 - 1, false), back);
            let deadline = server.key(&host);
            server.account(1, back + 1);
            deadline
        })
        .to_vec();
    assert_eq!(deadlines, [20, 25]);
}
