//! `steadyvm sockets serve` for a guest of QEMU.

use crate::child::{self, Child};
use crate::emulator::{Machine, Sockets, door_of_sockets};
use crate::init::HOST_PROGRAM;
use crate::{At, Error, Result};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

/// Starts a guest's server, and waits until its QEMU may start. Dropping the process ends it. What it says goes to the file `log`.
///
/// # Errors
/// It ends at once: the error carries its own words.
pub fn start(machine: &Machine, sockets: &Sockets, log: &Path) -> Result<Child> {
    let mut command = Command::new(HOST_PROGRAM);
    command
        .args([
            "sockets",
            "serve",
            "--socket",
            &door_of_sockets(&machine.name),
        ])
        .args(["--namespace", &sockets.namespace])
        .args(["--channels", &machine.cpus.to_string()])
        .args(["--name", &machine.name])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut server = child::spawn(command)?;
    let Some(said) = server.streams().stderr.take() else {
        return Err(Error::machine(
            "start a guest's sockets",
            "it has no output",
        ));
    };
    let mut said = BufReader::new(said);
    let mut lines = String::new();
    while !lines.contains("is waited for") {
        if said
            .read_line(&mut lines)
            .doing("read what a guest's sockets say")?
            == 0
        {
            return Err(Error::machine("start a guest's sockets", lines.trim()));
        }
    }
    let mut log = File::create(log).at("create", log)?;
    thread::spawn(move || {
        let _ = io::copy(&mut said, &mut log);
    });
    Ok(server)
}
