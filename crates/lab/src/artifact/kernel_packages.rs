//! Which packages a distribution's kernel is of, and those that modules for it are built with.

use super::SET_UP;
use super::apt::{Apt, listed};
use super::packages::Package;
use crate::{Error, Result};

/// One of the distribution's kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelPackage {
    /// Such as "6.12".
    pub series: &'static str,
    /// The flavour with PREEMPT_RT.
    pub preempt_rt: bool,
    /// From Debian 13's backports, whatever release this machine runs.
    pub backported: bool,
    /// With what modules for it are built with, which is got at the same time: the archive drops the headers
    /// of a kernel that has a successor.
    pub with_headers: bool,
}

impl KernelPackage {
    /// What guests run, and hosts whose method is `vanilla`.
    pub const STANDARD: Self = Self::own("6.12");

    /// Of this machine's own release, for guests and their modules.
    pub const fn own(series: &'static str) -> Self {
        Self {
            series,
            preempt_rt: false,
            backported: false,
            with_headers: true,
        }
    }
}

/// A kernel as the package sources have it today.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelPackages {
    /// What the kernel calls itself: "6.12.117+deb12-amd64".
    pub release: String,
    /// The image first, then what has its parts: from Debian's 7 on, they are packages of their own.
    pub image: Vec<Package>,
    /// Its headers, and what modules are built with besides; none where nobody builds any.
    pub headers: Vec<Package>,
}

impl KernelPackages {
    /// The kernel whose version is `wanted`, or else the newest of the series. One that lacks a part, or the
    /// headers that are asked for, stands back for an older one that has them.
    pub fn find(apt: &Apt, kernel: KernelPackage, wanted: &str) -> Result<Self> {
        let mut images = images(apt, kernel)?;
        // Stable: the others stay newest first.
        images.sort_by_key(|image| image.version != wanted);
        let mut first_error = None;
        for image in images {
            match Self::of(apt, image, kernel.with_headers) {
                Ok(found) => return Ok(found),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(first_error.unwrap_or_else(|| none_of(apt, kernel)))
    }

    fn of(apt: &Apt, image: Package, with_headers: bool) -> Result<Self> {
        let release = image.name.trim_start_matches("linux-image-").to_owned();
        let version = image.version.clone();
        let image = apt.with_needed(image, &|name| {
            name.starts_with("linux-") && name.ends_with(&format!("-{release}"))
        })?;
        let headers = Package::new(format!("linux-headers-{release}"), version);
        let is_of_headers =
            |name: &str| name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-");
        let headers = with_headers
            .then(|| apt.with_needed(headers, &is_of_headers))
            .transpose()?
            .unwrap_or_default();
        Ok(Self {
            release,
            image,
            headers,
        })
    }

    /// The version of the image.
    pub fn version(&self) -> &str {
        &self.image[0].version
    }
}

/// The images of a series and flavour, the newest first.
fn images(apt: &Apt, kernel: KernelPackage) -> Result<Vec<Package>> {
    let series = kernel.series.replace('.', "[.]");
    let mut names = apt.names(&format!("^linux-image-{series}[.][0-9].*-amd64$"))?;
    names.retain(|name| name.contains("-rt-") == kernel.preempt_rt && !name.contains("-cloud-"));
    if names.is_empty() {
        return Ok(Vec::new());
    }
    apt.packages(&names)
}

/// The error of a series that the package sources do not have: those that they have.
fn none_of(apt: &Apt, kernel: KernelPackage) -> Error {
    let kind = if kernel.preempt_rt { "-rt" } else { "" };
    let what = format!("find Debian's kernel image {}{kind}", kernel.series);
    let names = apt.names("^linux-image-[0-9]+[.][0-9]+[.][0-9].*-amd64$");
    let mut series: Vec<String> = names
        .unwrap_or_default()
        .iter()
        .filter_map(|name| {
            let mut numbers = name.trim_start_matches("linux-image-").split('.');
            Some(format!("{}.{}", numbers.next()?, numbers.next()?))
        })
        .collect();
    series.sort();
    series.dedup();
    let why = format!(
        "{} does not have it; it has kernels of the series {}",
        apt.name(),
        listed(&series)
    );
    Error::machine(what, why).what_to_do(SET_UP)
}

#[cfg(test)]
mod tests {
    use super::super::repository::{Repository, add_headers, add_image, add_kbuild, add_kernel};
    use super::*;
    use crate::progress::Silent;
    use std::process::Command;

    fn find(archive: &Repository, kernel: KernelPackage, wanted: &str) -> Result<KernelPackages> {
        let apt = archive.apt();
        apt.today(
            &Silent,
            || KernelPackages::find(&apt, kernel, wanted),
            |found| Ok(found.clone()),
        )
    }

    const GUESTS: KernelPackage = KernelPackage::own("6.1");

    /// As the archive of Debian 12 was on 2026-11-28: the image of 6.1.0-57 is not signed yet.
    #[test]
    fn headers_take_build_tools_of_a_newer_version_than_the_image() {
        let archive = Repository::new();
        add_kernel(&archive, "56", "6.1.192-2");
        add_headers(&archive, "57", "6.1.192-3");
        add_kbuild(&archive, "6.1.192-3");
        let found = find(&archive, GUESTS, "other").unwrap();
        assert_eq!(found.release, "6.1.0-56-amd64");
        assert_eq!(
            found.image,
            [Package::new("linux-image-6.1.0-56-amd64", "6.1.192-2")]
        );
        let headers = [
            Package::new("linux-headers-6.1.0-56-amd64", "6.1.192-2"),
            Package::new("linux-headers-6.1.0-56-common", "6.1.192-2"),
            Package::new("linux-kbuild-6.1", "6.1.192-3"),
        ];
        assert_eq!(found.headers, headers);
    }

    #[test]
    fn an_image_without_headers_stands_back_for_an_older_one_that_has_them() {
        let archive = Repository::new();
        add_kernel(&archive, "55", "6.1.192-1");
        add_image(&archive, "56", "6.1.192-2");
        add_kbuild(&archive, "6.1.192-3");
        assert_eq!(
            find(&archive, GUESTS, "6.1.192-2").unwrap().version(),
            "6.1.192-1"
        );
        let host = KernelPackage {
            with_headers: false,
            ..GUESTS
        };
        let found = find(&archive, host, "other").unwrap();
        assert_eq!(found.version(), "6.1.192-2");
        assert_eq!(found.headers, []);
    }

    #[test]
    fn where_no_image_has_headers_it_is_told_what_there_is() {
        let archive = Repository::new();
        add_image(&archive, "56", "6.1.192-2");
        add_headers(&archive, "57", "6.1.192-3");
        add_kbuild(&archive, "6.1.192-3");
        let error = find(&archive, GUESTS, "other").unwrap_err().to_string();
        assert!(
            error.contains("linux-headers-6.1.0-56-amd64 6.1.192-2"),
            "{error}"
        );
        assert!(
            error.contains("there are linux-headers-6.1.0-57-amd64"),
            "{error}"
        );
        let error = find(&archive, KernelPackage::own("6.12"), "other").unwrap_err();
        let told = error.to_string();
        assert!(told.contains("kernel image 6.12"), "{told}");
        assert!(told.contains("kernels of the series 6.1"), "{told}");
    }

    #[test]
    fn the_image_of_the_same_version_is_chosen_else_the_newest() {
        let archive = Repository::new();
        for (abi, version) in [("9", "6.1.9-1"), ("90.1", "6.1.90-2"), ("90", "6.1.90-1")] {
            add_kernel(&archive, abi, version);
        }
        add_kbuild(&archive, "6.1.90-2");
        for (wanted, chosen) in [("6.1.9-1", "6.1.9-1"), ("other", "6.1.90-2")] {
            assert_eq!(find(&archive, GUESTS, wanted).unwrap().version(), chosen);
        }
    }

    /// From Debian's 7 on: what the image asks for has its parts.
    #[test]
    fn the_parts_of_an_image_are_those_that_it_asks_for() {
        let archive = Repository::new();
        let release = "7.3.4+deb13-amd64";
        let parts = ["linux-base", "linux-binary", "linux-modules"];
        let parts = parts.map(|part| format!("{part}-{release}"));
        let depends = parts.each_ref().map(|part| format!("{part} (= 7.3.4-1)"));
        let depends = format!(
            "dracut | initramfs-tools, linux-base (>= 4), {}",
            depends.join(", ")
        );
        archive.add(&format!("linux-image-{release}"), "7.3.4-1", &depends, &[]);
        archive.add("linux-base", "4.12", "", &[]);
        let kernel = KernelPackage {
            with_headers: false,
            ..KernelPackage::own("7.3")
        };
        let error = find(&archive, kernel, "other").unwrap_err().to_string();
        assert!(
            error.contains("linux-base-7.3.4+deb13-amd64 (= 7.3.4-1)"),
            "{error}"
        );
        for part in &parts {
            archive.add(part, "7.3.4-1", "", &[]);
        }
        let found = find(&archive, kernel, "other").unwrap();
        let names: Vec<&str> = found.image[1..].iter().map(|it| &*it.name).collect();
        assert_eq!(names, parts);
    }

    /// What set-up installs for the tests of the module.
    #[test]
    fn set_up_takes_the_newest_headers_that_can_be_installed() {
        let archive = Repository::new();
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tools/installable-headers"
        );
        let headers = |series: &str| {
            let mut command = Command::new(script);
            let done = command
                .arg(series)
                .env("APT_CONFIG", archive.configuration());
            let done = done.output().unwrap();
            let text = [done.stdout, done.stderr].concat();
            (done.status.code(), String::from_utf8(text).unwrap())
        };
        for needed in ["linux-compiler-gcc-12-x86", "libc6"] {
            archive.add(needed, "12", "", &[]);
        }
        add_headers(&archive, "56", "6.1.192-2");
        add_headers(&archive, "57", "6.1.192-3");
        add_kbuild(&archive, "6.1.192-2");
        archive.fetch_indexes();
        assert_eq!(
            headers("6.1"),
            (Some(0), "linux-headers-6.1.0-56-amd64\n".to_owned())
        );
        add_kbuild(&archive, "6.1.192-1");
        archive.fetch_indexes();
        let (code, said) = headers("6.1");
        assert_eq!(code, Some(3));
        assert!(
            said.contains("Depends: linux-kbuild-6.1 (>= 6.1.192-3)"),
            "{said}"
        );
        assert!(said.contains("try again later"), "{said}");
        let (code, said) = headers("6.12");
        assert_eq!(code, Some(3));
        assert!(said.contains("there are those of: 6.1"), "{said}");
    }
}
