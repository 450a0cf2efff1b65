//! What several experiments are made of: methods, what receives loads, the loads, endpoints that send to one
//! another, and who schedules VCPUs.

pub(crate) mod ask;
pub(crate) mod beside;
mod counts;
mod cpu;
pub(crate) mod endpoint;
mod exit_costs;
mod interference;
pub(crate) mod mechanism;
mod method;
pub(crate) mod one_card;
pub(crate) mod phase;
pub(crate) mod receivers;
pub(crate) mod senders;
mod setting;
pub(crate) mod work;

pub(crate) use counts::Counters;
pub(crate) use cpu::cpu_times;
pub use interference::Interference;
pub use mechanism::{Decisions, Mechanism};
pub use method::ComparedMethod;
pub use setting::Endpoints;
pub(crate) use setting::Setting;
pub use steadyvm_comparison::{
    CpuTimes, ExitCost, ExitCosts, GuestCounts, ReceivePathData, Service,
};
pub use steadyvm_methods::{Guests, Method, Price};
