//! Tells both programs which revision they are of, and which build.

use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What no program is built from.
const OTHERS: [&str; 4] = ["tests", "benches", "examples", "README.md"];

fn main() -> io::Result<()> {
    // Where they are: a worktree's are not in its own `.git`.
    for file in ["HEAD", "index"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    println!("cargo:rustc-env=STEADYVM_GIT_REVISION={}", revision());
    let crates = Path::new("..");
    println!("cargo:rustc-env=STEADYVM_BUILD={}", hash(crates)?);
    Ok(())
}

/// `git describe --dirty` says the same, but writes the index, so that the next build would run this again.
fn revision() -> String {
    let Some(mut revision) = git(&["describe", "--always", "--abbrev=12"]) else {
        return "unknown".to_owned();
    };
    let changes = git(&["status", "--porcelain", "--untracked-files=no"]);
    if changes.is_none_or(|it| !it.is_empty()) {
        revision.push_str("-dirty");
    }
    revision
}

/// A hash of all that the programs are built from: the crates, and the versions of what they use.
fn hash(crates: &Path) -> io::Result<String> {
    let mut sources = vec![crates.join("../Cargo.lock"), crates.join("../Cargo.toml")];
    for entry in fs::read_dir(crates)? {
        for part in fs::read_dir(entry?.path())? {
            add(&part?.path(), &mut sources)?;
        }
    }
    sources.sort();
    let mut all = Sha256::new();
    for source in &sources {
        println!("cargo:rerun-if-changed={}", source.display());
        let content = fs::read(source)?;
        all.update(format!("{} {}\n", source.display(), content.len()));
        all.update(content);
    }
    let mut text = String::new();
    for byte in &all.finalize()[..8] {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// Adds a file, or all files of a directory, which is looked at again when one comes or goes.
fn add(path: &Path, sources: &mut Vec<PathBuf>) -> io::Result<()> {
    if OTHERS.iter().any(|other| path.ends_with(other)) {
        return Ok(());
    }
    if !path.is_dir() {
        sources.push(path.to_owned());
        return Ok(());
    }
    println!("cargo:rerun-if-changed={}", path.display());
    for entry in fs::read_dir(path)? {
        add(&entry?.path(), sources)?;
    }
    Ok(())
}

/// What git says, if it is there and this is a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    let done = command
        .arg("--no-optional-locks")
        .args(arguments)
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&done.stdout).trim().to_owned();
    done.status.success().then_some(said)
}
