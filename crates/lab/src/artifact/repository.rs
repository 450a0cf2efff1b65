//! A package archive of a test's own: real packages in a directory, which apt reads by a `file:` source.

use super::apt::Apt;
use super::output;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The archive, and the state of apt that looks at it.
pub struct Repository {
    place: TempDir,
}

impl Repository {
    pub fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("archive")).unwrap();
        Self { place }
    }

    fn archive(&self) -> PathBuf {
        self.place.path().join("archive")
    }

    /// Adds a package. `depends` is the field of that name.
    pub fn add(&self, name: &str, version: &str, depends: &str, files: &[(&str, &str)]) {
        let tree = tempfile::tempdir().unwrap();
        let control = tree.path().join("DEBIAN/control");
        let mut text = format!(
            "Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: nobody\n"
        );
        if !depends.is_empty() {
            writeln!(text, "Depends: {depends}").unwrap();
        }
        text += "Description: of a test\n";
        let control = (control, text.as_str());
        let files = files
            .iter()
            .map(|(path, text)| (tree.path().join(path), *text));
        for (path, text) in files.chain([control]) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let deb = self.archive().join(format!("{name}_{version}_amd64.deb"));
        let mut build = Command::new("dpkg-deb");
        build.args(["--root-owner-group", "--build"]);
        output(build.arg(tree.path()).arg(deb)).unwrap();
        self.publish();
    }

    /// Removes all versions of a package, as an archive does with what has a successor.
    pub fn remove(&self, name: &str) {
        for deb in self.debs() {
            let file = deb.file_name().unwrap().to_string_lossy().into_owned();
            if file.starts_with(&format!("{name}_")) {
                fs::remove_file(deb).unwrap();
            }
        }
        self.publish();
    }

    fn debs(&self) -> Vec<PathBuf> {
        super::packages::archives(&self.archive()).unwrap()
    }

    /// Writes the index.
    fn publish(&self) {
        let mut index = String::new();
        for deb in self.debs() {
            let file = fs::read(&deb).unwrap();
            let fields = output(Command::new("dpkg-deb").arg("-f").arg(&deb)).unwrap();
            let name = deb.file_name().unwrap().to_string_lossy().into_owned();
            let (bytes, sum) = (file.len(), sha256(&file));
            write!(index, "{}\nFilename: ./{name}\n", fields.trim()).unwrap();
            write!(index, "Size: {bytes}\nSHA256: {sum}\n\n").unwrap();
        }
        let (bytes, sum) = (index.len(), sha256(index.as_bytes()));
        let release = format!("Origin: a test\nSHA256:\n {sum} {bytes} Packages\n");
        fs::write(self.archive().join("Packages"), index).unwrap();
        fs::write(self.archive().join("Release"), release).unwrap();
    }

    /// Its packages as apt sees them.
    pub fn apt(&self) -> Apt {
        let source = format!("deb [trusted=yes] file:{} ./\n", self.archive().display());
        Apt::new(
            &self.place.path().join("apt"),
            "the test's archive",
            &source,
        )
        .unwrap()
    }

    /// Has apt look at the packages of this moment.
    pub fn fetch_indexes(&self) {
        super::source::run(self.apt().program("apt-get").args(["-q", "update"])).unwrap();
    }

    /// A file that makes apt's programs look at it, by whomever they are called.
    pub fn configuration(&self) -> PathBuf {
        let file = self.beside("apt.conf");
        let state = self.apt();
        let program = state.program("");
        let lines = program.get_args().map(|word| {
            let word = word.to_str().unwrap().strip_prefix("-o").unwrap();
            let (key, value) = word.split_once('=').unwrap();
            format!("{key} \"{value}\";\n")
        });
        fs::write(&file, lines.collect::<Vec<_>>().concat()).unwrap();
        file
    }

    /// A directory beside it.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }
}

fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// A kernel's packages, as Debian 12 has those of 6.1: its build tools are of any version from its own on.
pub fn add_kernel(archive: &Repository, abi: &str, version: &str) {
    add_image(archive, abi, version);
    add_headers(archive, abi, version);
}

/// Its image, which comes when it has been signed.
pub fn add_image(archive: &Repository, abi: &str, version: &str) {
    let release = format!("6.1.0-{abi}-amd64");
    let place = format!("lib/modules/{release}");
    archive.add(
        &format!("linux-image-{release}"),
        version,
        "kmod, linux-base (>= 4.3~), initramfs-tools | linux-initramfs-tool",
        &[
            (&format!("boot/vmlinuz-{release}"), version),
            (&format!("{place}/modules.order"), ""),
            (&format!("{place}/modules.builtin"), ""),
        ],
    );
}

/// Its headers, whose Makefile includes the shared one.
pub fn add_headers(archive: &Repository, abi: &str, version: &str) {
    let release = format!("6.1.0-{abi}-amd64");
    let common = format!("linux-headers-6.1.0-{abi}-common");
    let shared = "modules:\n\ttest -e ../../lib/linux-kbuild-6.1/version\n\
                  \tcd $(M) && gcc -c -o module.ko module.c\n";
    archive.add(
        &common,
        version,
        "",
        &[(&format!("usr/src/{common}/Makefile"), shared)],
    );
    archive.add(
        &format!("linux-headers-{release}"),
        version,
        &format!(
            "{common} (= {version}), linux-kbuild-6.1 (>= {version}), linux-compiler-gcc-12-x86"
        ),
        &[(
            &format!("usr/src/linux-headers-{release}/Makefile"),
            &format!("include /usr/src/{common}/Makefile\n"),
        )],
    );
}

/// The build tools, whose name the kernels of a series share: the archive has only those of the newest one.
pub fn add_kbuild(archive: &Repository, version: &str) {
    archive.remove("linux-kbuild-6.1");
    archive.add(
        "linux-kbuild-6.1",
        version,
        "libc6 (>= 2.34)",
        &[("usr/lib/linux-kbuild-6.1/version", version)],
    );
}

/// Whether there is a file below a directory.
pub fn has(place: &Path, name: &str) -> bool {
    super::packages::archives(place)
        .unwrap()
        .iter()
        .any(|file| {
            file.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with(name)
        })
}
