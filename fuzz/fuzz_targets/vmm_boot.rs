//! Any bytes as a bzImage, with an initramfs of any length and any command line. The body also runs in
//! `cargo test -p steadyvm-vmm --lib fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| steadyvm_vmm::fuzzing::boot(bytes));
