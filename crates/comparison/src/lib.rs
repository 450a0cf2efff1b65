//! A service's round trips compared under several conditions: from samples to figures, tables and a report.
//!
//! `steadyvm measure` compares a user's host with and without its settings, and the lab compares host methods.
//! What is measured, and how, is theirs: this crate starts nothing and knows no host.
//!
//! - [`RunData`]: what was measured, by method, round and [`Phase`]
//! - [`assemble`]: the figures of it, a [`Record`](steadyvm_report::results::Record)
//! - [`answer`]: what its page begins with
//! - [`table`] and [`report`]: the record as text and as HTML
#![forbid(unsafe_code)]

mod answer;
mod counts;
mod cpu;
mod data;
mod figures;
mod output;
mod published;
mod ratios;
mod record;
pub mod report;
mod service;
pub mod table;

pub use answer::{answer, own_question};
pub use counts::{ExitCost, ExitCosts, GuestCounts};
pub use cpu::CpuTimes;
pub use data::{MethodData, Phase, PhaseData, ReceivePathData, RoundData, RunData};
pub use figures::{assemble, hgrm_of_method};
pub use output::{tables, traced_paths};
pub use record::{BUSY, Intervals, NAME, THROUGHPUT, excludes_one, ratio_of, required, service_of};
pub use service::Service;
