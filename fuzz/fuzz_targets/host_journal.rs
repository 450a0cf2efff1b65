//! Any bytes as the journal of what is in force: it is read, written again and carried out.
//! The body also runs in `cargo test -p steadyvm-host --lib fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| steadyvm_host::fuzzing::journal(bytes));
