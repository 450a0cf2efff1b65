//! The send buffer of a tap. Only a descriptor of the tap's own tells and sets it, and those are its
//! monitor's: one is borrowed (`pidfd_getfd`), which needs root (`CAP_SYS_PTRACE`).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// `struct ifreq`
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    rest: [u64; 3],
}

pub(super) fn send_buffer(pid: u32, descriptor: u32, tap: &str) -> io::Result<u32> {
    let queue = borrow(pid, descriptor, tap)?;
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int to `bytes`, which is live and not borrowed elsewhere.
    check(unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNGETSNDBUF, &raw mut bytes) })?;
    u32::try_from(bytes).map_err(io::Error::other)
}

/// `tun_set_sndbuf()` gives it to every queue that is attached.
pub(super) fn set_send_buffer(pid: u32, descriptor: u32, tap: &str, bytes: u32) -> io::Result<()> {
    let queue = borrow(pid, descriptor, tap)?;
    let bytes =
        libc::c_int::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the kernel reads one int from `bytes`, which is live.
    check(unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETSNDBUF, &raw const bytes) })?;
    Ok(())
}

/// A descriptor of another process, if it is an attached queue of the tap: meanwhile the number may
/// be another file's, or another process may have its place.
fn borrow(pid: u32, descriptor: u32, tap: &str) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid.cast_signed()).ok_or(Errno::SRCH)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let queue = pidfd_getfd(process, descriptor.cast_signed(), PidfdGetfdFlags::empty())
        .map_err(|error| no_queue(error.into()))?;
    let mut request = InterfaceRequest {
        name: [0; 16],
        rest: [0; 3],
    };
    // Whatever file the descriptor is of, its driver knows this request as tun's or refuses it.
    // SAFETY: `request` is a live `struct ifreq` that is not borrowed elsewhere.
    let result = unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNGETIFF, &raw mut request) };
    check(result).map_err(no_queue)?;
    let name = request.name.split(|&byte| byte == 0).next();
    if name == Some(tap.as_bytes()) {
        Ok(queue)
    } else {
        Err(io::Error::from_raw_os_error(libc::ENODEV))
    }
}

/// Closed (`EBADF`), no tap (`ENOTTY`), or a queue that is not attached (`EBADFD`).
fn no_queue(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EBADF | libc::ENOTTY | libc::EBADFD) => {
            io::Error::from_raw_os_error(libc::ENODEV)
        }
        _ => error,
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_queue_of_the_tap_is_not_touched() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let open = file.as_raw_fd() as u32;
        for descriptor in [open, 1_000_000] {
            let error = send_buffer(std::process::id(), descriptor, "tap0").unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{error}");
            let error = set_send_buffer(std::process::id(), descriptor, "tap0", 1).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{error}");
        }
        // No process has the largest number.
        let error = send_buffer(i32::MAX as u32, 0, "tap0").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH), "{error}");
    }
}
