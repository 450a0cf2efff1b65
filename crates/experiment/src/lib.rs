//! Experiments in the emulated host, a folder each, on one engine.
//!
//! [`compare`] is the main one: NetRT next to NetStream under several host methods. [`nisp`], [`rtca`],
//! [`vcpu`] and [`end_to_end`] are of papers, [`inversion`] is of a kernel's fault, [`adversary`] of neighbours that mean harm, [`connections`] of outsourced sockets, [`layer2`] of frames without IP, [`clock`] of the host's clock, [`sections`] of a kernel's way of preemption. Each folder's README names its
//! paper, its question and its command.
#![forbid(unsafe_code)]

pub mod adversary;
mod by_setting;
pub mod clock;
pub mod compare;
pub mod connections;
pub mod density;
pub mod end_to_end;
pub mod engine;
pub mod experiment;
pub mod inversion;
pub mod kamailio;
pub mod layer2;
pub mod memcached;
pub mod nisp;
pub mod registry;
pub mod rtca;
pub mod sections;
pub mod service;
pub mod shared_card;
pub mod testbed;
pub mod vcpu;
