//! Tells the program which revision it is.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=../../.git/HEAD");
    println!("cargo:rerun-if-changed=../../.git/index");
    let describe = Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .output();
    let revision = match describe {
        Ok(done) if done.status.success() => {
            String::from_utf8_lossy(&done.stdout).trim().to_owned()
        }
        _ => "unknown".to_owned(),
    };
    println!("cargo:rustc-env=STEADYVM_GIT_REVISION={revision}");
}
