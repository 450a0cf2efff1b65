//! Tells the program which revision it is.

use std::process::Command;

fn main() {
    // Where they are: a worktree's are not in its own `.git`.
    for file in ["HEAD", "index"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let revision = git(&["describe", "--always", "--dirty", "--abbrev=12"]);
    let revision = revision.as_deref().unwrap_or("unknown");
    println!("cargo:rustc-env=STEADYVM_GIT_REVISION={revision}");
}

/// What git says, if it is there and this is a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let done = Command::new("git").args(arguments).output().ok()?;
    let said = String::from_utf8_lossy(&done.stdout).trim().to_owned();
    done.status.success().then_some(said)
}
