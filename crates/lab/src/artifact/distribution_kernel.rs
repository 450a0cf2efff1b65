//! The distribution's own kernels, unmodified: those of most hosts, and every guest's.

use super::apt::kernel_image;
use super::backports::{self, fetch_into};
use super::cache::{Cache, Inputs};
use super::modules::{GUEST_MODULES, HOST_MODULES, PLACE_OF_MODULES, base_of_modules, lay_out};
use super::output;
use super::rt_kernel::source_version;
use crate::progress::{Observer, task};
use crate::{At, Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const RECIPE: &str = "1";

/// One of the distribution's kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelPackage {
    /// Such as "6.12".
    pub series: &'static str,
    /// The flavour with PREEMPT_RT.
    pub preempt_rt: bool,
    /// From Debian 13's backports, whatever release this machine runs.
    pub backported: bool,
}

impl KernelPackage {
    /// What guests run, and hosts whose method is `vanilla`.
    pub const STANDARD: Self = Self::own("6.12");

    /// Of this machine's own release.
    pub const fn own(series: &'static str) -> Self {
        Self {
            series,
            preempt_rt: false,
            backported: false,
        }
    }
}

/// The unpacked kernel.
#[derive(Debug, Clone)]
pub struct DistributionKernel {
    /// The kernel image.
    pub image: PathBuf,
    /// A directory with the host's modules, their names in load order.
    pub host_modules: PathBuf,
    /// A directory with a guest's modules, their names in load order.
    pub guest_modules: PathBuf,
    /// The package's version.
    pub version: String,
    /// What the kernel calls itself: "6.12.117+deb12-amd64".
    pub release: String,
}

impl DistributionKernel {
    /// The kernel from the cache; the package is downloaded, not installed, if need be.
    pub fn obtain(cache: &Cache, kernel: KernelPackage, observer: &dyn Observer) -> Result<Self> {
        let apt = kernel
            .backported
            .then(|| backports::apt(cache))
            .transpose()?;
        let program = |name: &str| match &apt {
            Some(apt) => apt.program(name),
            None => Command::new(name),
        };
        let find = || {
            kernel_image(
                kernel.series,
                kernel.preempt_rt,
                &source_version()?,
                &program,
            )
        };
        let (package, version) = match (find(), &apt) {
            // No indexes yet.
            (Err(_), Some(apt)) => {
                backports::update(apt, observer)?;
                find()?
            }
            (found, _) => found?,
        };
        let inputs = Inputs::default()
            .with("recipe", RECIPE)
            .with("package", format!("{package} {version}"))
            .with("host modules", HOST_MODULES.join(" "))
            .with("guest modules", GUEST_MODULES.join(" "));
        let entry = cache.entry("kernel-distribution", &inputs, observer, |directory| {
            let title = format!("fetch and unpack {package} (once)");
            let fetch = || {
                let download = || {
                    let mut download = program("apt-get");
                    download.current_dir(directory);
                    download
                };
                unpack(directory, &package, &version, &download)
            };
            task(observer, title, || match (fetch(), &apt) {
                // The mirror has a newer one by now, and no longer this one.
                (Err(error), Some(apt)) => apt.update().and(Err(error)),
                (result, _) => result,
            })
        })?;
        Ok(Self {
            image: entry.join("vmlinuz"),
            host_modules: entry.join("host-modules"),
            guest_modules: entry.join("guest-modules"),
            version,
            release: package.trim_start_matches("linux-image-").to_owned(),
        })
    }
}

/// Downloads a package by `apt-get`, which runs in `directory`, and keeps image and modules.
fn unpack(
    directory: &Path,
    package: &str,
    version: &str,
    download: &dyn Fn() -> Command,
) -> Result<()> {
    let tree = directory.join("package");
    fs::create_dir_all(&tree).at("create", &tree)?;
    let release = package.trim_start_matches("linux-image-");
    fetch_into(&tree, directory, package, version, download())?;
    // From Debian's 7 on, image and modules are packages of their own, which this one asks for.
    if image_of(&tree, release).is_none() {
        for part in ["linux-binary", "linux-modules", "linux-base"] {
            let part = format!("{part}-{release}");
            fetch_into(&tree, directory, &part, version, download())?;
        }
    }
    let image = image_of(&tree, release).ok_or_else(|| {
        let what = format!("find the kernel image of {package}");
        Error::machine(what, "none of its packages has one")
    })?;
    fs::copy(&image, directory.join("vmlinuz")).at("copy", &image)?;
    let base = base_of_modules(&tree);
    output(Command::new("depmod").arg("-b").arg(&base).arg(release))?;
    let modules = base.join(PLACE_OF_MODULES).join(release);
    for (names, target) in [
        (HOST_MODULES, "host-modules"),
        (GUEST_MODULES, "guest-modules"),
    ] {
        lay_out(&modules, names, &directory.join(target))?;
    }
    fs::remove_dir_all(&tree).at("remove", &tree)
}

/// The kernel image of a release among unpacked packages, wherever they put it.
fn image_of(tree: &Path, release: &str) -> Option<PathBuf> {
    let places = [
        tree.join(format!("boot/vmlinuz-{release}")),
        tree.join(format!("usr/lib/modules/{release}/vmlinuz")),
    ];
    places.into_iter().find(|place| place.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_found_where_either_kind_of_package_puts_it() {
        for place in ["boot/vmlinuz-7.3", "usr/lib/modules/7.3/vmlinuz"] {
            let tree = tempfile::tempdir().unwrap();
            let place = tree.path().join(place);
            assert_eq!(image_of(tree.path(), "7.3"), None);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(&place, "").unwrap();
            assert_eq!(image_of(tree.path(), "7.3"), Some(place));
        }
    }
}
