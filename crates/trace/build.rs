//! Compiles the BPF programs that count wake-ups and softirqs, and follow requests.

fn main() {
    steadyvm_bpf_build::compile("wake_ups", &["../stats/c"]);
    steadyvm_bpf_build::compile("softirqs", &[]);
    steadyvm_bpf_build::compile("requests", &[]);
}
