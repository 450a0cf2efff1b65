//! Any requests to outsourced sockets, every operation, well laid. As root:
//! the body makes a network namespace. It also runs in `cargo test -p steadyvm-sockets --test fuzz`.
#![no_main]

#[allow(dead_code, unused_imports)] // the other targets' bodies
#[path = "../../crates/sockets/tests/fuzz_bodies/mod.rs"]
mod fuzz_bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_bodies::requests(bytes));
