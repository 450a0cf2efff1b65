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
use nix::sys::time::{TimeVal, TimeValLike};
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
        let opened = Self::open(interface, Some(protocol.ether_type()))?;
        for address in addresses {
            opened.join(interface, address)?;
        }
        opened.forget()?;
        Ok(opened)
    }

    /// One that receives the frames of an `EtherType`; of 3 (`ETH_P_ALL`) all there are, also those that go out.
    ///
    /// # Errors
    /// As [`PacketSocket::sending`].
    pub fn hearing(interface: &str, ether_type: u16) -> io::Result<Self> {
        let opened = Self::open(interface, Some(ether_type))?;
        opened.forget()?;
        Ok(opened)
    }

    /// Until it was bound, it heard of other interfaces' frames.
    fn forget(&self) -> io::Result<()> {
        let mut buffer = [0; LONGEST_FRAME];
        while self.receive(&mut buffer)?.is_some() {}
        Ok(())
    }

    fn open(interface: &str, ether_type: Option<u16>) -> io::Result<Self> {
        let link = link_of(interface)?;
        let address = link.as_link_addr().and_then(LinkAddr::addr);
        let address = address.ok_or_else(|| no_ethernet(interface))?;
        let network_order = |ether_type: u16| u32::from(ether_type.to_be());
        let number = ether_type.map(network_order).and_then(NonZeroU32::new);
        let socket = socket_with(
            rustix::net::AddressFamily::PACKET,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            number.map(rustix::net::Protocol::from_raw),
        )?;
        if ether_type.is_some() {
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

    /// Lets a frame wait for room in the socket for so long at most.
    ///
    /// # Errors
    /// The kernel's.
    pub fn send_within(&self, patience: Duration) -> io::Result<()> {
        let microseconds = i64::try_from(patience.as_micros()).unwrap_or(i64::MAX);
        let patience = TimeVal::microseconds(microseconds);
        Ok(setsockopt(&self.socket, sockopt::SendTimeout, &patience)?)
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// The kernel's; `ENOBUFS` where the interface has no room, `EAGAIN` where the socket had none in time.
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
