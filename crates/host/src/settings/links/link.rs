//! Whether a device carries packets, and waiting for it. A driver may look for its link every few seconds only (`igbvf`: two).

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

/// rtnetlink's group of link changes (`RTMGRP_LINK`, include/uapi/linux/rtnetlink.h).
const LINK_GROUP: u32 = 1;

/// Waits by the kernel's word of changes until a device carries packets, for `patience` at most.
///
/// # Errors
/// `ENOENT`: the device went.
pub(super) fn wait(device: &str, patience: Duration) -> io::Result<bool> {
    // Before the first look, so that no change is missed.
    let changes = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        SockProtocol::NetlinkRoute,
    )?;
    bind(changes.as_raw_fd(), &NetlinkAddr::new(0, LINK_GROUP))?;
    let until = Instant::now() + patience;
    while !carries(device)? {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let mut sources = [PollFd::new(changes.as_fd(), PollFlags::POLLIN)];
        // A rest below a millisecond is waited for, not spun through.
        let left = left.max(Duration::from_millis(1));
        match poll(
            &mut sources,
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX),
        ) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        // What they say, the next look sees.
        let mut message = [0; 8 << 10];
        while !matches!(
            recv(changes.as_raw_fd(), &mut message, MsgFlags::empty()),
            Err(Errno::EAGAIN)
        ) {}
    }
    Ok(true)
}

/// Its carrier is there, and the kernel has switched its queues on for it, which it does a little later (`linkwatch_do_dev`).
fn carries(device: &str) -> io::Result<bool> {
    let read = |file: &str| fs::read_to_string(format!("/sys/class/net/{device}/{file}"));
    let state = read("operstate")?;
    // A device that is off has none to be read (EINVAL).
    let carrier = read("carrier").is_ok_and(|text| text.trim() == "1");
    Ok(carrier && state.trim() != "down")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_carries_packets_and_what_is_not_there_is_an_error() {
        assert!(wait("lo", Duration::ZERO).unwrap());
        let error = wait("no-such-device", Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
