//! Tests in the emulated host, a module per subject. They need root and what `steadyvm-lab prepare` builds, and
//! take minutes. Make's targets choose by name and run one at a time: `make lab-tests`, `make test-lab
//! FILTER=subject::`, and one target for each group of subjects that is run by hand (`BY_HAND` in the Makefile).
//!
//! Most share booted hosts, one per kernel ([`support::shared`]). A test that checks how a host boots, or what a host
//! leaves, boots its own.
//!
//! The few that need no lab are not ignored, and so are of `make unit-tests`.

// A test's helper fails by panicking, as the test itself does.
#![allow(clippy::unwrap_used)]

mod support;

mod alive;
mod board;
mod budgets;
mod copies;
mod cpython;
mod debug;
mod emulator;
mod end_to_end;
mod fair_server;
mod guides;
mod hostile;
mod hosts;
mod inversion;
mod levels;
mod libvirt;
mod macvtap;
mod many;
mod measure;
mod net;
mod nisp;
mod open_vswitch;
mod outsourcing;
mod peers;
mod pods;
mod program;
mod programs;
mod rtca;
mod sched;
mod services;
mod shared_card;
mod shmem;
mod site;
mod sockets;
mod stock_qemu;
mod tap_batch;
mod tuned;
mod vmm;
mod wake_ups;
