//! Compiles the BPF programs that count wake-ups and softirqs.

fn main() {
    steadyvm_bpf_build::compile("wake_ups", &["../stats/c"]);
    steadyvm_bpf_build::compile("softirqs", &[]);
}
