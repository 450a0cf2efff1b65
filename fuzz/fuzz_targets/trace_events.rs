//! Any bytes as a tracepoint's format and a perf ring buffer: a report, and no panic. The body
//! also runs in `cargo test -p steadyvm-trace --test fuzz`.
#![no_main]

#[allow(dead_code, unused_imports)] // the other targets' bodies
#[path = "../../crates/trace/tests/fuzz_bodies/mod.rs"]
mod fuzz_bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fuzz_bodies::trace_events(bytes);
});
