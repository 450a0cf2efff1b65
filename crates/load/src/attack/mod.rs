//! Attacks as loads: what a machine on the network, a neighbour VM or an unprivileged program does to a host at most.
//!
//! [`Frames`] go out by a packet socket of one interface. Everything else computes or asks the kernel for work: [`compute`],
//! [`timers`], [`interrupts`], [`disk`], [`device`], [`console`], [`sockets`]. Each keeps a [`Pace`] and tells what it [`Attacked`].
//!
//! Nothing here hides who sends: frames have the interface's hardware address. Receivers of replies are known, so that an
//! attack hits whom it is meant for.

mod arp;
mod broadcast;
mod compute;
mod console;
mod disk;
mod doorbells;
mod ends;
mod fragments;
mod frames;
mod icmp;
mod interrupts;
mod multicast;
mod pace;
mod sockets;
mod tcp_connect;
#[cfg(test)]
mod tests;
mod timers;
mod transmit;
mod udp_small;

pub use compute::compute;
pub use console::console;
pub use disk::{device, disk};
pub use ends::{Aim, To};
pub use frames::{Frames, Sender};
pub use interrupts::interrupts;
pub use pace::{Attacked, Pace};
pub use sockets::sockets;
pub use timers::timers;

use std::io;
use std::net::Ipv4Addr;

/// Why there was no attack.
#[derive(Debug, thiserror::Error)]
pub enum AttackError {
    /// An attack on somebody, and nobody is named.
    #[error("nobody is named")]
    NoTarget,
    /// An attack on an IPv4 address.
    #[error("{0} is a hardware address, and the packets need an IPv4 address")]
    NotAnAddress(To),
    /// An attack on a hardware address.
    #[error("{0} is an IPv4 address, and the frames have a hardware address alone")]
    NotHardware(To),
    /// An attack on one machine.
    #[error("{0} is not the address of one machine")]
    NotOneMachine(To),
    /// An attack on a group.
    #[error("{0} is no multicast address")]
    NotMulticast(To),
    /// Nobody has the address.
    #[error("nobody on the interface's network answers for {0}")]
    NoAnswer(Ipv4Addr),
    /// A frame that no interface takes.
    #[error("a frame has {LEAST_BYTES} to {MOST_BYTES} bytes, and not {0}")]
    Bytes(usize),
    /// A frame that this interface does not take.
    #[error("the interface takes no frame of {0} bytes")]
    TooLong(usize),
    /// Interrupts between CPUs need two.
    #[error("interrupts between CPUs need two threads on two CPUs at least")]
    OneThread,
    /// A disk is a block device.
    #[error("it is no block device")]
    NoDisk,
    /// A console is a terminal.
    #[error("it is no terminal")]
    NoTerminal,
    /// The kernel's.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The shortest frame of Ethernet, without its checksum.
pub const LEAST_BYTES: usize = 60;
/// The longest frame that a packet socket is given: jumbo frames are shorter.
pub const MOST_BYTES: usize = 65_000;
/// The longest frame where the MTU is 1,500 bytes.
pub const USUAL_MOST_BYTES: usize = 1514;
