//! Schedulability of a guest's tasks on the supply its VCPUs get.

pub mod edf;
pub mod edf_response;
pub mod fixed_priority;
mod global;
pub mod global_edf;
pub mod global_fixed_priority;
pub mod multi_supply;
pub mod partitioned;
