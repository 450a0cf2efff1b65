//! One lock for the machine, wherever the journal is kept, and the place of the journal in force.
//!
//! Who wants the lock first takes the place of the next one, and keeps it until it has the lock. So whoever has
//! just released it does not get it again before the one that waits: a watch under a storm of events starves nobody.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::storage::{Directory, Storage};
use crate::error::HostError;

/// How often a taken lock is tried again.
const RETRY_EVERY: Duration = Duration::from_millis(20);

const LOCK: &str = "lock";
/// Held by the one that gets the lock next.
const NEXT: &str = "lock.next";
/// Holds the directory of the journal in force.
const IN_FORCE: &str = "in-force";
const IN_FORCE_NEW: &str = "in-force.new";

/// The directory that all callers of one machine share.
#[derive(Debug, Clone)]
pub(crate) struct Runtime {
    directory: Directory,
}

/// Held while the host is changed; the kernel releases it when the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "it is unlocked when it is dropped")
    )]
    file: Locked,
}

/// A file that is locked. It is unlocked, and not only closed: a child that is forked meanwhile has the file open, too, until
/// it executes its program, and the lock is that of all who have it open.
#[derive(Debug)]
struct Locked(File);

impl Drop for Locked {
    fn drop(&mut self) {
        // Unlocking an open file does not fail; closing it is what is left anyway.
        let _ = self.0.unlock();
    }
}

impl Runtime {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            directory: Directory::new(path),
        }
    }

    /// Takes the lock, or says who is in the way after having waited so long.
    pub fn lock(&self, wait: Duration) -> Result<Lock, HostError> {
        let path = self.directory.directory();
        let failed = |cause| HostError::io("take the lock", path.display().to_string(), cause);
        self.directory.prepare().map_err(failed)?;
        let begin = Instant::now();
        let _next = self.take(NEXT, begin, wait)?;
        let file = self.take(LOCK, begin, wait)?;
        Ok(Lock { file })
    }

    fn take(&self, name: &str, begin: Instant, wait: Duration) -> Result<Locked, HostError> {
        let path = self.directory.directory().join(name);
        let failed = |cause| HostError::io("take the lock", path.display().to_string(), cause);
        let file = self.directory.open_lock(name).map_err(failed)?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Locked(file)),
                Err(TryLockError::Error(cause)) => return Err(failed(cause)),
                Err(TryLockError::WouldBlock) if begin.elapsed() < wait => {
                    thread::sleep(RETRY_EVERY);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(HostError::Busy {
                        path: path.display().to_string(),
                    });
                }
            }
        }
    }

    /// The directory of the journal that is in force, or was.
    pub fn in_force(&self) -> Result<Option<PathBuf>, HostError> {
        let bytes = self
            .directory
            .read(IN_FORCE)
            .map_err(|cause| self.failed("read", cause))?;
        let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim_end().to_owned());
        Ok(text.filter(|text| !text.is_empty()).map(PathBuf::from))
    }

    /// Records where the journal in force will be. The caller holds the lock.
    pub fn set_in_force(&self, journal: &Path) -> Result<(), HostError> {
        let write = || -> io::Result<()> {
            let mut file = self.directory.create(IN_FORCE_NEW)?;
            file.append(format!("{}\n", journal.display()).as_bytes())?;
            file.sync()?;
            self.directory.rename(IN_FORCE_NEW, IN_FORCE)
        };
        write().map_err(|cause| self.failed("write", cause))
    }

    fn failed(&self, action: &'static str, cause: io::Error) -> HostError {
        let path = self.directory.directory().join(IN_FORCE);
        HostError::io(action, path.display().to_string(), cause)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;

    /// A watch that looks again and again: it takes the lock as soon as it has released it.
    #[test]
    fn whoever_waits_is_before_the_one_that_has_just_released_the_lock() {
        let place = tempfile::tempdir().unwrap();
        let runtime = Runtime::new(place.path());
        let (taken, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            let first = runtime.lock(Duration::ZERO).unwrap();
            let waiter = scope.spawn(|| {
                let got = runtime.lock(Duration::from_mins(1));
                let before = taken.load(Ordering::SeqCst);
                is_over.store(true, Ordering::SeqCst);
                got.map(|_lock| before)
            });
            // Until it has the place of the next one.
            let next = runtime.directory.open_lock(NEXT).unwrap();
            while next.try_lock().is_ok() {
                next.unlock().unwrap();
                thread::yield_now();
            }
            drop(first);
            while !is_over.load(Ordering::SeqCst) {
                if runtime.lock(Duration::ZERO).is_ok() {
                    taken.fetch_add(1, Ordering::SeqCst);
                }
            }
            assert_eq!(waiter.join().unwrap().unwrap(), 0);
        });
    }

    /// As a child has it between fork and exec.
    #[test]
    fn what_others_have_open_keeps_no_lock() {
        let place = tempfile::tempdir().unwrap();
        let runtime = Runtime::new(place.path());
        let lock = runtime.lock(Duration::ZERO).unwrap();
        let of_child = lock.file.0.try_clone().unwrap();
        drop(lock);
        runtime.lock(Duration::ZERO).unwrap();
        drop(of_child);
    }

    #[test]
    fn a_lock_that_is_not_released_is_waited_for_so_long_and_no_longer() {
        let place = tempfile::tempdir().unwrap();
        let runtime = Runtime::new(place.path());
        let _held = runtime.lock(Duration::ZERO).unwrap();
        for wait in [Duration::ZERO, RETRY_EVERY] {
            let refused = runtime.lock(wait).unwrap_err();
            assert!(matches!(refused, HostError::Busy { .. }), "{refused}");
        }
        // Who gave up is in nobody's way.
        let next = runtime.directory.open_lock(NEXT).unwrap();
        next.try_lock().unwrap();
    }
}
