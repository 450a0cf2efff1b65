//! A thread that comes before other normal threads for a while.

/// The best place among normal threads, until it is dropped; the thread's own one then.
pub(crate) struct Preferred {
    before: i32,
}

impl Preferred {
    /// The calling thread's. One that may not have it stays as it is: it is only slower.
    pub fn now() -> Self {
        // SAFETY: it takes numbers only; 0 is the calling thread.
        let before = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        set(-20);
        Self { before }
    }
}

impl Drop for Preferred {
    fn drop(&mut self) {
        set(self.before);
    }
}

fn set(nice: i32) {
    // SAFETY: it takes numbers only; 0 is the calling thread. Without the right to it nothing changes.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}
