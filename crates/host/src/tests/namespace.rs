//! Network devices of the real kernel, in a namespace that goes with its thread.

use std::process::Command;
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// `ip WORDS`, in the namespace of the calling thread.
pub(crate) fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "ip {words}: {said}");
}

/// A thread with a network namespace and a /sys of its own, which end with it.
pub(crate) fn in_own_namespace(work: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let work = || {
            unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).unwrap();
            let none = None::<&str>;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
            mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none).unwrap();
            work();
        };
        scope.spawn(work).join().unwrap();
    });
}
