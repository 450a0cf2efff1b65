//! What the lab boots and what it boots it in: kernels, user space, initramfs images, the emulator; built from
//! Debian's packages and kept in the machine's cache.

mod apt;
mod backports;
mod brought;
mod bz_image;
mod cache;
mod debian_version;
mod distribution_kernel;
mod emulator;
mod initramfs;
mod kernel_packages;
mod modules;
mod packages;
#[cfg(test)]
mod repository;
mod rt_kernel;
mod sockets_module;
mod source;
mod user_space;

pub use brought::{Brought, BroughtKernel, brought_module};
pub use cache::{Cache, Inputs, LOCATION_VARIABLE};
pub use distribution_kernel::DistributionKernel;
pub use emulator::emulator;
pub use initramfs::{Initramfs, PackedInitramfs};
pub use kernel_packages::KernelPackage;
pub use rt_kernel::{RtKernel, source_version};
pub use sockets_module::{KernelModule, sockets_module, sockets_module_for};
pub use user_space::{UserSpace, user_space_image};

use crate::{At, Error, Result};
use std::process::Command;

/// Advice for every error that a missing package causes.
const SET_UP: &str = "run `make setup`, which installs what the lab needs";

/// Runs a command to its end and gives its standard output.
fn output(command: &mut Command) -> Result<String> {
    let what = words(command);
    let done = command
        .output()
        .doing(what.clone())
        .map_err(|error| error.what_to_do(SET_UP))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(Error::machine(
        what,
        format!("{}: {}", done.status, said.trim()),
    ))
}

/// The command as one would type it.
fn words(command: &Command) -> String {
    let arguments = command
        .get_args()
        .map(|argument| argument.to_string_lossy().into_owned());
    let program = command.get_program().to_string_lossy().into_owned();
    std::iter::once(program)
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}
