//! A program where nobody may run it, wherever the tree is.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Copies a program into a directory, by a process of its own: what another test starts meanwhile would inherit a file of
/// ours that is open for writing, and no kernel runs a program that somebody may write.
pub fn program_in(directory: &Path, built: &str) -> PathBuf {
    let program = directory.join(Path::new(built).file_name().unwrap());
    let copied = Command::new("cp").arg(built).arg(&program).status();
    assert!(copied.unwrap().success());
    program
}
