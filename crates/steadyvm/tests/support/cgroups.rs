//! Scripts with cgroups of their own on this machine, by which processes are known. Needs root.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

/// Mounts of its own, with an own /run.
const PLACE: &str = "
set -eu
mount --make-rprivate /
mount -t tmpfs none /run
mkdir -p /run/steadyvm && chmod 755 /run/steadyvm
";

/// The directory of cgroups where systemd keeps its units, on this machine or one with systemd.
pub fn root() -> &'static Path {
    let known = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup"].map(Path::new);
    let found = known
        .into_iter()
        .find(|it| it.join("cgroup.procs").exists());
    found.unwrap_or_else(|| panic!("this machine has no cgroups"))
}

/// What a script prints and what it complains of; it must end well. `$S` is the program. What it waits for comes, or it ends.
pub fn printed<V: AsRef<OsStr>>(script: &str, variables: &[(&str, V)]) -> (String, String) {
    let mut command = Command::new("timeout");
    command
        .args(["300", "unshare", "--mount", "bash", "-c"])
        .arg(format!("{PLACE}{script}"))
        .env("S", env!("CARGO_BIN_EXE_steadyvm"))
        .stdin(Stdio::null());
    for (name, value) in variables {
        command.env(name, value);
    }
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let error = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}\n{error}");
    (said, error)
}
