//! A guest under `steadyvm up`, with its control channel as QEMU's guests have it.

use crate::agent::PORT;
use crate::child::{self, Child};
use crate::emulator::{Card, Machine, RUN_DIRECTORY, SCRATCH, Sockets};
use crate::init::HOST_PROGRAM;
use crate::{At, Error, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fmt::Write;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

/// A `steadyvm up` whose guest boots.
pub struct Monitor {
    /// The process; dropping it ends the guest.
    pub process: Child,
    /// The guest's control channel.
    pub channel: UnixStream,
}

/// Starts the guest. What its monitor says goes to the file `log`.
///
/// # Errors
/// The monitor ends at once: the error carries its own words.
pub fn start(machine: &Machine, log: &Path) -> Result<Monitor> {
    let place = |kind: &str| format!("{RUN_DIRECTORY}/{}.{kind}", machine.name);
    let (description, socket) = (place("toml"), place("socket"));
    let text = self::description(machine, &socket);
    std::fs::write(&description, text).at("write", &description)?;
    // One is left where the guest is started again.
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).at("listen on", &socket)?;
    let mut command = Command::new(HOST_PROGRAM);
    command
        .args(["up", &description])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(log).at("create", log)?);
    let mut process = child::spawn(command)?;
    let connected = connection(&listener, &mut process).doing("wait for a guest's monitor")?;
    if let Some(channel) = connected {
        return Ok(Monitor { process, channel });
    }
    process.wait()?;
    let said = std::fs::read_to_string(log).unwrap_or_default();
    Err(Error::machine("start steadyvm up", said.trim()))
}

/// The monitor's connection; none if it ends before: its standard output, on which it says nothing,
/// then ends too.
fn connection(listener: &UnixListener, process: &mut Child) -> io::Result<Option<UnixStream>> {
    let Some(output) = &process.streams().stdout else {
        return Ok(None);
    };
    loop {
        let mut fds =
            [listener.as_fd(), output.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => {}
            Err(nix::Error::EINTR) => continue,
            Err(error) => return Err(error.into()),
        }
        if fds[0].any().unwrap_or(false) {
            return listener.accept().map(|(channel, _)| Some(channel));
        }
        return Ok(None);
    }
}

/// The guest in the words of `steadyvm up`. Its VCPUs have no priorities here: a method's are put in
/// force, and taken back, by `steadyvm apply --method` and `undo` alone.
fn description(machine: &Machine, socket: &str) -> String {
    let kernel_words = format!("{} pci=off", machine.command_line());
    let mut text = format!(
        "name = \"{}\"\n\
         kernel = \"{}\"\n\
         initramfs = \"{}\"\n\
         cmdline = \"{kernel_words}\"\n\
         memory_mib = {}\n\
         vcpus = {}\n\
         console = \"{}\"\n\
         [[disk]]\n\
         path = \"{}\"\n\
         read_only = true\n\
         [channel]\n\
         socket = \"{socket}\"\n\
         name = \"{PORT}\"\n",
        machine.name,
        machine.kernel,
        machine.initramfs,
        machine.memory_mib,
        machine.cpus,
        machine.console,
        machine.image,
    );
    // Writing to a string cannot fail.
    if machine.scratch {
        let _ = write!(text, "[[disk]]\npath = \"{SCRATCH}\"\n");
    }
    for Card { tap, mac, .. } in &machine.cards {
        let _ = write!(text, "[[net]]\ntap = \"{tap}\"\nmac = \"{mac}\"\n");
    }
    if let Some(Sockets { namespace, poll_us }) = &machine.sockets {
        let _ = write!(
            text,
            "[sockets]\nnamespace = \"{namespace}\"\npoll_us = {poll_us}\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laboratory::guest;

    #[test]
    fn a_guest_has_cards_or_outsourced_sockets() {
        let with_card = guest("rt", 1, 2);
        let text = description(&with_card, "/run/rt.socket");
        for part in [
            "vcpus = 2\n",
            "tap = \"tap-rt\"\n",
            "socket = \"/run/rt.socket\"\n",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("[sockets]") && !text.contains("rt_vcpus"));
        let with_sockets = Machine {
            cards: Vec::new(),
            sockets: Some(Sockets {
                namespace: "vm-rt".to_owned(),
                poll_us: 50,
            }),
            ..with_card
        };
        let text = description(&with_sockets, "/run/rt.socket");
        let end = "[sockets]\nnamespace = \"vm-rt\"\npoll_us = 50\n";
        assert!(text.ends_with(end) && !text.contains("[[net]]"), "{text}");
    }
}
