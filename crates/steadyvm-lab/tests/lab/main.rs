//! Tests in the emulated host, a module per subject. They need root and what `steadyvm-lab prepare` builds, and
//! take minutes: `make lab-tests` runs them, one at a time; `make test-lab FILTER=name` runs some.
//!
//! Most share booted hosts, one per kernel ([`shared`]). A test that checks how a host boots, or what a host leaves,
//! boots its own.

// A test's helper fails by panicking, as the test itself does.
#![allow(clippy::unwrap_used)]

#[path = "../support/cases.rs"]
mod cases;
#[path = "../comparison/mod.rs"]
mod comparison;
#[path = "../support/files.rs"]
#[allow(dead_code, reason = "tests of their own use the rest")]
mod files;
#[path = "../support/kernel_log.rs"]
mod kernel_log;
#[path = "../support/outsourced.rs"]
#[allow(dead_code, reason = "tests of their own use the rest")]
mod outsourced;
#[path = "../support/profile.rs"]
mod profile;
#[path = "../support/programs.rs"]
mod programs;
#[path = "../support/shared.rs"]
mod shared;
#[path = "../support/mod.rs"]
mod support;

mod budgets;
mod copies;
mod emulator;
mod fair_server;
mod hostile;
mod hosts;
mod levels;
mod many;
mod measure;
mod net;
mod nisp;
mod outsourcing;
mod program;
mod rtca;
mod site;
mod sockets;
mod tap_batch;
mod vmm;
mod wake_ups;
