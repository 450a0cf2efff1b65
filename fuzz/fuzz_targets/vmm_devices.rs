//! A guest that writes anything to its disk, channel and sockets, registers and memory. As root: the
//! body makes a network namespace. It also runs in `cargo test -p steadyvm-vmm --lib fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| steadyvm_vmm::fuzzing::devices(bytes));
