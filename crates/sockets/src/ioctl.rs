//! The ioctls that are forwarded, by list: all others are ENOTTY. None has pointers in its argument.

use crate::system;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// Requests with an int.
const INTS: [libc::c_ulong; 4] = [
    libc::FIONREAD,
    libc::TIOCOUTQ,
    // SIOCOUTQNSD, SIOCATMARK
    0x894b,
    0x8905,
];
/// Requests with a `struct ifreq` that the kernel fills in. The interfaces are those of the VM's
/// namespace on the host.
const INTERFACES: [libc::c_ulong; 11] = [
    libc::SIOCGIFNAME,
    libc::SIOCGIFFLAGS,
    libc::SIOCGIFADDR,
    libc::SIOCGIFDSTADDR,
    libc::SIOCGIFBRDADDR,
    libc::SIOCGIFNETMASK,
    libc::SIOCGIFMETRIC,
    libc::SIOCGIFMTU,
    libc::SIOCGIFHWADDR,
    libc::SIOCGIFINDEX,
    libc::SIOCGIFTXQLEN,
];
/// When the last datagram came, as a `struct timeval` or `timespec` of 64 bits: SIOCGSTAMP,
/// SIOCGSTAMPNS, and their newer numbers.
const STAMPS: [libc::c_ulong; 4] = [0x8906, 0x8907, 0x8010_8906, 0x8010_8907];

const ALL: usize = INTS.len() + INTERFACES.len() + STAMPS.len();

/// All requests that the device makes: for the VMM's list of system calls.
pub const IOCTLS: &[u64] = &list();

const fn list() -> [u64; ALL] {
    let mut all = [0; ALL];
    let mut at = 0;
    while at < ALL {
        all[at] = if at < INTS.len() {
            INTS[at]
        } else if at < INTS.len() + INTERFACES.len() {
            INTERFACES[at - INTS.len()]
        } else {
            STAMPS[at - INTS.len() - INTERFACES.len()]
        };
        at += 1;
    }
    all
}

/// `sizeof(struct ifreq)`.
pub const MAX_ARGUMENT: usize = 40;

/// Bytes of the argument of a request that is forwarded.
fn argument_len(request: u32) -> Option<usize> {
    let request = libc::c_ulong::from(request);
    if INTS.contains(&request) {
        Some(4)
    } else if INTERFACES.contains(&request) {
        Some(MAX_ARGUMENT)
    } else if STAMPS.contains(&request) {
        Some(16)
    } else {
        None
    }
}

/// Carries an ioctl out: the argument as the host leaves it.
///
/// # Errors
/// ENOTTY for what is not on the list, EFAULT where `argument` is shorter than it must be, else
/// the host's own.
pub fn carry_out(
    fd: BorrowedFd,
    request: u32,
    argument: &[u8],
) -> Result<([u8; MAX_ARGUMENT], usize), Errno> {
    let len = argument_len(request).ok_or(Errno::NOTTY)?;
    let mut bytes = [0; MAX_ARGUMENT];
    bytes[..len].copy_from_slice(argument.get(..len).ok_or(Errno::FAULT)?);
    system::ioctl(fd, request, &mut bytes[..len])?;
    Ok((bytes, len))
}
