//! Any bytes as a plan in JSON: an error or a plan, in bounded time. The body also runs in
//! `cargo test -p steadyvm-analysis --test public fuzz::`.
#![no_main]

#[allow(dead_code, unused_imports)] // the other targets' bodies
#[path = "../../crates/analysis/tests/fuzz_bodies/mod.rs"]
mod fuzz_bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_bodies::plan_json(bytes));
