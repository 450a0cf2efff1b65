//! Supply bound functions against their definitions, on all small integer parameters.
// Helpers of tests unwrap, too.
#![allow(clippy::unwrap_used)]

use steadyvm_analysis::{
    Amount, Time,
    supply::{
        Dedicated, DeterministicMultiprocessor, ExplicitDeadlinePeriodic, MultiprocessorPeriodic,
        PeriodicResource, Supply,
    },
};

/// min over whole a + b + k Pi = t of f(a) + k Theta + f(b).
fn mpr_by_definition(period: Time, budget: Time, processors: Time, window: Time) -> Amount {
    let f = |a: Time| (budget - processors * (period - a)).max(0);
    let mut least = Time::MAX;
    for periods in 0..=window / period {
        let rest = window - periods * period;
        for a in 0..=rest.min(period) {
            let b = rest - a;
            if b <= period {
                least = least.min(f(a) + periods * budget + f(b));
            }
        }
    }
    least.into()
}

#[test]
fn exact_mpr_supply_equals_its_definition() {
    for processors in 1..=5 {
        for period in 1..=9 {
            for budget in 0..=processors * period {
                let resource =
                    MultiprocessorPeriodic::new(period, budget, processors as u32).unwrap();
                for window in 0..=4 * period {
                    let expected = mpr_by_definition(period, budget, processors, window);
                    let context = format!("<{period},{budget},{processors}> at {window}");
                    assert_eq!(resource.supply(window), expected, "{context}");
                }
                assert_eq!(resource.vcpu_budgets().iter().sum::<Time>(), budget);
                check_properties(
                    &resource,
                    5 * period,
                    &format!("<{period},{budget},{processors}>"),
                );
            }
        }
    }
}

/// The least supply over all placements of the budget and all starts of the window.
fn edp_by_enumeration(period: Time, budget: Time, deadline: Time, window: Time) -> Amount {
    (0..period)
        .map(|start| {
            // The window starts at `start` of a period: what was given before it came as early as
            // possible, in later periods as late as possible.
            let early = (budget - start).max(0).min(window);
            let later: Time = (1..=window / period + 1)
                .map(|k| {
                    let end = start + window - k * period;
                    (end - (deadline - budget)).clamp(0, budget)
                })
                .sum();
            Amount::from(early + later)
        })
        .min()
        .unwrap_or(0)
}

#[test]
fn periodic_supplies_equal_enumeration() {
    for period in 1..=9 {
        for deadline in 1..=period {
            for budget in 0..=deadline {
                let resource = ExplicitDeadlinePeriodic::new(period, budget, deadline).unwrap();
                let context = format!("<{period},{budget},{deadline}>");
                for window in 0..=4 * period {
                    assert_eq!(
                        resource.supply(window),
                        edp_by_enumeration(period, budget, deadline, window),
                        "{context} at {window}"
                    );
                }
                check_properties(&resource, 5 * period, &context);
                if deadline == period {
                    let same = PeriodicResource::new(period, budget).unwrap();
                    assert!((0..4 * period).all(|t| same.supply(t) == resource.supply(t)));
                }
            }
        }
    }
}

#[test]
fn full_and_partial_vcpus_add_up() {
    for (period, full) in [(1, 0), (3, 1), (5, 2), (8, 3)] {
        for budget in 0..=period {
            let resource = DeterministicMultiprocessor::new(period, budget, full).unwrap();
            let partial = PeriodicResource::new(period, budget).unwrap();
            for window in 0..=4 * period {
                let expected = Amount::from(Time::from(full) * window) + partial.supply(window);
                assert_eq!(resource.supply(window), expected);
            }
            check_properties(
                &resource,
                5 * period,
                &format!("<{period},{budget},{full}>"),
            );
        }
    }
    check_properties(&Dedicated::new(3), 20, "dedicated");
}

/// Monotone, superadditive, not below its line, straight between corners, inverse to its inverse.
fn check_properties(supply: &impl Supply, windows: Time, context: &str) {
    let line = supply.lower_line();
    let value = |t| supply.supply(t);
    assert_eq!(value(0), 0, "{context}");
    for t in 1..=windows {
        assert!(value(t) >= value(t - 1), "{context}: falls at {t}");
        let rate = &line.rate;
        let bound = rate.numerator * Amount::from(t) - line.offset;
        assert!(
            value(t) * rate.denominator >= bound,
            "{context}: below its line at {t}"
        );
        let corner = supply.previous_corner(t);
        assert!(corner < t, "{context}: corner {corner} of {t}");
        let slope = value(t) - value(t - 1);
        let straight = (corner + 1..=t).all(|s| value(s) - value(s - 1) == slope);
        assert!(straight, "{context}: not straight from {corner} to {t}");
    }
    for t in 0..=windows / 2 {
        assert!(
            (0..=t).all(|s| value(t) >= value(s) + value(t - s)),
            "{context}: at {t}"
        );
    }
    for amount in 0..=value(windows) {
        let t = supply
            .window_for(amount)
            .unwrap_or_else(|| panic!("{context}: no {amount}"));
        assert!(
            value(t) >= amount && (t == 0 || value(t - 1) < amount),
            "{context}: {amount}"
        );
    }
}
