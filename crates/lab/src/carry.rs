//! A guest inside the emulated host, as one process there.
//!
//! `steadyvm-lab carry` starts the guest's monitor and carries the guest's control channel on its
//! own standard input and output. So the caller, outside, reaches the guest's agent through
//! the host's agent without a word more in the protocol, and the guest's life is the process's.

use crate::child::Child;
use crate::emulator::{FIRST_HANDED, Machine, Monitor, RUN_DIRECTORY};
use crate::{At, Result};
use crate::{monitor, qemu, qmp, socket_server};
use nix::sys::signal::{SigSet, Signal};
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

/// The file that holds the process id of a guest's monitor.
pub fn pid_file(name: &str) -> String {
    format!("{RUN_DIRECTORY}/{name}.pid")
}

/// Asks the process that carries a guest to write [`state_file`].
pub(crate) const QUESTION: Signal = Signal::SIGUSR1;

/// The file that has what QEMU says of a guest's processors.
fn state_file(name: &str) -> String {
    format!("{RUN_DIRECTORY}/{name}.processors")
}

/// Runs a guest until it powers off or standard input ends. What goes wrong is in the guest's
/// log too, where the caller outside can read it.
pub fn carry(machine: &Machine) -> Result<()> {
    std::fs::create_dir_all(RUN_DIRECTORY).at("create", RUN_DIRECTORY)?;
    let log = format!("{RUN_DIRECTORY}/{}.log", machine.name);
    run(machine, Path::new(&log)).inspect_err(|error| {
        let _ = std::fs::write(&log, error.to_string());
    })
}

fn run(machine: &Machine, log: &Path) -> Result<()> {
    // Before any thread begins: all of them leave the question to the one that waits for it.
    let mut question = SigSet::empty();
    question.add(QUESTION);
    question.thread_block().doing("block a signal")?;
    match &machine.monitor {
        Monitor::Qemu => {
            let sockets = machine.sockets.as_ref();
            let of_sockets = log.with_extension("sockets.log");
            let serve = |sockets| socket_server::start(machine, sockets, &of_sockets);
            // It ends with the guest.
            let _server = sockets.map(serve).transpose()?;
            let mut qemu = qemu::start(
                Path::new(qemu::PROGRAM),
                &machine.guest_arguments(),
                None,
                log,
                macvtaps(machine)?,
            )?;
            qemu.monitor.resume()?;
            let state = state_file(&machine.name);
            let monitor = qemu.monitor;
            thread::spawn(move || tell_state(monitor, question, &state));
            carry_channel(machine, &qemu.process, &qemu.channel)
        }
        Monitor::Steadyvm => {
            let monitor = monitor::start(machine, log)?;
            carry_channel(machine, &monitor.process, &monitor.channel)
        }
    }
}

/// At each question, writes into a file what QEMU says of the guest's processors: why one that does not answer stands still.
fn tell_state(mut monitor: qmp::Monitor, question: SigSet, path: &str) {
    while question.wait().is_ok() {
        let told: String = ["info status", "info registers -a", "info lapic"]
            .iter()
            .map(|command| match monitor.ask_for_people(command) {
                Ok(answer) => format!("{command}\n{answer}\n"),
                Err(error) => format!("{command}\n{error}\n"),
            })
            .collect();
        let _ = std::fs::write(path, told);
    }
}

/// Opens the macvtaps of a guest, each for the number by which its monitor's command line has it.
fn macvtaps(machine: &Machine) -> Result<Vec<(i32, OwnedFd)>> {
    let cards = (FIRST_HANDED..).zip(&machine.cards);
    let macvtaps = cards.filter(|(_, card)| card.macvtap);
    macvtaps
        .map(|(number, card)| Ok((number, open_macvtap(&card.tap)?)))
        .collect()
}

fn open_macvtap(name: &str) -> Result<OwnedFd> {
    let path = format!("/sys/class/net/{name}/ifindex");
    let index = std::fs::read_to_string(&path).at("read", &path)?;
    let path = format!("/dev/tap{}", index.trim());
    let device = OpenOptions::new().read(true).write(true).open(&path);
    Ok(device.at("open", &path)?.into())
}

fn carry_channel(machine: &Machine, monitor: &Child, channel: &UnixStream) -> Result<()> {
    let pid_file = pid_file(&machine.name);
    std::fs::write(&pid_file, monitor.pid().to_string()).at("write", &pid_file)?;
    let to_guest = channel.try_clone().doing("carry the control channel")?;
    thread::spawn(move || {
        let _ = copy(io::stdin().lock(), &to_guest);
        let _ = to_guest.shutdown(Shutdown::Both);
    });
    let _ = copy(channel, &Output);
    Ok(())
}

/// Copies until either side ends, a piece at a time: every frame must leave at once.
fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                to.write_all(&buffer[..count])?;
                to.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Standard output without the line buffer.
struct Output;

impl Write for &Output {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok(nix::unistd::write(io::stdout(), data)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn bytes_are_carried_unchanged_and_end_with_the_source() {
        let (here, there) = UnixStream::pair().unwrap();
        let sent: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
        let expected = sent.clone();
        let writer = thread::spawn(move || copy(sent.as_slice(), &here).map(|()| drop(here)));
        let mut received = Vec::new();
        copy(&there, &mut received).unwrap();
        writer.join().unwrap().unwrap();
        assert_eq!(received, expected);
    }
}
