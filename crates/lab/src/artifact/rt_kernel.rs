//! The kernels that we patch, built from Debian's source packages.

use super::apt::{Apt, installed_version};
use super::backports;
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
use steadyvm_methods::{Build, HostKernel};

mod inputs {
    include!(concat!(env!("OUT_DIR"), "/kernel_inputs.rs"));
}

/// Of the series that this machine's own release has.
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

/// The options that a kernel must have.
fn configuration(build: &Build) -> Result<String> {
    let layers: Result<Vec<&str>> = (build.options.iter())
        .map(|file| text_of(inputs::CONFIGURATIONS, file))
        .collect();
    Ok(layered(&layers?))
}

/// What a list of the build script's has by this name.
fn text_of<T: Copy>(all: &[(&str, T)], name: &str) -> Result<T> {
    let found = all.iter().find(|(known, _)| *known == name);
    let missing = || Error::lack("build a kernel", format!("kernel/ has no {name}"));
    found.map(|(_, text)| *text).ok_or_else(missing)
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
    /// The kernel from the cache, built if need be: some ten minutes on two cores. `None` if Debian has it built.
    pub fn obtain(
        cache: &Cache,
        kernel: HostKernel,
        observer: &dyn Observer,
    ) -> Result<Option<Self>> {
        let row = kernel.row();
        let Some(build) = &row.built else {
            return Ok(None);
        };
        if !row.is_backported {
            let package = Package::new(SOURCE_PACKAGE, source_version()?);
            let (package, apt) = (&package, None);
            return Self::built(cache, kernel, build, &Source { package, apt }, observer).map(Some);
        }
        let apt = &backports::apt(cache)?;
        let find = || apt.newest(&format!("linux-source-{}", row.series));
        apt.today(observer, find, |package| {
            let apt = Some(apt);
            Self::built(cache, kernel, build, &Source { package, apt }, observer)
        })
        .map(Some)
    }

    fn built(
        cache: &Cache,
        kernel: HostKernel,
        made: &Build,
        source: &Source<'_>,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let version = source.package.version.clone();
        let options = configuration(made)?;
        let patches = text_of(inputs::PATCHES, kernel.row().series)?;
        let mut inputs = Inputs::default()
            .with("recipe", RECIPE)
            .with("source", source.package.to_string())
            .with("configuration", &*options)
            .with(
                "compiler",
                first_line(&output(Command::new("gcc").arg("--version"))?),
            )
            .with(
                "pahole",
                first_line(&output(Command::new("pahole").arg("--version"))?),
            );
        for (name, text) in patches {
            inputs = inputs.with(&format!("patch {name}"), *text);
        }
        if made.has_headers {
            inputs = inputs.with("headers", HEADERS_RECIPE);
        }
        let compiler_cache = cache.helper_directory("ccache");
        let entry = format!("kernel-{kernel}");
        let entry = cache.entry(&entry, &inputs, observer, |directory| {
            let title = format!("build the kernel {kernel}, {version} (once, up to 10 minutes)");
            task(observer, title, || {
                let recipe = Recipe {
                    options: &options,
                    patches,
                    has_headers: made.has_headers,
                };
                build(directory, &recipe, source, &compiler_cache, observer)
            })
        })?;
        Ok(Self {
            image: entry.join("bzImage"),
            version,
            kind: made.kind,
            key: inputs.key(),
            configuration_sha256: sha256_of(&entry.join("config"))?,
            headers: made.has_headers.then(|| entry.join(HEADERS)),
        })
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// What a kernel is made of beside its source.
struct Recipe<'a> {
    options: &'a str,
    /// Name and text, in their order.
    patches: &'a [(&'a str, &'a str)],
    has_headers: bool,
}

fn build(
    directory: &Path,
    recipe: &Recipe<'_>,
    source: &Source<'_>,
    compiler_cache: &Path,
    observer: &dyn Observer,
) -> Result<()> {
    let tree = directory.join("source");
    source.unpack(directory, &tree)?;
    for (name, text) in recipe.patches {
        apply_patch(&tree, name, text)?;
    }
    configure(&tree, &source.package.name, recipe.options, directory)?;
    compile(&tree, "bzImage", compiler_cache, observer)?;
    if recipe.has_headers {
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
    fn every_kernel_is_configured_as_its_row_says() {
        for kernel in HostKernel::ALL {
            let row = kernel.row();
            let Some(build) = &row.built else { continue };
            text_of(inputs::PATCHES, row.series).unwrap();
            let configuration = configuration(build).unwrap();
            let mut lines = configuration.lines();
            let found = lines.find_map(|line| line.strip_prefix("CONFIG_PREEMPT_RT="));
            assert_eq!(found == Some("y"), row.is_preempt_rt, "{kernel}");
            assert_eq!(
                configuration.contains("CONFIG_KASAN=y"),
                row.checks_itself,
                "{kernel}"
            );
        }
    }

    #[test]
    fn the_lab_needs_real_time_and_kvm() {
        for option in [
            "CONFIG_PREEMPT_RT=y",
            "CONFIG_KVM_AMD=y",
            "CONFIG_SCHED_CLASS_EXT=y",
        ] {
            let options = text_of(inputs::CONFIGURATIONS, "config").unwrap();
            assert!(options.lines().any(|line| line == option), "{option}");
        }
    }
}
