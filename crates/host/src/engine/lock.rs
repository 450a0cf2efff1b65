//! One lock for the machine, wherever the journal is kept, and the place of the journal in force.

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
    _file: File,
}

impl Runtime {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            directory: Directory::new(path),
        }
    }

    /// Takes the lock, or says who is in the way after having waited so long.
    pub fn lock(&self, wait: Duration) -> Result<Lock, HostError> {
        let path = self.directory.directory().join(LOCK);
        let failed = |cause| HostError::io("take the lock", path.display().to_string(), cause);
        self.directory.prepare().map_err(failed)?;
        let file = self.directory.open_lock(LOCK).map_err(failed)?;
        let begin = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock { _file: file }),
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
