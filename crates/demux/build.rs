//! Compiles the BPF programs, and the packet parser once more for the tests of this machine.

fn main() {
    steadyvm_bpf_build::compile("demux", &[]);
    cc::Build::new()
        .file("bpf/parse_for_tests.c")
        .warnings_into_errors(true)
        .compile("steadyvm_demux_parse");
}
