//! A host whose files in `/proc` and `/sys` say anything: what reads them changes nothing.
//! The body also runs in `cargo test -p steadyvm-host --lib fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| steadyvm_host::fuzzing::files(bytes));
