//! Compiles the BPF programs that redirect packets.

fn main() {
    steadyvm_bpf_build::compile("redirect", &[]);
}
