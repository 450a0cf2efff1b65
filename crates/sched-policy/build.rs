//! Compiles the policy's C headers, the same that the BPF scheduler includes, for user space.

fn main() {
    println!("cargo::rerun-if-changed=policy");
    println!("cargo::rerun-if-changed=src/exports.c");
    cc::Build::new()
        .file("src/exports.c")
        .include("policy")
        .std("c11")
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .compile("steadyvm_sched_policy");
}
