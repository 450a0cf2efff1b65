//! A thread that comes before other normal threads for a while.

use rustix::process::{getpriority_process, setpriority_process};

/// The best place among normal threads, until it is dropped; the thread's own one then.
pub(crate) struct Preferred {
    before: i32,
}

impl Preferred {
    /// The calling thread's. One that may not have it stays as it is: it is only slower.
    pub fn now() -> Self {
        let before = getpriority_process(None).unwrap_or_default();
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
    // None: the calling thread. Without the right to it nothing changes.
    let _ = setpriority_process(None, nice);
}
