//! Puts the kernel's configuration and patches into the binary, so that it builds the same
//! kernel wherever it runs.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let kernel = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"))
        .join("../../kernel")
        .canonicalize()
        .expect("the repository has a folder kernel");
    println!("cargo:rerun-if-changed={}", kernel.display());
    let mut source = format!(
        "/// The options that the lab's kernel must have.\n\
         pub const CONFIGURATION: &str = include_str!(\"{}\");\n\
         ",
        kernel.join("config").display()
    );
    for (constant, what, folder) in [
        ("LAB_PATCHES", "Patches that only the lab needs", "lab"),
        ("LEVELS_PATCHES", "Levels of the receive path", ""),
    ] {
        writeln!(
            source,
            "/// {what}: name and text, in their order.\n\
             pub const {constant}: &[(&str, &str)] = &["
        )
        .expect("memory suffices");
        for patch in patches_in(&kernel.join("patches/6.12").join(folder)) {
            let name = patch
                .file_name()
                .expect("a listed file has a name")
                .display();
            writeln!(
                source,
                "    (\"{name}\", include_str!(\"{}\")),",
                patch.display()
            )
            .expect("memory suffices");
        }
        source.push_str("];\n");
    }
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("kernel_inputs.rs");
    fs::write(&out, source).expect("cargo's output folder is writable");
}

fn patches_in(directory: &Path) -> Vec<PathBuf> {
    let mut patches: Vec<_> = fs::read_dir(directory)
        .expect("the folder of patches exists")
        .map(|entry| entry.expect("the folder is readable").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "patch")
        })
        .collect();
    patches.sort();
    patches
}
