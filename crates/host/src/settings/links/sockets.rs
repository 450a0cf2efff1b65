//! The host's TCP and UDP sockets, by the kernel's socket diagnosis.

use std::io;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use steadyvm_demux::Protocol;

use super::calls::PortSocket;
use super::netlink::ask;

/// `TCP_LISTEN`
const LISTENS: u8 = 10;

/// The kernel loads the modules by itself, where it has them and a program to do so.
fn explained(error: io::Error) -> io::Error {
    if error.raw_os_error() != Some(libc::ENOENT) {
        return error;
    }
    let what = "the kernel has no socket diagnosis; load tcp_diag and udp_diag (modprobe)";
    io::Error::new(io::ErrorKind::NotFound, what)
}

pub(super) fn with_ports() -> io::Result<Vec<PortSocket>> {
    let mut sockets = Vec::new();
    for (number, protocol) in [(IPPROTO_TCP, Protocol::Tcp), (IPPROTO_UDP, Protocol::Udp)] {
        for (family, socket_id) in [
            (AF_INET, SocketId::new_v4()),
            (AF_INET6, SocketId::new_v6()),
        ] {
            let request = InetRequest {
                family,
                protocol: number,
                extensions: ExtensionFlags::empty(),
                states: StateFlags::all(),
                socket_id,
            };
            let request = SockDiagMessage::InetRequest(request);
            let answers = ask(NETLINK_SOCK_DIAG, request, NLM_F_REQUEST | NLM_F_DUMP);
            for answer in answers.map_err(explained)? {
                let SockDiagMessage::InetResponse(response) = answer else {
                    continue;
                };
                let header = response.header;
                sockets.push(PortSocket {
                    cookie: u64::from_ne_bytes(header.socket_id.cookie),
                    inode: header.inode,
                    protocol,
                    port: header.socket_id.source_port,
                    listens: header.state == LISTENS,
                });
            }
        }
    }
    Ok(sockets)
}
