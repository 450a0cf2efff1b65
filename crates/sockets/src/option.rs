//! Socket options that are forwarded, by list: all others are ENOPROTOOPT, as on a host that does
//! not know them. Values and errors are the host's own.
//!
//! Not on the list, on purpose: options with pointers in their values (filters), options that need
//! capabilities (`SO_MARK`, `*_TRANSPARENT`, `SO_*BUFFORCE`), options that keep guest pages after
//! the call (`SO_ZEROCOPY`), options that change what a socket is (`TCP_ULP`, `TCP_REPAIR`,
//! `IPV6_ADDRFORM`, `UDP_ENCAP`), options about the host's processors (`SO_INCOMING_CPU`,
//! `SO_BUSY_POLL`), options by which a guest would send from addresses that are not its own
//! (`IP_FREEBIND`, `IPV6_FREEBIND`), and those that are the guest's own business because it owns
//! blocking (`SO_RCVTIMEO`, `SO_SNDTIMEO`).
//!
//! A few need a capability for some of their values. A guest has none of the host's, whatever the VMM
//! has: [`set`] judges those values as the kernel does for a program without capabilities.

use crate::congestion::Algorithms;
use crate::system;
use libc::c_int;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// The longest value, in bytes, either way. The longest on the list are `TCP_INFO` and names.
pub const MAX_VALUE: usize = 1024;

/// `IPPROTO_…` levels whose lists below are complete.
const SOL_SOCKET: i32 = libc::SOL_SOCKET;
const IP: i32 = libc::IPPROTO_IP;
const IPV6: i32 = libc::IPPROTO_IPV6;
const TCP: i32 = libc::IPPROTO_TCP;
const UDP: i32 = libc::IPPROTO_UDP;

/// The levels that have options on the list: for the VMM's list of system calls.
pub const OPTION_LEVELS: [i32; 5] = [SOL_SOCKET, IP, IPV6, TCP, UDP];

const SO_BINDTOIFINDEX: c_int = 62;
/// `TCP_CA_NAME_MAX` without its NUL.
const MAX_ALGORITHM: usize = 15;

/// Sets an option as for a program without capabilities; `highest_priority` is the VM's own bound of
/// `SO_PRIORITY`.
///
/// # Errors
/// EPERM for what takes a capability, else the host's.
pub fn set(
    fd: BorrowedFd,
    level: i32,
    option: i32,
    value: &[u8],
    highest_priority: u8,
    algorithms: &Algorithms,
) -> Result<(), Errno> {
    match (level, option) {
        (SOL_SOCKET, libc::SO_PRIORITY)
            if first_int(value)
                .is_some_and(|asked| !(0..=highest_priority.into()).contains(&asked)) =>
        {
            return Err(Errno::PERM);
        }
        (SOL_SOCKET, libc::SO_BINDTODEVICE) => {
            // The kernel looks for the interface first.
            let name = text(value, libc::IFNAMSIZ - 1);
            if !name.is_empty() && is_bound(fd) {
                rustix::net::netdevice::name_to_index(fd, &String::from_utf8_lossy(name))
                    .map_err(|_| Errno::NODEV)?;
            }
            may_bind_again(fd)?;
        }
        (SOL_SOCKET, SO_BINDTOIFINDEX) if value.len() >= 4 => may_bind_again(fd)?,
        (TCP, libc::TCP_CONGESTION) if !value.is_empty() => {
            algorithms.check(fd, text(value, MAX_ALGORITHM))?;
        }
        _ => {}
    }
    system::set_option(fd, level, option, value)
}

fn first_int(value: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(value.get(..4)?.try_into().ok()?))
}

/// The text that the kernel takes out of a value: up to a NUL, at most `most` bytes.
fn text(value: &[u8], most: usize) -> &[u8] {
    let value = &value[..value.len().min(most)];
    let end = value.iter().position(|byte| *byte == 0);
    &value[..end.unwrap_or(value.len())]
}

fn is_bound(fd: BorrowedFd) -> bool {
    system::get_int_option(fd, SOL_SOCKET, SO_BINDTOIFINDEX).is_ok_and(|index| index != 0)
}

/// A socket that is bound to an interface stays so without `CAP_NET_RAW`.
fn may_bind_again(fd: BorrowedFd) -> Result<(), Errno> {
    if is_bound(fd) {
        Err(Errno::PERM)
    } else {
        Ok(())
    }
}

/// Whether an option is forwarded. That an option can only be read, or only set, is left to the
/// host's kernel to say.
#[must_use]
pub const fn is_forwarded(level: i32, option: i32) -> bool {
    match level {
        SOL_SOCKET => socket_level(option),
        IP => ip(option),
        IPV6 => ipv6(option),
        TCP => tcp(option),
        UDP => udp(option),
        _ => false,
    }
}

const fn socket_level(option: i32) -> bool {
    matches!(
        option,
        libc::SO_REUSEADDR
            | libc::SO_TYPE
            | libc::SO_ERROR
            | libc::SO_DONTROUTE
            | libc::SO_BROADCAST
            | libc::SO_SNDBUF
            | libc::SO_RCVBUF
            | libc::SO_KEEPALIVE
            | libc::SO_OOBINLINE
            | libc::SO_PRIORITY
            | libc::SO_LINGER
            | libc::SO_REUSEPORT
            | libc::SO_RCVLOWAT
            | libc::SO_SNDLOWAT
            | libc::SO_BINDTODEVICE
            | libc::SO_TIMESTAMP
            | libc::SO_ACCEPTCONN
            | libc::SO_TIMESTAMPNS
            | libc::SO_TIMESTAMPING
            | libc::SO_PROTOCOL
            | libc::SO_DOMAIN
            | libc::SO_RXQ_OVFL
            | libc::SO_PEEK_OFF
            | libc::SO_SELECT_ERR_QUEUE
            | libc::SO_MAX_PACING_RATE
            // SO_BINDTOIFINDEX, SO_TIMESTAMP_NEW, SO_TIMESTAMPNS_NEW, SO_TIMESTAMPING_NEW
            | 62..=65
    )
}

const fn ip(option: i32) -> bool {
    matches!(
        option,
        libc::IP_TOS
            | libc::IP_TTL
            | libc::IP_PKTINFO
            | libc::IP_MTU_DISCOVER
            | libc::IP_RECVERR
            | libc::IP_RECVTTL
            | libc::IP_RECVTOS
            | libc::IP_MTU
            | libc::IP_RECVORIGDSTADDR
            | libc::IP_MINTTL
            | libc::IP_BIND_ADDRESS_NO_PORT
            // IP_RECVFRAGSIZE, IP_RECVERR_RFC4884
            | 25..=26
            | libc::IP_MULTICAST_IF
            | libc::IP_MULTICAST_TTL
            | libc::IP_MULTICAST_LOOP
            | libc::IP_ADD_MEMBERSHIP
            | libc::IP_DROP_MEMBERSHIP
            | libc::IP_UNBLOCK_SOURCE
            | libc::IP_BLOCK_SOURCE
            | libc::IP_ADD_SOURCE_MEMBERSHIP
            | libc::IP_DROP_SOURCE_MEMBERSHIP
            // MCAST_JOIN_GROUP to MCAST_LEAVE_SOURCE_GROUP
            | 42..=47
            | libc::IP_MULTICAST_ALL
            | libc::IP_UNICAST_IF
            // IP_LOCAL_PORT_RANGE
            | 51
    )
}

const fn ipv6(option: i32) -> bool {
    matches!(
        option,
        libc::IPV6_UNICAST_HOPS
            | libc::IPV6_MULTICAST_IF
            | libc::IPV6_MULTICAST_HOPS
            | libc::IPV6_MULTICAST_LOOP
            | libc::IPV6_ADD_MEMBERSHIP
            | libc::IPV6_DROP_MEMBERSHIP
            | libc::IPV6_MTU_DISCOVER
            | libc::IPV6_MTU
            | libc::IPV6_RECVERR
            | libc::IPV6_V6ONLY
            // IPV6_MULTICAST_ALL
            | 29
            // IPV6_RECVERR_RFC4884
            | 31
            // MCAST_JOIN_GROUP to MCAST_LEAVE_SOURCE_GROUP
            | 42..=47
            | libc::IPV6_RECVPKTINFO
            | libc::IPV6_PKTINFO
            | libc::IPV6_RECVHOPLIMIT
            | libc::IPV6_HOPLIMIT
            // IPV6_RECVPATHMTU, IPV6_PATHMTU, IPV6_DONTFRAG
            | 60..=62
            | libc::IPV6_RECVTCLASS
            | libc::IPV6_TCLASS
            // IPV6_AUTOFLOWLABEL, IPV6_ADDR_PREFERENCES, IPV6_MINHOPCOUNT, IPV6_RECVORIGDSTADDR
            | 70
            | 72..=74
            // IPV6_UNICAST_IF, IPV6_RECVFRAGSIZE
            | 76..=77
    )
}

const fn tcp(option: i32) -> bool {
    matches!(
        option,
        libc::TCP_NODELAY
            | libc::TCP_MAXSEG
            | libc::TCP_CORK
            | libc::TCP_KEEPIDLE
            | libc::TCP_KEEPINTVL
            | libc::TCP_KEEPCNT
            | libc::TCP_SYNCNT
            | libc::TCP_LINGER2
            | libc::TCP_DEFER_ACCEPT
            | libc::TCP_WINDOW_CLAMP
            | libc::TCP_INFO
            | libc::TCP_QUICKACK
            | libc::TCP_CONGESTION
            | libc::TCP_USER_TIMEOUT
            | libc::TCP_FASTOPEN
            | libc::TCP_NOTSENT_LOWAT
            | libc::TCP_FASTOPEN_CONNECT
            // TCP_INQ
            | 36
    )
}

const fn udp(option: i32) -> bool {
    matches!(
        option,
        libc::UDP_CORK
            // UDP_NO_CHECK6_TX, UDP_NO_CHECK6_RX
            | 101..=102 | libc::UDP_SEGMENT | libc::UDP_GRO
    )
}

#[cfg(test)]
mod tests {
    use super::is_forwarded;

    #[test]
    fn dangerous_options_are_not_forwarded() {
        let refused = [
            (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER),
            (libc::SOL_SOCKET, libc::SO_ATTACH_BPF),
            (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_EBPF),
            (libc::SOL_SOCKET, libc::SO_MARK),
            (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE),
            (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE),
            (libc::SOL_SOCKET, libc::SO_ZEROCOPY),
            (libc::SOL_SOCKET, libc::SO_PASSCRED),
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
            (libc::IPPROTO_IP, libc::IP_TRANSPARENT),
            (libc::IPPROTO_IP, libc::IP_FREEBIND),
            // IPV6_FREEBIND
            (libc::IPPROTO_IPV6, 78),
            (libc::IPPROTO_IP, libc::IP_HDRINCL),
            // IP_OPTIONS, IPT_SO_SET_REPLACE
            (libc::IPPROTO_IP, 4),
            (libc::IPPROTO_IP, 64),
            // IPV6_ADDRFORM
            (libc::IPPROTO_IPV6, 1),
            (libc::IPPROTO_TCP, libc::TCP_REPAIR),
            (libc::IPPROTO_TCP, libc::TCP_ULP),
            (libc::IPPROTO_TCP, libc::TCP_ZEROCOPY_RECEIVE),
            (libc::IPPROTO_UDP, libc::UDP_ENCAP),
            (libc::SOL_NETLINK, 1),
            (-1, -1),
        ];
        for (level, option) in refused {
            assert!(!is_forwarded(level, option), "{level} {option}");
        }
    }
}
