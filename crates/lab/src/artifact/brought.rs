//! What a user brings for the lab to boot instead of its own: a kernel, and the guests' module.
//!
//! All of it is checked first, so that it is refused before any work. It is read when it is packed or booted.

use super::bz_image::{self, HEAD_BYTES};
use super::modules::{DEPENDENCIES, PLACE_OF_MODULES, base_of_modules, lay_out_hosts};
use crate::{At, Error, Result};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// What a user brings.
#[derive(Debug, Default)]
pub struct Brought {
    /// The kernel of a host.
    pub kernel: Option<BroughtKernel>,
    /// The guests' module for outsourced sockets.
    pub sockets_module: Option<PathBuf>,
}

/// A kernel that a user has built.
#[derive(Debug)]
pub struct BroughtKernel {
    /// Its bzImage.
    pub image: PathBuf,
    /// What it calls itself.
    pub release: String,
    /// Its lib/modules/RELEASE; `None`: all that a host needs is built in.
    modules: Option<PathBuf>,
}

impl BroughtKernel {
    /// The kernel of a bzImage. `modules` is the directory that its modules were installed to, or the
    /// lib/modules/RELEASE in it.
    ///
    /// # Errors
    /// One of them is not there, is something else, or is of another release than the other.
    pub fn open(image: &Path, modules: Option<&Path>) -> Result<Self> {
        let refused = |why: &dyn std::fmt::Display| {
            let what = format!("boot the kernel image {}", image.display());
            let advice = "give the bzImage of a build, arch/x86/boot/bzImage, and not its vmlinux";
            Error::input(what, why).what_to_do(advice)
        };
        let head = head_of(image, HEAD_BYTES).map_err(|error| refused(&error))?;
        let release = bz_image::release(&head).map_err(|error| refused(&error))?;
        let modules = modules.map(|given| directory_of(given, release));
        Ok(Self {
            image: fs::canonicalize(image).at("find", image)?,
            release: release.to_owned(),
            modules: modules.transpose()?,
        })
    }

    /// A directory with the modules that a host needs, their names in load order.
    pub(crate) fn host_modules(&self) -> Result<Option<TempDir>> {
        let laid_out = self.modules.as_deref().map(|modules| {
            let directory = tempfile::tempdir().doing("make a temporary directory")?;
            lay_out_hosts(modules, directory.path()).map(|()| directory)
        });
        laid_out.transpose()
    }
}

/// The directory of the modules of a release: the given one, or the only one below it.
fn directory_of(given: &Path, release: &str) -> Result<PathBuf> {
    let refused = |why: &str, advice: String| {
        let what = format!("take modules from {}", given.display());
        Err(Error::input(what, why).what_to_do(advice))
    };
    let install = || {
        format!(
            "`make modules_install INSTALL_MOD_PATH=DIR` installs them with it, \
             `depmod -b DIR {release}` writes it: --modules DIR"
        )
    };
    if !given.is_dir() {
        return refused("there is no such directory", install());
    }
    let directory = if given.join(DEPENDENCIES).is_file() {
        given.to_owned()
    } else {
        let place = base_of_modules(given).join(PLACE_OF_MODULES);
        match &*directories_in(&place) {
            [] => {
                let why = format!("it has neither {DEPENDENCIES} nor {PLACE_OF_MODULES}/{release}");
                return refused(&why, install());
            }
            [only] => place.join(only),
            several => {
                let why = format!("it has several releases: {}", several.join(", "));
                let place = place.display();
                return refused(&why, format!("name one: --modules {place}/RELEASE"));
            }
        }
    };
    if !directory.join(DEPENDENCIES).is_file() {
        let why = format!("{} has no {DEPENDENCIES}", directory.display());
        return refused(&why, install());
    }
    // Its name says of which release it is, and "." has none.
    let directory = fs::canonicalize(&directory).at("find", &directory)?;
    let found = directory.file_name().unwrap_or_default().to_string_lossy();
    if found != release {
        let why = format!("they are of the release {found}, the kernel image is of {release}");
        return refused(&why, "give image and modules of one build".to_owned());
    }
    Ok(directory)
}

/// The names of the directories in one, sorted; none where it is not there.
fn directories_in(place: &Path) -> Vec<String> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// A module that a user has built for guests.
///
/// # Errors
/// It is not there, or is no module.
pub fn brought_module(file: &Path) -> Result<PathBuf> {
    let refused = |why: &dyn std::fmt::Display| {
        let what = format!("give guests the module {}", file.display());
        let advice = "give the .ko file of a build, which is not compressed";
        Error::input(what, why).what_to_do(advice)
    };
    let head = head_of(file, ELF_HEAD_BYTES).map_err(|error| refused(&error))?;
    if !is_object_file(&head) {
        return Err(refused(&"it is no object file (ELF, relocatable)"));
    }
    fs::canonicalize(file).at("find", file)
}

const ELF_HEAD_BYTES: u64 = 18;

/// Whether a file starts as an ELF file does that is linked when it is loaded, as modules are.
fn is_object_file(head: &[u8]) -> bool {
    // Between the two are its class, its version and padding.
    head.starts_with(b"\x7fELF") && head.get(16..18) == Some(&[1, 0])
}

/// The first bytes of a file.
fn head_of(file: &Path, bytes: u64) -> io::Result<Vec<u8>> {
    // To open a pipe would wait for its writer.
    if !fs::metadata(file)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut head = Vec::new();
    File::open(file)?.take(bytes).read_to_end(&mut head)?;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Blame;
    use crate::artifact::bz_image::head_with;

    const RELEASE: &str = "6.12.1-mine";

    /// A directory with an image in it and, for each release, modules installed to `root`.
    fn built(releases: &[&str]) -> TempDir {
        let build = tempfile::tempdir().unwrap();
        let image = head_with(format!("{RELEASE} (me@here) #1\0").as_bytes());
        fs::write(build.path().join("bzImage"), image).unwrap();
        for release in releases {
            let modules = build.path().join("root/lib/modules").join(release);
            fs::create_dir_all(&modules).unwrap();
            fs::write(modules.join("igb.ko"), "igb").unwrap();
            fs::write(modules.join(DEPENDENCIES), "igb.ko:\n").unwrap();
        }
        build
    }

    /// Opens the image of a build, with the modules that are given by their place in it.
    fn open(build: &TempDir, modules: &str) -> Result<BroughtKernel> {
        let modules = build.path().join(modules);
        BroughtKernel::open(&build.path().join("bzImage"), Some(&modules))
    }

    fn is_refused<T: std::fmt::Debug>(result: Result<T>, parts: &[&str]) {
        let error = result.unwrap_err();
        assert_eq!(error.blame, Blame::Input);
        assert!(!error.what_to_do.is_empty(), "{error}");
        for part in parts {
            assert!(error.to_string().contains(part), "\"{part}\": {error}");
        }
    }

    #[test]
    fn modules_are_taken_from_a_root_or_from_the_directory_of_the_release() {
        let build = built(&[RELEASE]);
        for given in ["root", "root/lib/modules/6.12.1-mine"] {
            let kernel = open(&build, given).unwrap();
            assert_eq!(kernel.release, RELEASE);
            let laid_out = kernel.host_modules().unwrap().unwrap();
            assert!(laid_out.path().join("000-igb.ko").is_file());
        }
        let kernel = BroughtKernel::open(&build.path().join("bzImage"), None).unwrap();
        assert!(kernel.host_modules().unwrap().is_none());
    }

    #[test]
    fn one_of_several_releases_is_named() {
        let build = built(&[RELEASE, "6.12.1"]);
        let parts = ["6.12.1, 6.12.1-mine", "/root/lib/modules/RELEASE"];
        is_refused(open(&build, "root"), &parts);
        open(&build, "root/lib/modules/6.12.1-mine").unwrap();
    }

    #[test]
    fn modules_that_do_not_fit_are_refused() {
        let build = built(&["6.1"]);
        is_refused(open(&build, "nowhere"), &["nowhere", "no such directory"]);
        is_refused(open(&build, ""), &["modules.dep", "modules_install"]);
        let parts = ["/root: ", "the release 6.1,", "of 6.12.1-mine;"];
        is_refused(open(&build, "root"), &parts);
        let of_release = "root/lib/modules/6.1";
        is_refused(open(&build, of_release), &["the release 6.1,"]);
        fs::remove_file(build.path().join(of_release).join(DEPENDENCIES)).unwrap();
        for given in ["root", of_release] {
            is_refused(open(&build, given), &["modules.dep", "depmod -b"]);
        }
    }

    #[test]
    fn what_is_no_bz_image_is_refused() {
        let build = built(&[]);
        let at = |name: &str| BroughtKernel::open(&build.path().join(name), None);
        is_refused(at("vmlinuz"), &["/vmlinuz: No such file", "bzImage"]);
        is_refused(at(""), &["no regular file"]);
        fs::write(build.path().join("vmlinux"), "\x7fELF").unwrap();
        is_refused(at("vmlinux"), &["HdrS", "and not its vmlinux"]);
        fs::write(build.path().join("cut"), &head_with(b"6.12 \0")[..0x400]).unwrap();
        is_refused(at("cut"), &["names no release"]);
    }

    #[test]
    fn what_is_no_module_is_refused() {
        let build = built(&[]);
        let at = |name: &str| brought_module(&build.path().join(name));
        is_refused(at("a.ko"), &["/a.ko: No such file"]);
        let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x01\0".to_vec();
        fs::write(build.path().join("a.ko"), &elf).unwrap();
        assert!(at("a.ko").unwrap().is_absolute());
        for length in 0..elf.len() {
            assert!(!is_object_file(&elf[..length]), "{length} bytes");
        }
        // A program.
        elf[16] = 2;
        fs::write(build.path().join("a.ko"), &elf).unwrap();
        is_refused(at("a.ko"), &["object file", "not compressed"]);
    }
}
