//! Confidence intervals of ratios between methods. Pure and deterministic: same samples, same
//! seed, same intervals.
//!
//! # Model
//! A method's samples come in R rounds of n requests each. Rounds of different methods with the
//! same number were measured next to each other and share the machine's drift (they are *paired*);
//! within a round, consecutive round trips are correlated (they meet the same burst).
//!
//! # Method
//! 1. A replicate draws R rounds with replacement, the same for all methods, and within each drawn
//!    round circular moving blocks of its time-ordered samples, as many as the round had. Figures
//!    are computed from the pooled draw, ratios between the methods of one replicate, on the
//!    logarithmic scale.
//! 2. Percentiles of that distribution alone are far too narrow for a few rounds: R drawn rounds
//!    spread √((R-1)/R) of what they should, and three rounds know their own spread badly. So the
//!    2.5 and 97.5 percentiles are stretched about the median until they are 2·t(df) standard
//!    errors apart, the standard error being √(`V_between` + `V_within`):
//!    - `V_between`: delete-one-round jackknife of the log ratio, R - 1 degrees of freedom;
//!    - `V_within`: variance of replicates that draw blocks only, with every round once;
//!    - df: Satterthwaite's for the sum.
//!
//!    `V_between` contains `V_within` already, so the sum errs to the wide side; the many degrees of
//!    freedom of `V_within` keep it from being as wide, or as often too narrow, as the t interval
//!    over rounds, which it becomes where rounds differ more than their samples explain.
//! 3. One round alone gives an interval of the variation within it, and [`Ratio::rounds`] says so.
//!
//! Sources: Künsch 1989 (moving blocks), Politis and Romano 1992 (circular blocks), Davison and
//! Hinkley 1997, section 3.8 (hierarchical data), Satterthwaite 1946. Coverage is measured by
//! `tests/bootstrap_coverage.rs`; docs/design/statistics.md has the table.

mod draw;
mod interval;

pub use draw::{Draws, FEWEST_BEYOND, Figures, draw_latency, draw_percentiles, draw_rates};
pub(crate) use interval::student_quantile;
pub use interval::{Ratio, ratio};

use serde::{Deserialize, Serialize};

/// How much to draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootstrapOptions {
    /// Replicates asked for; see [`BootstrapOptions::effective_replicates`].
    pub replicates: usize,
    /// Seed of all draws.
    pub seed: u64,
}

impl Default for BootstrapOptions {
    /// 2,000 replicates: the ends of a 95 % interval rest on 50 replicates beyond each.
    fn default() -> Self {
        Self {
            replicates: 2_000,
            seed: 1,
        }
    }
}

impl BootstrapOptions {
    /// The replicates drawn: at least 200, below which the ends of an interval are single draws,
    /// and at most a million, which memory holds.
    pub fn effective_replicates(&self) -> usize {
        self.replicates.clamp(200, 1_000_000)
    }
}

/// The confidence level of every interval.
pub const CONFIDENCE: f64 = 0.95;
