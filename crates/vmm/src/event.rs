//! Events that threads wake each other by.

use std::os::fd::{AsRawFd, BorrowedFd};

use vmm_sys_util::eventfd::EventFd;

/// An event as the calls of nix want it.
pub fn borrow(event: &EventFd) -> BorrowedFd<'_> {
    // SAFETY: the descriptor is open as long as `event` is borrowed.
    unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) }
}
