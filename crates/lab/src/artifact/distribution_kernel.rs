//! The distribution's own kernels, unmodified: those of most hosts, and every guest's.

use super::apt::Apt;
use super::backports;
use super::cache::{Cache, Inputs};
use super::kernel_packages::{KernelPackage, KernelPackages};
use super::modules::{
    GUEST_MODULES, HOST_MODULES, LATER_MODULES, PLACE_OF_MODULES, base_of_modules, lay_out,
    lay_out_hosts,
};
use super::output;
use super::packages::unpack;
use super::rt_kernel::source_version;
use crate::progress::{Observer, task};
use crate::{At, Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const RECIPE: &str = "2";

/// The unpacked kernel.
#[derive(Debug, Clone)]
pub struct DistributionKernel {
    /// The kernel image.
    pub image: PathBuf,
    /// A directory with the host's modules, their names in load order.
    pub host_modules: PathBuf,
    /// A directory with a guest's modules, their names in load order.
    pub guest_modules: PathBuf,
    /// A directory with the packages that modules for it are built with; none where nobody builds any.
    pub headers: PathBuf,
    /// The package's version.
    pub version: String,
    /// What the kernel calls itself: "6.12.117+deb12-amd64".
    pub release: String,
}

impl DistributionKernel {
    /// The kernel from the cache; the packages are downloaded, not installed, if need be.
    pub fn obtain(cache: &Cache, kernel: KernelPackage, observer: &dyn Observer) -> Result<Self> {
        let apt = if kernel.backported {
            backports::apt(cache)?
        } else {
            Apt::of_this_release(cache)?
        };
        Self::obtain_from(&apt, &source_version()?, cache, kernel, observer)
    }

    /// The same from these package sources: the kernel of the version `wanted`, else the newest.
    fn obtain_from(
        apt: &Apt,
        wanted: &str,
        cache: &Cache,
        kernel: KernelPackage,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let find = || KernelPackages::find(apt, kernel, wanted);
        apt.today(observer, find, |packages| {
            Self::from_packages(apt, packages, cache, observer)
        })
    }

    fn from_packages(
        apt: &Apt,
        packages: &KernelPackages,
        cache: &Cache,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let image = &packages.image[0];
        let headers: Vec<&str> = packages.headers.iter().map(|it| &*it.name).collect();
        let inputs = Inputs::default()
            .with("recipe", RECIPE)
            .with("package", image.to_string())
            .with("headers", headers.join(" "))
            .with("host modules", HOST_MODULES.join(" "))
            .with("later modules", LATER_MODULES.join(" "))
            .with("guest modules", GUEST_MODULES.join(" "));
        let entry = cache.entry("kernel-distribution", &inputs, observer, |directory| {
            let title = format!("fetch and unpack {} (once)", image.name);
            task(observer, title, || fill(directory, apt, packages))
        })?;
        Ok(Self {
            image: entry.join("vmlinuz"),
            host_modules: entry.join("host-modules"),
            guest_modules: entry.join("guest-modules"),
            headers: entry.join("headers"),
            version: packages.version().to_owned(),
            release: packages.release.clone(),
        })
    }
}

/// Downloads a kernel's packages, and keeps image and modules, and the packages of headers.
fn fill(directory: &Path, apt: &Apt, packages: &KernelPackages) -> Result<()> {
    let (downloaded, tree) = (directory.join("downloaded"), directory.join("package"));
    if !packages.headers.is_empty() {
        apt.download(&packages.headers, &directory.join("headers"))?;
    }
    unpack(&apt.download(&packages.image, &downloaded)?, &tree)?;
    let release = &packages.release;
    let image = image_of(&tree, release).ok_or_else(|| {
        let what = format!("find the kernel image of {}", packages.image[0]);
        Error::machine(what, "none of its packages has one")
    })?;
    fs::copy(&image, directory.join("vmlinuz")).at("copy", &image)?;
    let base = base_of_modules(&tree);
    output(Command::new("depmod").arg("-b").arg(&base).arg(release))?;
    let modules = base.join(PLACE_OF_MODULES).join(release);
    lay_out_hosts(&modules, &directory.join("host-modules"))?;
    lay_out(&modules, GUEST_MODULES, &directory.join("guest-modules"))?;
    for used in [&downloaded, &tree] {
        fs::remove_dir_all(used).at("remove", used)?;
    }
    Ok(())
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
    use super::super::repository::{Repository, add_kbuild, add_kernel, has};
    use super::super::sockets_module::KernelModule;
    use super::*;
    use crate::progress::Silent;

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

    const KERNEL: KernelPackage = KernelPackage::own("6.1");

    /// A module, for headers that compile it without any of the kernel's.
    const MODULE: KernelModule<'_> = KernelModule {
        name: "a-module",
        file: "module.ko",
        sources: &[("module.c", "int module;")],
    };

    fn obtain(archive: &Repository) -> Result<DistributionKernel> {
        let cache = Cache::at(archive.beside("cache"))?;
        DistributionKernel::obtain_from(&archive.apt(), "other", &cache, KERNEL, &Silent)
    }

    #[test]
    fn headers_come_with_a_kernel_and_stay_when_the_archive_drops_them() {
        let archive = Repository::new();
        add_kernel(&archive, "56", "6.1.192-2");
        add_kbuild(&archive, "6.1.192-3");
        let kernel = obtain(&archive).unwrap();
        assert_eq!(fs::read_to_string(&kernel.image).unwrap(), "6.1.192-2");
        assert!(has(&kernel.headers, "linux-kbuild-6.1_6.1.192-3"));
        // The indexes tell of what is gone, but all of it is here.
        for gone in [
            "image-6.1.0-56-amd64",
            "headers-6.1.0-56-amd64",
            "headers-6.1.0-56-common",
        ] {
            archive.remove(&format!("linux-{gone}"));
        }
        add_kernel(&archive, "57", "6.1.192-3");
        let kernel = obtain(&archive).unwrap();
        assert_eq!(kernel.version, "6.1.192-2");
        let cache = Cache::at(archive.beside("cache")).unwrap();
        let module = MODULE.obtain(&cache, &kernel, &Silent).unwrap();
        assert!(module.is_file(), "{}", module.display());
        // Another day, with nothing here: the one that is there.
        fs::remove_dir_all(archive.beside("cache")).unwrap();
        let kernel = obtain(&archive).unwrap();
        assert_eq!(kernel.release, "6.1.0-57-amd64");
        assert_eq!(fs::read_to_string(&kernel.image).unwrap(), "6.1.192-3");
    }

    #[test]
    fn a_kernel_that_is_nowhere_is_told_at_once() {
        let archive = Repository::new();
        add_kernel(&archive, "56", "6.1.192-2");
        add_kbuild(&archive, "6.1.192-1");
        let error = obtain(&archive).unwrap_err().to_string();
        assert!(error.contains("linux-kbuild-6.1 (>= 6.1.192-2)"), "{error}");
        assert!(error.contains("is there as 6.1.192-1"), "{error}");
        // The day after.
        add_kbuild(&archive, "6.1.192-2");
        assert_eq!(obtain(&archive).unwrap().version, "6.1.192-2");
    }
}
