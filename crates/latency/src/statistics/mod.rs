//! Figures of a set of round trips. Pure: no I/O.
//!
//! [`Summary`] is exact: computed from every sample, never from a histogram. [`hgrm`] writes the
//! samples as an HdrHistogram for other tools, within that histogram's stated error.
//!
//! # Percentile rule
//! Nearest rank: the p-th percentile of n samples is the ⌈p·n⌉-th smallest, so always a value that
//! was measured and never one in between. With fewer than 1/(1-p) samples it is the maximum.

mod histogram;
mod summary;

pub use histogram::{HistogramError, SIGNIFICANT_DIGITS, hgrm, histogram};
pub(crate) use summary::mean;
pub use summary::{PerMille, Summary, nearest_rank, rank};
