//! The file that describes a host, and what only the caller knows of it.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use steadyvm_config::File;
use steadyvm_host::HostError;
use steadyvm_host::profile::Profile;

/// Where the owner of a host keeps the file.
pub const DEFAULT_FILE: &str = "/etc/steadyvm.toml";

/// Longer files are no description of a host.
const MAX_INPUT: u64 = 16 << 20;

/// The file, and what only the caller knows of it.
#[derive(Debug, Clone)]
pub struct Source {
    /// The file that describes this host; "-" for standard input.
    pub file: PathBuf,
    /// All or nothing: refuse a plan that this host cannot hold, and change nothing if a VM, a card or a file cannot be
    /// served.
    pub is_strict: bool,
    /// The processes of VMs' monitors whose command lines do not name them.
    pub processes: Vec<(String, u32)>,
}

impl Source {
    /// This file alone.
    pub fn of(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            is_strict: false,
            processes: Vec::new(),
        }
    }

    /// Says in a profile which processes its VMs are.
    pub(crate) fn name_processes(&self, profile: &mut Profile) -> Result<(), HostError> {
        for (name, pid) in &self.processes {
            let Some(vm) = profile.vms.iter_mut().find(|vm| vm.name == *name) else {
                let known: Vec<&str> = profile.vms.iter().map(|vm| vm.name.as_str()).collect();
                return Err(HostError::BadInput {
                    what: format!(
                        "--vm {name}={pid}: the file has no VM \"{name}\" with a class that has net settings"
                    ),
                    fix: format!("its VMs are: {}", known.join(", ")),
                });
            };
            vm.pid = Some(*pid);
        }
        Ok(())
    }
}

/// What people call a file.
pub(crate) fn name_of(path: &Path) -> String {
    if path == Path::new("-") {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

/// A file's text.
pub(crate) fn text_of(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(fs::File::open(path)?)
    };
    source.take(MAX_INPUT).read_to_string(&mut text)?;
    Ok(text)
}

/// The owner's file.
pub(crate) fn owners_file(file: &Path) -> Result<File, HostError> {
    let name = name_of(file);
    let text = text_of(file).map_err(|error| HostError::BadInput {
        what: format!("cannot read {name}: {error}"),
        fix: format!("write {DEFAULT_FILE} or name a file (steadyvm.toml(5) has its keys)"),
    })?;
    Ok(File::parse(&name, &text)?)
}
