//! Baker's test of global EDF.
//!
//! Model: sporadic tasks, no jitter, under global EDF on m processors. Formula: with lambda = C_k / D_k,
//! schedulable if for every k: sum min(1, beta_i) <= m - (m - 1) lambda, where
//! beta_i = u_i (1 + (T_i - D_i) / D_k), plus (C_i - lambda T_i) / D_k if u_i > lambda.
//!
//! Kept for comparison with [`super::gfb`] and [`super::bcl`], neither of which it is contained in;
//! admission does not need it. Complexity: O(n^2). Sufficient. Source: Baker, RTSS 2003.

use std::cmp::Ordering;

use super::gfb::compare;
use crate::{
    ratio::{Fraction, compare_sum},
    task::Task,
    time::Amount,
};

/// True if the test shows `tasks` schedulable on `processors`. Values beyond 128 bits count as a no.
pub fn test(tasks: &[Task], processors: u32) -> bool {
    tasks
        .iter()
        .all(|task| test_task(tasks, task, processors).unwrap_or(false))
}

fn test_task(tasks: &[Task], task: &Task, processors: u32) -> Option<bool> {
    let (execution, deadline) = (Amount::from(task.demand()), Amount::from(task.deadline()));
    let betas: Option<Vec<Fraction>> = tasks
        .iter()
        .map(|other| {
            let (c, d, t) = (
                Amount::from(other.demand()),
                Amount::from(other.deadline()),
                Amount::from(other.period()),
            );
            let lambda = Fraction::new(execution, deadline);
            // Over the denominator T_i D_k D_k.
            let base = c.checked_mul(deadline + t - d)?.checked_mul(deadline)?;
            let carried = if compare(Fraction::new(c, t), lambda).is_gt() {
                t.checked_mul(c.checked_mul(deadline)? - execution.checked_mul(t)?)?
            } else {
                0
            };
            let denominator = t.checked_mul(deadline)?.checked_mul(deadline)?;
            let numerator = base.checked_add(carried)?.min(denominator);
            // Interval arithmetic takes numerators up to 2^78.
            (numerator < 1 << 78).then_some(Fraction::new(numerator, denominator))
        })
        .collect();
    let betas = betas?;
    let processors = Amount::from(processors);
    let lambda = Fraction::new(execution * (processors - 1).max(0), deadline);
    let sum = compare_sum(
        betas.iter().copied().chain([lambda]),
        Fraction::new(processors, 1),
    );
    Some(sum.is_some_and(Ordering::is_le))
}
