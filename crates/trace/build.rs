//! Compiles the BPF programs that count wake-ups.

fn main() {
    steadyvm_bpf_build::compile("wake_ups", &["../stats/c"]);
}
