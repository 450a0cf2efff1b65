//! A packet socket (`AF_PACKET`) on one interface, for one `EtherType`.

use std::io::{self, IoSliceMut};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockaddrLike, SockaddrStorage, bind, recvmsg, send,
    setsockopt, sockopt,
};
use nix::{setsockopt_impl, sockopt_impl};
use rustix::net::{SocketFlags, SocketType, socket_with};

use super::frame::Protocol;

/// Room for frames while the reader waits for a CPU: half a second of eight streams.
const RECEIVE_BUFFER_BYTES: usize = 16 << 20;
/// No frame of these protocols is longer.
pub(super) const LONGEST_FRAME: usize = 2048;

sockopt_impl!(
    /// Has the card let frames to a multicast address through, for as long as the socket is open.
    AddMembership,
    SetOnly,
    libc::SOL_PACKET,
    libc::PACKET_ADD_MEMBERSHIP,
    libc::packet_mreq
);

/// A packet socket.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
    /// The hardware address of its interface.
    pub address: [u8; 6],
}

impl PacketSocket {
    /// One that sends, and receives nothing.
    ///
    /// # Errors
    /// No such Ethernet interface, or no right to use packet sockets (`CAP_NET_RAW`).
    pub fn sending(interface: &str) -> io::Result<Self> {
        Self::open(interface, None)
    }

    /// One that receives the frames of a protocol to these addresses.
    ///
    /// # Errors
    /// As [`PacketSocket::sending`].
    pub fn receiving(
        interface: &str,
        protocol: Protocol,
        addresses: impl IntoIterator<Item = [u8; 6]>,
    ) -> io::Result<Self> {
        let opened = Self::open(interface, Some(protocol))?;
        for address in addresses {
            opened.join(interface, address)?;
        }
        // Until it was bound, it heard of other interfaces' frames.
        let mut buffer = [0; LONGEST_FRAME];
        while opened.receive(&mut buffer)?.is_some() {}
        Ok(opened)
    }

    fn open(interface: &str, protocol: Option<Protocol>) -> io::Result<Self> {
        let link = link_of(interface)?;
        let address = link.as_link_addr().and_then(LinkAddr::addr);
        let address = address.ok_or_else(|| no_ethernet(interface))?;
        let network_order = |protocol: Protocol| u32::from(protocol.ether_type().to_be());
        let number = protocol.map(network_order).and_then(NonZeroU32::new);
        let socket = socket_with(
            rustix::net::AddressFamily::PACKET,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            number.map(rustix::net::Protocol::from_raw),
        )?;
        if protocol.is_some() {
            // Above net.core.rmem_max only where this process may.
            let forced = setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES);
            if forced.is_err() {
                setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER_BYTES)?;
            }
        }
        // The address has no protocol: the socket keeps its own.
        bind(socket.as_raw_fd(), &link)?;
        Ok(Self { socket, address })
    }

    fn join(&self, interface: &str, address: [u8; 6]) -> io::Result<()> {
        let mut bytes = [0; 8];
        bytes[..6].copy_from_slice(&address);
        let request = libc::packet_mreq {
            mr_ifindex: if_nametoindex(interface)?.cast_signed(),
            mr_type: libc::PACKET_MR_MULTICAST as u16,
            mr_alen: 6,
            mr_address: bytes,
        };
        setsockopt(&self.socket, AddMembership, &request)?;
        Ok(())
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// The kernel's; `ENOBUFS` where the interface has no room.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        send(self.socket.as_raw_fd(), frame, MsgFlags::empty())?;
        Ok(())
    }

    /// Waits for a frame for so long at most.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&self, timeout: Duration) -> io::Result<()> {
        let milliseconds = timeout.as_millis().min(u128::from(u16::MAX)) as u16;
        let mut sources = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut sources, PollTimeout::from(milliseconds)) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes a frame that is there, and tells its length; none if none is.
    ///
    /// # Errors
    /// The kernel's; `ENETDOWN` once, if the interface went down.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let mut parts = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::MSG_DONTWAIT;
        match recvmsg::<()>(self.socket.as_raw_fd(), &mut parts, None, flags) {
            Ok(message) => Ok(Some(message.bytes)),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The kernel's address of an interface, which has its number.
fn link_of(interface: &str) -> io::Result<SockaddrStorage> {
    let mut all = getifaddrs()?.filter(|one| one.interface_name == interface);
    let link = all.find_map(|one| {
        let address = one.address?;
        (address.family() == Some(AddressFamily::Packet)).then_some(address)
    });
    link.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
}

fn no_ethernet(interface: &str) -> io::Error {
    let text = format!("{interface} has no hardware address");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
