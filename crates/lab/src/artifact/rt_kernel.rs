//! The lab's PREEMPT_RT kernels, built from Debian's source package.

use super::apt::installed_version;
use super::cache::{Cache, Inputs, sha256_of};
use super::output;
use super::source::{apply_patch, build_with, unpack};
use crate::error::{At, Error, Result};
use crate::progress::{Observer, task};
use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod inputs {
    include!(concat!(env!("OUT_DIR"), "/kernel_inputs.rs"));
}

const SOURCE_PACKAGE: &str = "linux-source-6.12";
/// The lines that a build prints; counted on 6.12.117. It only scales the progress bar.
const BUILD_LINES: u64 = 2300;
/// Changes when this file builds differently from the same inputs.
const RECIPE: &str = "1";

/// Which PREEMPT_RT kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// As the source package has it.
    Plain,
    /// With `kernel/patches/6.12`: levels of the receive path.
    Levels,
    /// `Levels` that checks itself: lockdep, KASAN and their kin.
    LevelsDebug,
}

impl Flavour {
    /// The name of its cache entry.
    fn entry(self) -> &'static str {
        match self {
            Self::Plain => "kernel-preempt-rt",
            Self::Levels => "kernel-rt-levels",
            Self::LevelsDebug => "kernel-rt-levels-debug",
        }
    }

    /// The options that it must have.
    fn configuration(self) -> Cow<'static, str> {
        match self {
            Self::Plain | Self::Levels => Cow::Borrowed(inputs::CONFIGURATION),
            Self::LevelsDebug => {
                Cow::Owned([inputs::CONFIGURATION, inputs::DEBUG_CONFIGURATION].concat())
            }
        }
    }

    /// Its patches, in the order they are applied: name and text.
    fn patches(self) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
        let own = match self {
            Self::Plain => &[],
            Self::Levels | Self::LevelsDebug => inputs::LEVELS_PATCHES,
        };
        inputs::LAB_PATCHES.iter().chain(own)
    }

    /// What is special about it.
    fn kind(self) -> &'static str {
        match self {
            Self::Plain => "PREEMPT_RT",
            Self::Levels => "PREEMPT_RT, levels",
            Self::LevelsDebug => "PREEMPT_RT, levels, lockdep, KASAN",
        }
    }

    /// What it is, for people.
    fn title(self) -> &'static str {
        match self {
            Self::Plain => "PREEMPT_RT kernel",
            Self::Levels => "PREEMPT_RT kernel with levels",
            Self::LevelsDebug => "PREEMPT_RT kernel with levels that checks itself",
        }
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
}

/// The version of the kernel source that this machine has.
pub fn source_version() -> Result<String> {
    installed_version(SOURCE_PACKAGE)
}

impl RtKernel {
    /// The kernel from the cache, built if need be: some ten minutes on two cores.
    pub fn obtain(cache: &Cache, flavour: Flavour, observer: &dyn Observer) -> Result<Self> {
        let version = source_version()?;
        let mut inputs = Inputs::default()
            .with("recipe", RECIPE)
            .with("source", format!("{SOURCE_PACKAGE} {version}"))
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
        let compiler_cache = cache.helper_directory("ccache");
        let entry = cache.entry(flavour.entry(), &inputs, observer, |directory| {
            let title = format!(
                "build the {} {version} (once, up to 10 minutes)",
                flavour.title()
            );
            task(observer, title, || {
                build(directory, flavour, &compiler_cache, observer)
            })
        })?;
        Ok(Self {
            image: entry.join("bzImage"),
            version,
            kind: flavour.kind(),
            key: inputs.key(),
            configuration_sha256: sha256_of(&entry.join("config"))?,
        })
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn build(
    directory: &Path,
    flavour: Flavour,
    compiler_cache: &Path,
    observer: &dyn Observer,
) -> Result<()> {
    let tree = directory.join("source");
    unpack(
        Path::new(&format!("/usr/src/{SOURCE_PACKAGE}.tar.xz")),
        &tree,
    )?;
    for (name, text) in flavour.patches() {
        apply_patch(&tree, name, text)?;
    }
    configure(&tree, &flavour.configuration(), directory)?;
    compile(&tree, compiler_cache, observer)?;
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
fn configure(tree: &Path, configuration: &str, directory: &Path) -> Result<()> {
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
        let why = format!("{SOURCE_PACKAGE} does not take: {}", missing.join(", "));
        return Err(Error::machine("configure the kernel", why).what_to_do("mend kernel/config"));
    }
    fs::copy(&outcome, directory.join("config")).at("copy", &outcome)?;
    fs::remove_file(&wanted).at("remove", &wanted)
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

fn compile(tree: &Path, compiler_cache: &Path, observer: &dyn Observer) -> Result<()> {
    let mut make = Command::new("make");
    make.args(["CC=ccache gcc", "bzImage"])
        .env("CCACHE_DIR", compiler_cache)
        .env("CCACHE_BASEDIR", tree)
        .env("CCACHE_NOHASHDIR", "1")
        .env("KBUILD_BUILD_TIMESTAMP", "steadyvm")
        .current_dir(tree);
    build_with(&make, BUILD_LINES, observer).map_err(|error| Error {
        what: "build the PREEMPT_RT kernel".to_owned(),
        ..error
    })
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
