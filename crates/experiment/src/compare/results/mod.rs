//! results.json: its shape, and how it is made from what was measured.

mod assemble;
mod data;
mod document;
mod guest;
mod record;

pub use crate::engine::results::ResultsError;
pub use assemble::{AssembleOptions, assemble, hgrm_of_method};
pub use data::{MethodData, Phase, PhaseData, ReceivePathData, RoundData, RunData, Service};
pub use document::{
    BootstrapResult, DistributionPoint, HostResult, LatencyResult, LatencyRound, MethodResult,
    NetStreamResult, RatioResult, Results, WakeUpResult,
};
pub use guest::{GuestCounts, GuestResult};
