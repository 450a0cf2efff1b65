//! Attacks by frames: who sends them, and which.

use std::io;
use std::time::Duration;

use super::ends::{Aim, Ends};
use super::pace::{Attacked, Pace, Tried};
use super::{
    AttackError, LEAST_BYTES, MOST_BYTES, arp, broadcast, doorbells, fragments, icmp, multicast,
    tcp_connect, transmit, udp_small,
};
use crate::layer2::PacketSocket;

/// A frame waits so long for room at most: an interface that has stopped keeps nobody past the attack's end.
const ROOM_WITHIN: Duration = Duration::from_millis(20);

/// What frames are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frames {
    /// UDP packets in the shortest frames.
    UdpSmall,
    /// The same to a group.
    Multicast,
    /// The same to everybody.
    Broadcast,
    /// First fragments of IPv4 packets that never become whole.
    Fragments,
    /// First segments (SYN) of TCP connections that are never finished.
    TcpConnect,
    /// ARP requests, each by another sender.
    Arp,
    /// ICMP echo requests.
    Icmp,
    /// The longest frames.
    Transmit,
    /// Tiny frames to nobody.
    Doorbells,
}

/// Writes the frame of a number.
type Write = fn(&Ends, u64, &mut Vec<u8>) -> io::Result<()>;

/// Sends the frames of an attack on one interface.
#[derive(Debug)]
pub struct Sender {
    socket: PacketSocket,
    ends: Ends,
    write: Write,
}

impl Sender {
    /// Opens the interface and finds whom the frames are for.
    ///
    /// # Errors
    /// No such Ethernet interface, no right to use packet sockets (`CAP_NET_RAW`), an aim that makes no sense or that nobody
    /// answers for.
    pub fn open(interface: &str, frames: Frames, aim: &Aim) -> Result<Self, AttackError> {
        if !(LEAST_BYTES..=MOST_BYTES).contains(&aim.bytes) {
            return Err(AttackError::Bytes(aim.bytes));
        }
        let socket = PacketSocket::sending(interface)?;
        socket.send_within(ROOM_WITHIN)?;
        let to_address = || Ends::of_address(&socket, interface, aim);
        let to_everybody = || Ends::of_everybody(&socket, interface, aim);
        let (ends, write): (Ends, Write) = match frames {
            Frames::UdpSmall => (to_address()?, udp_small::write),
            Frames::Multicast => (multicast::ends(to_everybody()?, aim)?, multicast::write),
            Frames::Broadcast => (to_everybody()?, broadcast::write),
            Frames::Fragments => (to_address()?, fragments::write),
            Frames::TcpConnect => (to_address()?, tcp_connect::write),
            Frames::Arp => (arp::ends(to_everybody()?, aim)?, arp::write),
            Frames::Icmp => (to_address()?, icmp::write),
            Frames::Transmit => (transmit::ends(&socket, interface, aim)?, transmit::write),
            Frames::Doorbells => (doorbells::ends(to_everybody()?, aim)?, doorbells::write),
        };
        Ok(Self {
            socket,
            ends,
            write,
        })
    }

    /// Sends them at a pace.
    ///
    /// # Errors
    /// The socket's, but for no room, which is counted.
    pub fn run(&self, pace: &Pace) -> Result<Attacked, AttackError> {
        let mut frame = Vec::new();
        let sent = pace.run(|number| {
            frame.clear();
            (self.write)(&self.ends, number, &mut frame)?;
            match self.socket.send(&frame) {
                Ok(()) => Ok(Tried::Sent),
                Err(error) if has_no_room(&error) => Ok(Tried::Refused),
                Err(error) => Err(error),
            }
        });
        sent.map_err(|error| match error.raw_os_error() {
            Some(nix::libc::EMSGSIZE) => AttackError::TooLong(self.ends.bytes),
            _ => error.into(),
        })
    }
}

/// A full queue on the way out, a full socket, or a signal.
pub(super) fn has_no_room(error: &io::Error) -> bool {
    use nix::libc::{EAGAIN, EINTR, ENOBUFS, ENOMEM};
    let code = error.raw_os_error();
    code.is_some_and(|code| [EAGAIN, EINTR, ENOBUFS, ENOMEM].contains(&code))
}
