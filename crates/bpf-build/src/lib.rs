//! Compiles the BPF programs of a crate, for its build script.

#![forbid(unsafe_code)]

pub mod stack;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `bpf/NAME.bpf.c` to `NAME.bpf.o` in the build's output directory, and has cargo do so again when a file of `bpf` or
/// of `includes` changes, which are directories relative to the crate.
///
/// Of a crate that depends on libbpf-sys, libbpf's headers are those of the libbpf that loads the program; else the system's.
///
/// # Panics
/// Without clang, if it refuses the program, and if that needs more stack than the kernel gives it.
pub fn compile(name: &str, includes: &[&str]) {
    for directory in includes.iter().chain(&["bpf"]) {
        println!("cargo:rerun-if-changed={directory}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let source = format!("bpf/{name}.bpf.c");
    let mut clang = Command::new("clang");
    clang.args([
        "-target",
        "bpf",
        "-mcpu=v3",
        "-g",
        "-O2",
        "-Wall",
        "-Werror",
        "-D__TARGET_ARCH_x86",
    ]);
    if let Some(libbpf) = env::var_os("DEP_BPF_INCLUDE") {
        clang.arg("-I").arg(libbpf);
    }
    for directory in includes {
        clang.arg("-I").arg(directory);
    }
    clang.arg("-I/usr/include/x86_64-linux-gnu");
    clang.args(["-c", &source, "-o"]);
    let object = out.join(format!("{name}.bpf.o"));
    clang.arg(&object);
    match clang.status() {
        Ok(status) if status.success() => check_stack(&source, &object),
        Ok(status) => panic!("clang could not compile {source}: {status}"),
        Err(error) => panic!("cannot run clang, which `make set-up` installs: {error}"),
    }
}

fn check_stack(source: &str, object: &Path) {
    let elf = std::fs::read(object)
        .unwrap_or_else(|error| panic!("cannot read what clang made of {source}: {error}"));
    let chains = stack::chains(&elf).unwrap_or_else(|error| panic!("{source}: {error}"));
    if let Some(chain) = chains.iter().find(|chain| !chain.fits()) {
        panic!(
            "{source}: Linux 6.12 refuses {chain}; it takes {} bytes in {} calls",
            stack::MOST_BYTES,
            stack::MOST_CALLS
        );
    }
}
