//! Debian 13's backports: kernels that this machine's own release does not have. Nothing of them is installed.

use super::apt::{Apt, source_of_suite};
use super::cache::Cache;
use super::output;
use crate::progress::{Observer, task};
use crate::{At, Error, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

const BACKPORTS: &str = "trixie-backports";
/// The newest series of kernels there that the lab knows.
pub const SERIES: &str = "7.3";

/// Their index.
pub fn apt(cache: &Cache) -> Result<Apt> {
    Apt::new(
        &cache.helper_directory(BACKPORTS),
        &source_of_suite(BACKPORTS)?,
    )
}

/// Fetches the index.
pub fn update(apt: &Apt, observer: &dyn Observer) -> Result<()> {
    let title = format!("fetch the index of {BACKPORTS} (once)");
    task(observer, title, || apt.update())
}

/// Downloads one package and unpacks it into `tree`.
pub fn fetch_into(
    tree: &Path,
    directory: &Path,
    package: &str,
    version: &str,
    mut download: Command,
) -> Result<()> {
    download.args(["-q", "download", &format!("{package}={version}")]);
    output(&mut download).map_err(|error| {
        error.what_to_do("check that this machine reaches its package sources; apt-get update")
    })?;
    let archive = fs::read_dir(directory)
        .at("read", directory)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|ending| ending == "deb"))
        .ok_or_else(|| {
            Error::machine(format!("download {package}"), "apt-get downloaded nothing")
        })?;
    output(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(tree))?;
    fs::remove_file(&archive).at("remove", &archive)
}
