//! A running QEMU: the process, the control channel of the machine in it, its monitor.

use crate::child::{self, Child};
use crate::emulator::channel_arguments;
use crate::namespace::Namespace;
use crate::qmp::Monitor;
use crate::{At, Error, Result};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The name of the emulator's program; where it has no directory, as the distribution installs it.
pub const PROGRAM: &str = "qemu-system-x86_64";

/// A QEMU that has set its devices up and waits for [`Monitor::resume`].
pub struct Qemu {
    /// The process; dropping it ends the machine.
    pub process: Child,
    /// The machine's control channel.
    pub channel: UnixStream,
    /// QEMU's own.
    pub monitor: Monitor,
}

/// Starts a QEMU with the given arguments, for an emulated host inside a network namespace and in a
/// session of its own. What it prints goes to the file `log`. It gets the open devices `handed` by the numbers beside them.
///
/// # Errors
/// QEMU is missing, or it ends at once: the error carries its own words.
pub fn start(
    program: &Path,
    arguments: &[String],
    inside: Option<&Namespace>,
    log: &Path,
    handed: Vec<(i32, OwnedFd)>,
) -> Result<Qemu> {
    let (channel, machine_side) = UnixStream::pair().doing("make the control channel")?;
    let (monitor, monitor_side) = UnixStream::pair().doing("make QEMU's monitor channel")?;
    let log_file = File::create(log).at("create", log)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .args(channel_arguments(
            machine_side.as_raw_fd(),
            monitor_side.as_raw_fd(),
        ))
        .stdin(std::process::Stdio::null())
        .stdout(log_file.try_clone().at("write", log)?)
        .stderr(log_file);
    pass_on(&mut command, machine_side.into());
    pass_on(&mut command, monitor_side.into());
    for (number, device) in handed {
        pass_as(&mut command, number, device);
    }
    let spawned = match inside {
        Some(namespace) => {
            namespace.hold(&mut command)?;
            child::spawn_in_own_session(command)
        }
        None => child::spawn(command),
    };
    let process =
        spawned.map_err(|error| error.what_to_do("install QEMU 8 or newer; make setup does"))?;
    match Monitor::establish(monitor) {
        Ok(monitor) => Ok(Qemu {
            process,
            channel,
            monitor,
        }),
        Err(error) => {
            drop(process);
            let mut said = String::new();
            let _ = File::open(log).and_then(|mut file| file.read_to_string(&mut said));
            let why = if said.trim().is_empty() {
                error.why
            } else {
                said.trim().to_owned()
            };
            Err(Error::machine(format!("start {}", program.display()), why))
        }
    }
}

/// Lets the child inherit a descriptor, under the number it has here.
fn pass_on(command: &mut Command, descriptor: OwnedFd) {
    // SAFETY: fcntl is async-signal-safe; the closure owns the descriptor, so that it is open
    // when the child runs it.
    unsafe {
        command.pre_exec(move || {
            fcntl(&descriptor, FcntlArg::F_SETFD(FdFlag::empty()))?;
            Ok(())
        });
    }
}

/// Lets the child inherit a descriptor under a number of one's choice.
fn pass_as(command: &mut Command, number: i32, descriptor: OwnedFd) {
    // SAFETY: dup2 is async-signal-safe; the closure owns the descriptor, so that it is open when the child runs it. Nothing of
    // the child's has the number yet: it is higher than those it has.
    unsafe {
        command.pre_exec(move || match libc::dup2(descriptor.as_raw_fd(), number) {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
}
