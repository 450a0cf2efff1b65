//! Figures of a set of samples, and intervals of ratios between sets. Pure: no I/O.
//!
//! [`bootstrap`] gives the intervals, [`steps`] percentiles of what BPF programs count.
//! [`Summary`] is exact: computed from every sample, never from a histogram. [`hgrm`] writes the
//! samples as an HdrHistogram for other tools, within that histogram's stated error.
//!
//! # Percentile rule
//! Nearest rank: the p-th percentile of n samples is the ⌈p·n⌉-th smallest, so always a value that
//! was measured and never one in between. With fewer than 1/(1-p) samples it is the maximum.

#![forbid(unsafe_code)]

pub mod bootstrap;
mod histogram;
mod mean;
mod share;
pub mod steps;
mod summary;

pub use histogram::{HistogramError, SIGNIFICANT_DIGITS, hgrm, histogram};
pub use mean::MeanInterval;
pub use share::Share;
pub use summary::{PerMille, Summary, mean, nearest_rank, rank};
