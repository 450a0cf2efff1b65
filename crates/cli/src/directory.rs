//! The directory that a measurement writes to.

use std::fs;
use std::path::Path;
use steadyvm_fault::{Fault, Result};

/// Makes the directory and checks, before the work and not after it, that it can be written.
pub fn prepare(directory: &Path) -> Result<()> {
    let probe = directory.join(".writable");
    fs::create_dir_all(directory)
        .and_then(|()| steadyvm_files::write(&probe, ""))
        .and_then(|()| fs::remove_file(&probe))
        .map_err(|error| {
            Fault::input(
                format!("write to the directory {}", directory.display()),
                error,
            )
            .what_to_do("give a directory you can write with --out")
        })
}
