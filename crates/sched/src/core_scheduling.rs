//! Core scheduling (`CONFIG_SCHED_CORE`): threads of different cookies never run on the siblings of a core at the same time.
//!
//! The kernel enforces that above every scheduling class: where two CPUs of a core have chosen threads that do not match, one of them
//! idles. Our scheduler is not asked and not told: the VCPU counts as one that runs, and gets nothing. So with cookies on siblings no
//! budget is kept, and such a VCPU is refused.

use std::io;

/// Of `include/uapi/linux/prctl.h`.
const PR_SCHED_CORE: libc::c_int = 62;
const PR_SCHED_CORE_GET: libc::c_ulong = 0;
const PR_SCHED_CORE_SCOPE_THREAD: libc::c_ulong = 0;

/// What a caller is told of such a thread.
pub const REASON: &str = "has a core-scheduling cookie, and this host's CPUs are siblings of cores (SMT): the kernel idles a sibling \
                          by force, whatever sched_ext has chosen there, so no budget is kept";

/// What to do about it.
pub const FIX: &str = "start the VM without a cookie (libvirt: sched_core = \"none\" in qemu.conf; coresched), turn SMT off \
                       (echo off > /sys/devices/system/cpu/smt/control), or use mechanism = \"deadline\"";

/// A thread's cookie; 0: none, as for all threads of a host without siblings, and of a kernel without core scheduling.
///
/// # Errors
/// The thread is gone, or another user's.
pub fn cookie(tid: u32) -> io::Result<u64> {
    let mut cookie = 0_u64;
    // SAFETY: of these arguments the last one alone is an address: of a live u64, which the kernel writes.
    let done = unsafe {
        libc::prctl(
            PR_SCHED_CORE,
            PR_SCHED_CORE_GET,
            libc::c_ulong::from(tid),
            PR_SCHED_CORE_SCOPE_THREAD,
            &raw mut cookie,
        )
    };
    if done == 0 {
        return Ok(cookie);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // The kernel has none; no CPU has a sibling.
        Some(libc::EINVAL | libc::ENODEV) => Ok(0),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_without_a_cookie_has_none_and_one_that_is_gone_is_no_success() {
        assert_eq!(cookie(std::process::id()).unwrap(), 0);
        let none = cookie(i32::MAX.cast_unsigned());
        // A kernel without siblings does not look for the thread.
        assert!(matches!(&none, Ok(0)) || none.unwrap_err().raw_os_error() == Some(libc::ESRCH));
    }
}
