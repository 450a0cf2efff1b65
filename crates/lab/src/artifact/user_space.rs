//! The user space of the emulated host and its guests: one read-only image of Debian packages.

use super::apt::{debian_sources, release};
use super::cache::{Cache, Inputs};
use super::{SET_UP, output};
use crate::child;
use crate::error::{At, Error, Result};
use crate::progress::{Observer, task};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const RECIPE: &str = "1";

/// What the host and its guests run. The lab's own program comes with the initramfs.
const PACKAGES: &[&str] = &[
    "bash",
    "dash",
    "coreutils",
    "grep",
    "sed",
    "libc-bin",
    "util-linux",
    "procps",
    "kmod",
    "iproute2",
    "ethtool",
    "iperf3",
    "qemu-system-x86",
    "strace",
];

/// The image from the cache, built if need be.
pub fn user_space_image(cache: &Cache, observer: &dyn Observer) -> Result<PathBuf> {
    let (release, sources) = (release()?, debian_sources()?);
    let inputs = Inputs::default()
        .with("recipe", RECIPE)
        .with("release", release.as_str())
        .with("sources", sources.as_str())
        .with("packages", PACKAGES.join(" "));
    let entry = cache.entry("user-space", &inputs, observer, |directory| {
        let title = "build the user space of host and guests from Debian packages (once)";
        task(observer, title, || build(directory, &release, &sources))
    })?;
    Ok(entry.join("image.squashfs"))
}

/// Unpacks the packages without running their scripts, and packs the tree uncompressed:
/// an emulated processor is slow at decompression and the disk is not the bottleneck.
fn build(directory: &Path, release: &str, sources: &str) -> Result<()> {
    let list = directory.join("sources.list");
    fs::write(&list, sources).at("write", &list)?;
    let archive = directory.join("image.tar");
    let log = directory.join("mmdebstrap.log");
    let mut command = Command::new("unshare");
    command
        .args([
            "--pid",
            "--fork",
            "--kill-child",
            "mmdebstrap",
            "--mode=root",
        ])
        .args(["--variant=extract", "--format=tar"])
        .arg("--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr")
        .arg("--aptopt=APT::Install-Recommends \"false\"")
        .arg("--dpkgopt=path-exclude=/usr/share/doc/*")
        .arg("--dpkgopt=path-exclude=/usr/share/man/*")
        .arg("--dpkgopt=path-exclude=/usr/share/locale/*")
        .arg(format!("--include={}", PACKAGES.join(",")))
        .args([Path::new(release), &archive, &list])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).at("create", &log)?);
    let mut bootstrap = child::spawn(command).map_err(|error| error.what_to_do(SET_UP))?;
    if !bootstrap.wait()?.success() {
        let said = fs::read_to_string(&log).unwrap_or_default();
        let why = said
            .lines()
            .rev()
            .find(|line| line.starts_with("E:"))
            .unwrap_or("no reason given");
        return Err(
            Error::machine("build the user space with mmdebstrap", why).what_to_do(
                "run as root; check that this machine reaches its package sources (apt-get update)",
            ),
        );
    }
    let tree = File::open(&archive).at("open", &archive)?;
    let mut pack = Command::new("sqfstar");
    pack.args([
        "-comp",
        "zstd",
        "-noI",
        "-noD",
        "-noF",
        "-noX",
        "-quiet",
        "-no-progress",
    ]);
    output(pack.arg(directory.join("image.squashfs")).stdin(tree))?;
    for file in [archive, list, log] {
        fs::remove_file(&file).at("remove", &file)?;
    }
    Ok(())
}
