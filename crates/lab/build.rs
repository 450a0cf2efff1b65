//! Puts the kernel's configuration and patches, the sources of the guest's module and the emulator's patches
//! into the binary, so that it builds the same wherever it runs.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let kernel = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"))
        .join("../../kernel")
        .canonicalize()
        .expect("the repository has a folder kernel");
    println!("cargo:rerun-if-changed={}", kernel.display());
    let is_configuration = |file: &Path| {
        let name = file.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("config"))
    };
    let mut source = texts(
        "CONFIGURATIONS",
        "Options of kernels",
        &files_in(&kernel, is_configuration),
    );
    let is_patch = |file: &Path| has_extension(file, "patch");
    source += "/// The patches of each series: its name, and theirs with their texts, in their order.\n\
         pub const PATCHES: &[(&str, &[(&str, &str)])] = &[\n";
    for folder in files_in(&kernel.join("patches"), Path::is_dir) {
        let series = folder.file_name().expect("a listed folder has a name");
        let patches = list(&files_in(&folder, is_patch));
        writeln!(source, "    (\"{}\", {patches}),", series.display()).expect("memory suffices");
    }
    source += "];\n";
    write_out("kernel_inputs.rs", &source);

    let module = kernel.join("modules/steadyvm_sockets");
    // Not what a build in place leaves there: x.mod.c.
    let is_source = |file: &Path| {
        let is_code = has_extension(file, "c") || has_extension(file, "h");
        file.ends_with("Kbuild") || is_code && !has_extension(&file.with_extension(""), "mod")
    };
    let module = texts(
        "MODULE_SOURCES",
        "The guest's module",
        &files_in(&module, is_source),
    );
    write_out("module_inputs.rs", &module);

    let emulator =
        Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("emulator");
    println!("cargo:rerun-if-changed={}", emulator.display());
    let mut source = format!(
        "/// The devices of an emulated host.\n\
         pub const DEVICES: &str = include_str!(\"{}\");\n",
        emulator.join("steadyvm.mak").display()
    );
    source += &texts(
        "EMULATOR_PATCHES",
        "Patches of QEMU",
        &files_in(&emulator, is_patch),
    );
    write_out("emulator_inputs.rs", &source);
}

/// A constant with the names and texts of files.
fn texts(constant: &str, what: &str, files: &[PathBuf]) -> String {
    format!(
        "/// {what}: name and text, in their order.\n\
         pub const {constant}: &[(&str, &str)] = {};\n",
        list(files)
    )
}

/// The names and texts of files.
fn list(files: &[PathBuf]) -> String {
    let mut source = "&[\n".to_owned();
    for file in files {
        let name = file
            .file_name()
            .expect("a listed file has a name")
            .display();
        let path = file.display();
        writeln!(source, "    (\"{name}\", include_str!(\"{path}\")),").expect("memory suffices");
    }
    source + "]"
}

fn has_extension(file: &Path, wanted: &str) -> bool {
    file.extension()
        .is_some_and(|extension| extension == wanted)
}

/// The wanted files of a folder, by name.
fn files_in(directory: &Path, is_wanted: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .expect("the folder exists")
        .map(|entry| entry.expect("the folder is readable").path())
        .filter(|file| is_wanted(file))
        .collect();
    files.sort();
    files
}

fn write_out(name: &str, text: &str) {
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join(name);
    fs::write(&out, text).expect("cargo's output folder is writable");
}
