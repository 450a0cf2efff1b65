//! Compiles the BPF programs, and the packet parser once more for the tests of this machine.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    for file in ["bpf/demux.bpf.c", "bpf/parse.h", "bpf/parse_for_tests.c"] {
        println!("cargo:rerun-if-changed={file}");
    }
    let object = out.join("demux.bpf.o");
    let compiled = Command::new("clang")
        .args([
            "-target", "bpf", "-mcpu=v3", "-g", "-O2", "-Wall", "-Werror",
        ])
        .args(["-D__TARGET_ARCH_x86", "-I/usr/include/x86_64-linux-gnu"])
        .args(["-c", "bpf/demux.bpf.c", "-o"])
        .arg(&object)
        .status();
    match compiled {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("clang could not compile bpf/demux.bpf.c: {status}"),
        Err(error) => panic!("cannot run clang, which `make set-up` installs: {error}"),
    }
    cc::Build::new()
        .file("bpf/parse_for_tests.c")
        .warnings_into_errors(true)
        .compile("steadyvm_demux_parse");
}
