//! The ioctls that are forwarded, by list: all others are ENOTTY. None has pointers in its argument.

use crate::system;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

const SIOCOUTQNSD: u32 = 0x894b;
const SIOCATMARK: u32 = 0x8905;

/// `sizeof(struct ifreq)`.
pub const MAX_ARGUMENT: usize = 40;

/// Bytes of the argument: an int, or a `struct ifreq` that the kernel fills in. The interfaces are
/// those of the VM's namespace on the host.
fn argument_len(request: u32) -> Option<usize> {
    match libc::c_ulong::from(request) {
        libc::FIONREAD | libc::TIOCOUTQ => Some(4),
        libc::SIOCGIFNAME
        | libc::SIOCGIFFLAGS
        | libc::SIOCGIFADDR
        | libc::SIOCGIFDSTADDR
        | libc::SIOCGIFBRDADDR
        | libc::SIOCGIFNETMASK
        | libc::SIOCGIFMETRIC
        | libc::SIOCGIFMTU
        | libc::SIOCGIFHWADDR
        | libc::SIOCGIFINDEX
        | libc::SIOCGIFTXQLEN => Some(MAX_ARGUMENT),
        _ if request == SIOCOUTQNSD || request == SIOCATMARK => Some(4),
        _ => None,
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
