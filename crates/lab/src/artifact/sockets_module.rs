//! The guest's module for outsourced sockets (`kernel/modules/steadyvm_sockets`), built for the
//! distribution's kernel, or for one of ours that guests run.

use super::cache::{Cache, Inputs};
use super::distribution_kernel::DistributionKernel;
use super::packages::{archives, unpack};
use super::rt_kernel::RtKernel;
use super::{SET_UP, output};
use crate::progress::{Observer, task};
use crate::{At, Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod inputs {
    include!(concat!(env!("OUT_DIR"), "/module_inputs.rs"));
}

const MODULE: &str = "steadyvm_sockets.ko";
/// Changes when this file builds differently from the same inputs.
const RECIPE: &str = "1";

/// The module from the cache, built if need be against the headers of a kernel that has them.
pub fn sockets_module(
    cache: &Cache,
    kernel: &DistributionKernel,
    observer: &dyn Observer,
) -> Result<PathBuf> {
    SOCKETS_MODULE.obtain(cache, kernel, observer)
}

/// The same for a kernel of ours.
///
/// # Errors
/// It is of those that have no headers.
pub fn sockets_module_for(
    cache: &Cache,
    kernel: &RtKernel,
    observer: &dyn Observer,
) -> Result<PathBuf> {
    let archive = kernel.headers.as_deref().ok_or_else(|| {
        let why = format!("the kernel with {} has no headers", kernel.kind);
        Error::input("build the sockets module", why)
    })?;
    SOCKETS_MODULE.built(cache, &kernel.key, kernel.kind, observer, |tree| {
        fs::create_dir_all(tree).at("create", tree)?;
        let mut unpack = Command::new("tar");
        output(unpack.arg("-xf").arg(archive).arg("-C").arg(tree))?;
        Ok(tree.to_owned())
    })
}

const SOCKETS_MODULE: KernelModule<'_> = KernelModule {
    name: "sockets-module",
    file: MODULE,
    sources: inputs::MODULE_SOURCES,
};

/// A kernel module to be built.
#[derive(Debug)]
pub struct KernelModule<'a> {
    /// What the cache calls it.
    pub name: &'a str,
    /// The file that the build makes.
    pub file: &'a str,
    /// Names and texts of its sources, a Kbuild among them.
    pub sources: &'a [(&'a str, &'a str)],
}

impl KernelModule<'_> {
    /// The module from the cache, built if need be, as [`sockets_module`] says.
    pub fn obtain(
        &self,
        cache: &Cache,
        kernel: &DistributionKernel,
        observer: &dyn Observer,
    ) -> Result<PathBuf> {
        let DistributionKernel {
            release, version, ..
        } = kernel;
        let key = format!("{release} {version}");
        self.built(cache, &key, release, observer, |tree| {
            unpack_headers(tree, kernel)
        })
    }

    /// The module for `kernel`, named so in the key of its entry. `headers` gets the place to unpack to, and
    /// says where to build.
    fn built(
        &self,
        cache: &Cache,
        kernel: &str,
        title: &str,
        observer: &dyn Observer,
        headers: impl FnOnce(&Path) -> Result<PathBuf>,
    ) -> Result<PathBuf> {
        let compiler = output(Command::new("gcc").arg("--version"))?;
        let mut inputs = Inputs::default()
            .with("recipe", RECIPE)
            .with("kernel", kernel)
            .with("compiler", compiler.lines().next().unwrap_or_default());
        for (name, text) in self.sources {
            inputs = inputs.with(&format!("source {name}"), *text);
        }
        let entry = cache.entry(self.name, &inputs, observer, |directory| {
            let name = self.name.replace('-', " ");
            task(
                observer,
                format!("build the {name} for {title} (once)"),
                || {
                    let tree = directory.join("packages");
                    let headers = headers(&tree)?;
                    build(directory, self, &headers)?;
                    fs::remove_dir_all(&tree).at("remove", &tree)
                },
            )
        })?;
        Ok(entry.join(self.file))
    }
}

fn build(directory: &Path, module: &KernelModule<'_>, headers: &Path) -> Result<()> {
    let sources = directory.join("module");
    fs::create_dir_all(&sources).at("create", &sources)?;
    for (name, text) in module.sources {
        let path = sources.join(name);
        fs::write(&path, text).at("write", &path)?;
    }
    let mut make = Command::new("make");
    make.arg("-C").arg(headers);
    make.arg(format!("M={}", sources.display())).arg("modules");
    output(&mut make).map_err(|error| error.what_to_do(SET_UP))?;
    output(
        Command::new("strip")
            .args(["--strip-debug", "-o"])
            .arg(directory.join(module.file))
            .arg(sources.join(module.file)),
    )?;
    fs::remove_dir_all(&sources).at("remove", &sources)
}

/// Unpacks the packages of a kernel's headers, which need not be installed: the directory to build in.
fn unpack_headers(tree: &Path, kernel: &DistributionKernel) -> Result<PathBuf> {
    unpack(&archives(&kernel.headers)?, tree)?;
    let headers = tree.join(format!("usr/src/linux-headers-{}", kernel.release));
    // It includes the shared one where packages install it.
    let makefile = headers.join("Makefile");
    let text = fs::read_to_string(&makefile).at("read", &makefile)?;
    let sources = format!("{}/usr/src/", tree.display());
    fs::write(&makefile, text.replace("/usr/src/", &sources)).at("write", &makefile)?;
    Ok(headers)
}
