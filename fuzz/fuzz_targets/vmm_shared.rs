//! A guest of another monitor that writes anything into the memory it shares with its sockets. As root: the
//! body makes a network namespace. It also runs in `cargo test -p steadyvm-vmm --lib fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| steadyvm_vmm::fuzzing::shared_memory(bytes));
