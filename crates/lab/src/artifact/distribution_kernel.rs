//! The distribution's own kernels, unmodified: those of most hosts, and every guest's.

use super::apt::{Apt, kernel_image, source_of_suite};
use super::cache::{Cache, Inputs};
use super::output;
use super::rt_kernel::source_version;
use crate::progress::{Observer, task};
use crate::{At, Error, Result};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where a kernel comes from that this machine's own release does not have.
const BACKPORTS: &str = "trixie-backports";
const RECIPE: &str = "1";

/// What a host needs besides what the kernel has built in.
const HOST_MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_blk",
    "virtio_console",
    "squashfs",
    "overlay",
    "igb",
    "kvm_amd",
    "kvm_intel",
    "vhost_net",
    "tun",
    "tcp_diag",
    "udp_diag",
    "bridge",
    "veth",
    "macvlan",
];
/// What a guest needs.
const GUEST_MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_mmio",
    "virtio_blk",
    "virtio_console",
    "virtio_net",
    "squashfs",
    "overlay",
];

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
        let apt = kernel.backported.then(|| backports(cache)).transpose()?;
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
                let title = format!("fetch the index of {BACKPORTS} (once)");
                task(observer, title, || apt.update())?;
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

/// The index of Debian 13's backports.
fn backports(cache: &Cache) -> Result<Apt> {
    Apt::new(
        &cache.helper_directory(BACKPORTS),
        &source_of_suite(BACKPORTS)?,
    )
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
    let modules = base.join("lib/modules").join(release);
    let dependencies = modules.join("modules.dep");
    let text = fs::read_to_string(&dependencies).at("read", &dependencies)?;
    for (names, target) in [
        (HOST_MODULES, "host-modules"),
        (GUEST_MODULES, "guest-modules"),
    ] {
        let order = load_order(&text, names);
        lay_out(&modules, &order, &directory.join(target))?;
    }
    fs::remove_dir_all(&tree).at("remove", &tree)
}

/// What lib/modules lies in: packages have it in usr from Debian 13 on.
fn base_of_modules(tree: &Path) -> PathBuf {
    let merged = tree.join("usr");
    if merged.join("lib/modules").is_dir() {
        merged
    } else {
        tree.to_owned()
    }
}

/// Downloads one package and unpacks it into `tree`.
fn fetch_into(
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

/// The kernel image of a release among unpacked packages, wherever they put it.
fn image_of(tree: &Path, release: &str) -> Option<PathBuf> {
    let places = [
        tree.join(format!("boot/vmlinuz-{release}")),
        tree.join(format!("usr/lib/modules/{release}/vmlinuz")),
    ];
    places.into_iter().find(|place| place.is_file())
}

/// The module files to load for `names`, each after everything that it needs.
///
/// `dependencies` is a modules.dep: "file: needed file ..." a line, the farthest need last.
/// A name without a file is built into the kernel.
fn load_order<'d>(dependencies: &'d str, names: &[&str]) -> Vec<&'d str> {
    let needs: HashMap<&str, Vec<&str>> = dependencies
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(file, needed)| (file, needed.split_whitespace().collect()))
        .collect();
    let by_name: HashMap<String, &str> = needs
        .keys()
        .map(|file| (module_name(file), *file))
        .collect();
    let mut order: Vec<&str> = Vec::new();
    for file in names.iter().filter_map(|name| by_name.get(*name)) {
        let needed = needs.get(file).into_iter().flatten().rev();
        for file in needed.chain(std::iter::once(file)) {
            if !order.contains(file) {
                order.push(file);
            }
        }
    }
    order
}

/// "kernel/net/8021q/some-module.ko.xz" is `some_module`.
fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split(".ko").next().unwrap_or(name).replace('-', "_")
}

/// Writes the modules, decompressed, under names that sort in load order.
fn lay_out(modules: &Path, order: &[&str], target: &Path) -> Result<()> {
    fs::create_dir_all(target).at("create", target)?;
    for (index, file) in order.iter().enumerate() {
        let source = modules.join(file);
        let place = target.join(format!("{index:03}-{}.ko", module_name(file)));
        if source
            .extension()
            .is_some_and(|extension| extension == "xz")
        {
            let unpacked = Command::new("xz")
                .arg("-dc")
                .arg(&source)
                .output()
                .at("unpack", &source)?;
            fs::write(&place, unpacked.stdout).at("write", &place)?;
        } else {
            fs::copy(&source, &place).at("copy", &source)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_found_in_the_packages_of_both_releases() {
        for (laid_in, base) in [("lib/modules/6.12", ""), ("usr/lib/modules/6.12", "usr")] {
            let tree = tempfile::tempdir().unwrap();
            fs::create_dir_all(tree.path().join(laid_in)).unwrap();
            // Both have other things in usr/lib.
            fs::create_dir_all(tree.path().join("usr/lib/linux-image")).unwrap();
            assert_eq!(base_of_modules(tree.path()), tree.path().join(base));
        }
    }

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

    const DEPENDENCIES: &str = "\
kernel/a/one.ko.xz: kernel/a/two.ko.xz kernel/a/base-thing.ko.xz
kernel/a/two.ko.xz: kernel/a/base-thing.ko.xz
kernel/a/base-thing.ko.xz:
kernel/a/other.ko.xz: kernel/a/base-thing.ko.xz
";

    #[test]
    fn every_module_comes_after_what_it_needs_and_once() {
        let order = load_order(DEPENDENCIES, &["one", "built_in", "other", "base_thing"]);
        let names: Vec<String> = order.iter().map(|file| module_name(file)).collect();
        assert_eq!(names, ["base_thing", "two", "one", "other"]);
    }
}
