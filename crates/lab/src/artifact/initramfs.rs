//! The initramfs: this program as the first process, modules, and files laid over the image.

use super::output;
use crate::error::{At, Result};
use crate::init::{ADDITIONS, MODULES};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What goes into an initramfs.
#[derive(Debug, Default)]
pub struct Initramfs<'a> {
    /// A directory of modules whose names are in load order.
    pub modules: Option<&'a Path>,
    /// Files to lay over the image: where they stand there, and where they come from.
    pub additions: Vec<(&'a str, &'a Path)>,
}

impl Initramfs<'_> {
    /// Writes the initramfs to `file`.
    ///
    /// # Errors
    /// A file is missing, the disk is full, or `cpio` is.
    pub fn write(&self, file: &Path) -> Result<()> {
        let tree = tempfile::tempdir().doing("make a temporary directory")?;
        let root = tree.path();
        let program = std::env::current_exe().doing("find this program")?;
        // Debug information would double the time to unpack it.
        output(
            Command::new("strip")
                .arg("-o")
                .arg(root.join("init"))
                .arg(&program),
        )?;
        if let Some(modules) = self.modules {
            copy_directory(modules, &inside(root, MODULES))?;
        }
        for (place, source) in &self.additions {
            let target = inside(&inside(root, ADDITIONS), place);
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent).at("create", parent)?;
            }
            fs::copy(source, &target).at("copy", source)?;
        }
        let pack = "find . -mindepth 1 | cpio --quiet --create --format=newc --owner=0:0 > \"$0\"";
        output(
            Command::new("sh")
                .arg("-euc")
                .arg(pack)
                .arg(file)
                .current_dir(root),
        )
        .map(drop)
    }
}

/// `place`, an absolute path, below `root`.
fn inside(root: &Path, place: &str) -> PathBuf {
    root.join(place.trim_start_matches('/'))
}

fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).at("create", to)?;
    for entry in fs::read_dir(from).at("read", from)? {
        let source = entry.at("read", from)?.path();
        let target = to.join(source.file_name().unwrap_or_default());
        fs::copy(&source, &target).at("copy", &source)?;
    }
    Ok(())
}
