//! Threads of the monitor: names, priorities, and how a VCPU thread is called out of the guest.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::null_mut;
use vmm_sys_util::signal::{SIGRTMIN, register_signal_handler};

use steadyvm_fault::{At, Result};

thread_local! {
    /// `kvm_run.immediate_exit` of the VCPU that this thread runs, or null. Without a destructor,
    /// so that a signal handler may use it.
    static IMMEDIATE_EXIT: Cell<*mut u8> = const { Cell::new(null_mut()) };
}

extern "C" fn on_kick(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    let flag = IMMEDIATE_EXIT.get();
    if !flag.is_null() {
        // SAFETY: `Kickable` has made it point into a mapped kvm_run, and takes it back before
        // that is unmapped. The kernel alone reads it besides this thread.
        unsafe { flag.write_volatile(1) };
    }
}

/// The signal that calls a VCPU thread out of the guest.
fn kick_signal() -> c_int {
    SIGRTMIN()
}

/// Makes kicks possible, once a process, before VCPU threads start.
pub fn prepare_kicks() -> Result<()> {
    register_signal_handler(kick_signal(), on_kick).cannot("handle the signal for VCPU threads")
}

/// While it lives, a kick of this thread makes the next `KVM_RUN` return at once, even where it
/// comes before the call.
pub struct Kickable(());

impl Kickable {
    /// For a VCPU of the calling thread.
    ///
    /// # Safety
    /// `immediate_exit` is that field of a `kvm_run` that stays mapped while the value lives.
    pub unsafe fn new(immediate_exit: *mut u8) -> Self {
        IMMEDIATE_EXIT.set(immediate_exit);
        Self(())
    }
}

impl Drop for Kickable {
    fn drop(&mut self) {
        IMMEDIATE_EXIT.set(null_mut());
    }
}

/// Kicks a thread that has not been joined.
pub fn kick(thread: &std::thread::JoinHandle<()>) {
    use std::os::unix::thread::JoinHandleExt;
    // SAFETY: the thread has not been joined or detached, for `thread` is still there.
    unsafe { libc::pthread_kill(thread.as_pthread_t(), kick_signal()) };
}

/// The highest priority that a thread of a VM may have: at 99 are the kernel's migration threads.
pub const HIGHEST_FIFO: i32 = 98;

/// Gives the calling thread a `SCHED_FIFO` priority.
pub fn set_fifo(priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: the call reads one sched_param; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
