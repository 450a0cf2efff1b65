//! The initramfs: the lab's program as the first process, modules, and files laid over the image.

use super::modules::LATER;
use super::output;
use crate::init::{ADDITIONS, HOST_PROGRAM, LATER_MODULES, MODULES};
use crate::{At, Programs, Result};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What goes into an initramfs.
#[derive(Debug)]
pub struct Initramfs<'a> {
    /// Linked statically: the first process, and the program of hosts.
    pub programs: &'a Programs,
    /// A directory of modules whose names are in load order, and of those that are loaded later.
    pub modules: Option<&'a Path>,
    /// Files to lay over the image: where they stand there, and where they come from.
    pub additions: Vec<(&'a str, &'a Path)>,
}

/// A packed initramfs. It lives in memory and goes with this value, or with this process.
#[derive(Debug)]
pub struct PackedInitramfs(OwnedFd);

impl PackedInitramfs {
    /// Nothing at all, for what is not booted.
    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        Self(memfd_create(c"empty", MFdFlags::MFD_CLOEXEC).expect("a file in memory"))
    }

    /// Where another process of this machine, such as QEMU, can read it.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.0.as_raw_fd()
        ))
    }
}

impl Initramfs<'_> {
    /// Packs the initramfs.
    ///
    /// # Errors
    /// A file is missing, or `cpio` is.
    pub fn pack(&self) -> Result<PackedInitramfs> {
        let memory = memfd_create(c"steadyvm-initramfs", MFdFlags::MFD_CLOEXEC)
            .doing("make a file in memory")?;
        let packed = PackedInitramfs(memory);
        let tree = tempfile::tempdir().doing("make a temporary directory")?;
        let root = tree.path();
        strip(&self.programs.lab, &root.join("init"))?;
        let addition = |place: &str| inside(&inside(root, ADDITIONS), place);
        strip(&self.programs.host, &addition(HOST_PROGRAM))?;
        if let Some(modules) = self.modules {
            copy_files(modules, &inside(root, MODULES))?;
            let later = modules.join(LATER);
            if later.is_dir() {
                copy_files(&later, &addition(LATER_MODULES))?;
            }
        }
        for (place, source) in &self.additions {
            let target = addition(place);
            make_parent(&target)?;
            fs::copy(source, &target).at("copy", source)?;
        }
        let pack = "find . -mindepth 1 | cpio --quiet --create --format=newc --owner=0:0 > \"$0\"";
        let mut shell = Command::new("sh");
        shell
            .args(["-euc", pack])
            .arg(packed.path())
            .current_dir(root);
        output(&mut shell)?;
        Ok(packed)
    }
}

/// Copies a program without its debug information, which would double the time to unpack it.
fn strip(program: &Path, to: &Path) -> Result<()> {
    make_parent(to)?;
    output(Command::new("strip").arg("-o").arg(to).arg(program)).map(drop)
}

fn make_parent(file: &Path) -> Result<()> {
    match file.parent() {
        Some(parent) => fs::create_dir_all(parent).at("create", parent),
        None => Ok(()),
    }
}

/// `place`, an absolute path, below `root`.
fn inside(root: &Path, place: &str) -> PathBuf {
    root.join(place.trim_start_matches('/'))
}

/// Copies the files of a directory, and no directory in it.
fn copy_files(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).at("create", to)?;
    for entry in fs::read_dir(from).at("read", from)? {
        let source = entry.at("read", from)?.path();
        if source.is_file() {
            let target = to.join(source.file_name().unwrap_or_default());
            fs::copy(&source, &target).at("copy", &source)?;
        }
    }
    Ok(())
}
