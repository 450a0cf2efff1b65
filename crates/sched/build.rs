//! Compiles the BPF scheduler.

fn main() {
    steadyvm_bpf_build::compile("sched", &["../sched-policy/policy", "../stats/c"]);
}
