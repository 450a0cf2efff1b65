//! The two programs that machines of the lab carry: the lab's own, which is their first process and their agent, and
//! the `steadyvm` of hosts. Both must be of one build, so that no figure is of another version than it says.

use crate::{At, Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program of hosts, as it is called.
const OF_HOSTS: &str = "steadyvm";

/// Where both programs are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// The lab's own.
    pub lab: PathBuf,
    /// The program of hosts.
    pub host: PathBuf,
}

impl Programs {
    /// The lab's program, such as the one that runs, and the program of hosts in the same directory.
    ///
    /// # Errors
    /// There is none, or it is of another build.
    pub fn beside(lab: &Path) -> Result<Self> {
        let host = host_program(lab)?;
        let what = || format!("take {} into the machines of the lab", host.display());
        if !host.exists() {
            return Err(Error::lack(what(), "it is not there").what_to_do(ADVICE));
        }
        let (own, other) = (build(lab)?, build(&host)?);
        if own != other {
            let why = format!("it is of build {other}, and this program of build {own}");
            return Err(Error::lack(what(), why).what_to_do(ADVICE));
        }
        Ok(Self {
            lab: lab.to_owned(),
            host,
        })
    }
}

/// What makes both be there, of one build.
const ADVICE: &str =
    "build both programs by `make build`, or install both packages in the same version";

/// Where the program of hosts has to be.
fn host_program(lab: &Path) -> Result<PathBuf> {
    let replaced = "its file was replaced since it started: start it again";
    let file = fs::canonicalize(lab).at("find this program's file,", lab);
    let file = file.map_err(|error| error.what_to_do(replaced))?;
    Ok(file.with_file_name(OF_HOSTS))
}

/// The build of a program: the line of its `--version` that says it.
fn build(program: &Path) -> Result<String> {
    let output = Command::new(program)
        .arg("--version")
        .output()
        .at("run", program)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let build = text.lines().find_map(|line| line.strip_prefix("build "));
    Ok(build.unwrap_or("unknown").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A program that says of which build it is.
    fn program(directory: &Path, name: &str, build: &str) -> PathBuf {
        let file = directory.join(name);
        let text = format!("#!/bin/sh\nprintf '{name} 1\\nrevision x\\nbuild {build}\\n'\n");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        file
    }

    #[test]
    fn the_program_of_hosts_is_the_one_beside_the_labs_of_the_same_build() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        let lab = program(place, "steadyvm-lab", "a");
        let missing = Programs::beside(&lab).unwrap_err().to_string();
        assert!(missing.contains("it is not there; build both"), "{missing}");
        let host = program(place, "steadyvm", "b");
        let refused = Programs::beside(&lab).unwrap_err().to_string();
        let why = "it is of build b, and this program of build a; build both";
        assert!(refused.contains(why), "{refused}");
        program(place, "steadyvm", "a");
        assert_eq!(Programs::beside(&lab).unwrap(), Programs { lab, host });
    }
}
