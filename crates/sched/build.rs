//! Compiles the BPF scheduler.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-changed=../sched-policy/policy");
    println!("cargo:rerun-if-changed=../stats/c");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    // libbpf's own headers, of the version that loads the program.
    let headers = env::var_os("DEP_BPF_INCLUDE").unwrap_or_default();
    let compiled = Command::new("clang")
        .args([
            "-target", "bpf", "-mcpu=v3", "-g", "-O2", "-Wall", "-Werror",
        ])
        .arg("-D__TARGET_ARCH_x86")
        .arg("-I")
        .arg(headers)
        .args([
            "-I",
            "../sched-policy/policy",
            "-I../stats/c",
            "-I/usr/include/x86_64-linux-gnu",
        ])
        .args(["-c", "bpf/sched.bpf.c", "-o"])
        .arg(out.join("sched.bpf.o"))
        .status();
    match compiled {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("clang could not compile bpf/sched.bpf.c: {status}"),
        Err(error) => panic!("cannot run clang, which `make set-up` installs: {error}"),
    }
}
