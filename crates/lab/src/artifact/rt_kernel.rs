//! The kernels that we patch, built from Debian's source packages.

use super::apt::{Apt, installed_version};
use super::backports::{self, SERIES};
use super::cache::{Cache, Inputs, sha256_of};
use super::output;
use super::packages::{self, Package};
use super::source::{apply_patch, build_with, unpack};
use crate::progress::{Observer, task};
use crate::{At, Error, Result};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::slice;

mod inputs {
    include!(concat!(env!("OUT_DIR"), "/kernel_inputs.rs"));
}

const SOURCE_PACKAGE: &str = "linux-source-6.12";
/// Where packages have sources.
const PLACE_OF_SOURCES: &str = "usr/src";
/// The lines that a build prints; counted on 6.12.117. It only scales the progress bar.
const BUILD_LINES: u64 = 2300;
/// Changes when this file builds differently from the same inputs.
const RECIPE: &str = "1";

/// Changes when the headers of the kernels that have them are made differently.
const HEADERS_RECIPE: &str = "1";
const HEADERS: &str = "headers.tar";

/// Which kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// With `kernel/patches/6.12`: levels of the receive path.
    Levels,
    /// `Levels` that checks itself: lockdep, KASAN and their kin.
    LevelsDebug,
    /// The same without PREEMPT_RT, for guests too; it has headers for modules.
    PreemptDebug,
    /// Of the newest series, with `kernel/patches/7.3`.
    Newest,
}

impl Flavour {
    /// The name of its cache entry.
    fn entry(self) -> &'static str {
        match self {
            Self::Levels => "kernel-rt-levels",
            Self::LevelsDebug => "kernel-rt-levels-debug",
            Self::PreemptDebug => "kernel-levels-debug",
            Self::Newest => "kernel-newest-rt-patched",
        }
    }

    /// The options that it must have.
    fn configuration(self) -> String {
        let layers: &[&str] = match self {
            Self::Levels => &[inputs::CONFIGURATION],
            Self::LevelsDebug => &[inputs::CONFIGURATION, inputs::DEBUG_CONFIGURATION],
            Self::PreemptDebug => &[
                inputs::CONFIGURATION,
                inputs::DEBUG_CONFIGURATION,
                inputs::PREEMPT_CONFIGURATION,
            ],
            Self::Newest => &[inputs::CONFIGURATION, inputs::NEWEST_CONFIGURATION],
        };
        layered(layers)
    }

    /// Whether modules can be built for it.
    fn has_headers(self) -> bool {
        self == Self::PreemptDebug
    }

    /// Its patches, in the order they are applied: name and text.
    fn patches(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Levels | Self::LevelsDebug | Self::PreemptDebug => inputs::LEVELS_PATCHES,
            Self::Newest => inputs::NEWEST_PATCHES,
        }
    }

    /// What is special about it.
    fn kind(self) -> &'static str {
        match self {
            Self::Levels => "PREEMPT_RT, levels",
            Self::LevelsDebug => "PREEMPT_RT, levels, lockdep, KASAN",
            Self::PreemptDebug => "PREEMPT, levels, lockdep, KASAN",
            Self::Newest => "PREEMPT_RT, patched",
        }
    }

    /// What it is, for people.
    fn title(self) -> &'static str {
        match self {
            Self::Levels => "PREEMPT_RT kernel with levels",
            Self::LevelsDebug => "PREEMPT_RT kernel with levels that checks itself",
            Self::PreemptDebug => "kernel with levels, without PREEMPT_RT, that checks itself",
            Self::Newest => "patched PREEMPT_RT kernel",
        }
    }
}

/// A package with a kernel's source.
struct Source<'a> {
    package: &'a Package,
    /// Where it is downloaded from; `None`: it is installed.
    apt: Option<&'a Apt>,
}

impl Source<'_> {
    /// Unpacks it into `tree`.
    fn unpack(&self, directory: &Path, tree: &Path) -> Result<()> {
        let archive = Path::new(PLACE_OF_SOURCES).join(format!("{}.tar.xz", self.package.name));
        let Some(apt) = self.apt else {
            return unpack(&Path::new("/").join(archive), tree);
        };
        let (downloaded, unpacked) = (directory.join("downloaded"), directory.join("package"));
        let files = apt.download(slice::from_ref(self.package), &downloaded)?;
        packages::unpack(&files, &unpacked)?;
        unpack(&unpacked.join(archive), tree)?;
        for used in [&downloaded, &unpacked] {
            fs::remove_dir_all(used).at("remove", used)?;
        }
        Ok(())
    }
}

/// A built kernel.
#[derive(Debug, Clone)]
pub struct RtKernel {
    /// The kernel image.
    pub image: PathBuf,
    /// The version of the source package.
    pub version: String,
    /// What is special about it: "PREEMPT_RT, levels".
    pub kind: &'static str,
    /// SHA-256 key of all that it was built from.
    pub key: String,
    /// SHA-256 of the configuration that it was built with.
    pub configuration_sha256: String,
    /// An archive of what its modules are built against, if it has one.
    pub headers: Option<PathBuf>,
}

/// The version of the kernel source that this machine has.
pub fn source_version() -> Result<String> {
    installed_version(SOURCE_PACKAGE)
}

impl RtKernel {
    /// The kernel from the cache, built if need be: some ten minutes on two cores.
    pub fn obtain(cache: &Cache, flavour: Flavour, observer: &dyn Observer) -> Result<Self> {
        if flavour != Flavour::Newest {
            let package = Package::new(SOURCE_PACKAGE, source_version()?);
            let (package, apt) = (&package, None);
            return Self::built(cache, flavour, &Source { package, apt }, observer);
        }
        let apt = &backports::apt(cache)?;
        let find = || apt.newest(&format!("linux-source-{SERIES}"));
        apt.today(observer, find, |package| {
            let apt = Some(apt);
            Self::built(cache, flavour, &Source { package, apt }, observer)
        })
    }

    fn built(
        cache: &Cache,
        flavour: Flavour,
        source: &Source<'_>,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let version = source.package.version.clone();
        let mut inputs = Inputs::default()
            .with("recipe", RECIPE)
            .with("source", source.package.to_string())
            .with("configuration", flavour.configuration())
            .with(
                "compiler",
                first_line(&output(Command::new("gcc").arg("--version"))?),
            )
            .with(
                "pahole",
                first_line(&output(Command::new("pahole").arg("--version"))?),
            );
        for (name, text) in flavour.patches() {
            inputs = inputs.with(&format!("patch {name}"), *text);
        }
        if flavour.has_headers() {
            inputs = inputs.with("headers", HEADERS_RECIPE);
        }
        let compiler_cache = cache.helper_directory("ccache");
        let entry = cache.entry(flavour.entry(), &inputs, observer, |directory| {
            let title = format!(
                "build the {} {version} (once, up to 10 minutes)",
                flavour.title()
            );
            task(observer, title, || {
                build(directory, flavour, source, &compiler_cache, observer)
            })
        })?;
        Ok(Self {
            image: entry.join("bzImage"),
            version,
            kind: flavour.kind(),
            key: inputs.key(),
            configuration_sha256: sha256_of(&entry.join("config"))?,
            headers: flavour.has_headers().then(|| entry.join(HEADERS)),
        })
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn build(
    directory: &Path,
    flavour: Flavour,
    source: &Source<'_>,
    compiler_cache: &Path,
    observer: &dyn Observer,
) -> Result<()> {
    let tree = directory.join("source");
    source.unpack(directory, &tree)?;
    for (name, text) in flavour.patches() {
        apply_patch(&tree, name, text)?;
    }
    configure(
        &tree,
        &source.package.name,
        &flavour.configuration(),
        directory,
    )?;
    compile(&tree, "bzImage", compiler_cache, observer)?;
    if flavour.has_headers() {
        // There are none, but then it is written down which symbols it exports.
        compile(&tree, "modules", compiler_cache, observer)?;
        pack_headers(&tree, directory)?;
    }
    for (from, to) in [
        ("arch/x86/boot/bzImage", "bzImage"),
        ("System.map", "System.map"),
    ] {
        let source = tree.join(from);
        fs::copy(&source, directory.join(to)).at("copy", &source)?;
    }
    fs::remove_dir_all(&tree).at("remove", &tree)
}

/// Makes the smallest configuration that has the wanted options, and checks that it has them.
fn configure(tree: &Path, package: &str, configuration: &str, directory: &Path) -> Result<()> {
    let wanted = directory.join("wanted");
    fs::write(&wanted, configuration).at("write", &wanted)?;
    let mut make = Command::new("make");
    make.args(["-s", "allnoconfig"])
        .env("KCONFIG_ALLCONFIG", &wanted)
        .current_dir(tree);
    output(&mut make)?;
    let outcome = tree.join(".config");
    let text = fs::read_to_string(&outcome).at("read", &outcome)?;
    let missing = missing_options(configuration, &text);
    if !missing.is_empty() {
        let why = format!("{package} does not take: {}", missing.join(", "));
        return Err(Error::machine("configure the kernel", why).what_to_do("mend kernel/config"));
    }
    fs::copy(&outcome, directory.join("config")).at("copy", &outcome)?;
    fs::remove_file(&wanted).at("remove", &wanted)
}

/// The lines of all layers, without those whose option a later layer sets again.
fn layered(layers: &[&str]) -> String {
    let option = |line: &str| {
        line.split_once('=')
            .filter(|(name, _)| name.starts_with("CONFIG_"))
            .map(|(name, _)| name.to_owned())
    };
    let mut text = String::new();
    for (index, layer) in layers.iter().enumerate() {
        let later: HashSet<String> = layers[index + 1..]
            .iter()
            .flat_map(|layer| layer.lines().filter_map(option))
            .collect();
        let kept = |line: &&str| option(line).is_none_or(|name| !later.contains(&name));
        text.extend(layer.split_inclusive('\n').filter(kept));
    }
    text
}

/// The wanted lines that the made configuration does not have. "X=n" wants X not set.
fn missing_options<'w>(wanted: &'w str, made: &str) -> Vec<&'w str> {
    let holds = |line: &str| match line.strip_suffix("=n") {
        Some(name) => !made
            .lines()
            .any(|made| made.split('=').next() == Some(name)),
        None => made.lines().any(|made| made == line),
    };
    let options = wanted
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    options.filter(|line| !holds(line)).collect()
}

fn compile(
    tree: &Path,
    target: &str,
    compiler_cache: &Path,
    observer: &dyn Observer,
) -> Result<()> {
    let mut make = Command::new("make");
    make.args(["CC=ccache gcc", target])
        .env("CCACHE_DIR", compiler_cache)
        .env("CCACHE_BASEDIR", tree)
        .env("CCACHE_NOHASHDIR", "1")
        .env("KBUILD_BUILD_TIMESTAMP", "steadyvm")
        .current_dir(tree);
    build_with(&make, BUILD_LINES, observer).map_err(|error| Error {
        what: "build the patched kernel".to_owned(),
        ..error
    })
}

/// Packs what modules are built against, as the kernel's own package builders choose it.
fn pack_headers(tree: &Path, directory: &Path) -> Result<()> {
    let headers = directory.join("headers");
    let mut install = Command::new("make");
    install
        .args(["-s", "run-command"])
        .arg(format!(
            "KBUILD_RUN_COMMAND=$(srctree)/scripts/package/install-extmod-build {}",
            headers.display()
        ))
        .current_dir(tree);
    output(&mut install)?;
    let mut pack = Command::new("tar");
    pack.arg("-cf").arg(directory.join(HEADERS));
    output(pack.arg("-C").arg(&headers).arg("."))?;
    fs::remove_dir_all(&headers).at("remove", &headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_option_is_found() {
        let wanted = "# a comment\n\nCONFIG_A=y\nCONFIG_B=n\nCONFIG_C=\"x\"\n";
        assert!(
            missing_options(
                wanted,
                "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=\"x\"\n"
            )
            .is_empty()
        );
        assert_eq!(
            missing_options(wanted, "CONFIG_B=y\nCONFIG_C=\"y\"\n"),
            ["CONFIG_A=y", "CONFIG_B=n", "CONFIG_C=\"x\""]
        );
    }

    #[test]
    fn a_later_layer_takes_the_place_of_options() {
        let layers = [
            "# one\nCONFIG_A=y\nCONFIG_B=y\n",
            "CONFIG_C=y\nCONFIG_A=n\n",
        ];
        assert_eq!(layered(&layers[..1]), layers[0]);
        let both = "# one\nCONFIG_B=y\nCONFIG_C=y\nCONFIG_A=n\n";
        assert_eq!(layered(&layers), both);
    }

    #[test]
    fn only_the_kernel_for_guests_has_no_real_time() {
        for (flavour, line) in [
            (Flavour::LevelsDebug, "CONFIG_PREEMPT_RT=y"),
            (Flavour::PreemptDebug, "CONFIG_PREEMPT_RT=n"),
        ] {
            let configuration = flavour.configuration();
            let mut lines = configuration.lines();
            let found = lines.find(|line| line.starts_with("CONFIG_PREEMPT_RT="));
            assert_eq!(found, Some(line));
        }
    }

    #[test]
    fn the_lab_needs_real_time_and_kvm() {
        for option in [
            "CONFIG_PREEMPT_RT=y",
            "CONFIG_KVM_AMD=y",
            "CONFIG_SCHED_CLASS_EXT=y",
        ] {
            assert!(
                inputs::CONFIGURATION.lines().any(|line| line == option),
                "{option}"
            );
        }
    }
}
