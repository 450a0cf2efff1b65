//! Thousands of UDP sockets that all send: in a guest with outsourced sockets each is one of the host's.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::AttackError;
use super::frames::has_no_room;
use super::pace::{Attacked, Pace, Tried};

/// Descriptors that the process has for other things.
const OTHERS: u64 = 64;

/// Opens so many sockets, or as many as it is given, one per attempt, and sends a byte from it; then from each in turn.
///
/// # Errors
/// Not even one is opened; a route that is not there.
pub fn sockets(to: SocketAddrV4, count: u32, pace: &Pace) -> Result<Attacked, AttackError> {
    allow(u64::from(count) + OTHERS).map_err(io::Error::from)?;
    let mut sockets: Vec<UdpSocket> = Vec::new();
    let mut most = count.max(1) as usize;
    let mut done = pace.run(|number| {
        if sockets.len() < most {
            match open(to) {
                Ok(socket) => sockets.push(socket),
                Err(error) if is_bounded(&error) && !sockets.is_empty() => most = sockets.len(),
                Err(error) => return Err(error),
            }
        }
        let socket = if sockets.len() < most {
            sockets.last()
        } else {
            sockets.get(number as usize % sockets.len())
        };
        let Some(socket) = socket else {
            return Ok(Tried::Refused);
        };
        match socket.send(&[0]) {
            Ok(_) => Ok(Tried::Sent),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(Tried::Refused),
            Err(error) if has_no_room(&error) => Ok(Tried::Refused),
            Err(error) => Err(error),
        }
    })?;
    done.sockets = Some(sockets.len() as u64);
    Ok(done)
}

fn open(to: SocketAddrV4) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(to)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The process, the machine or the ports have no room for more.
fn is_bounded(error: &io::Error) -> bool {
    use nix::libc::{EADDRINUSE, EMFILE, ENFILE, ENOBUFS, ENOMEM};
    let code = error.raw_os_error();
    code.is_some_and(|code| [EADDRINUSE, EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(&code))
}

/// Lets this process have so many descriptors, as far as it may.
fn allow(descriptors: u64) -> Result<(), Errno> {
    let of = Resource::RLIMIT_NOFILE;
    let (now, most) = getrlimit(of)?;
    if now >= descriptors {
        return Ok(());
    }
    setrlimit(of, descriptors, most.max(descriptors))
        .or_else(|_| setrlimit(of, descriptors.min(most), most))
}
