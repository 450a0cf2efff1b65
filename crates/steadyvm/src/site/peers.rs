//! Who else acts on the settings of a state directory.
//!
//! A `watch` keeps a file in force; a `measure` takes it back for a while, and a watch must then keep off.
//! Each holds a lock of the kernel on a file of its own, so it never outlives its process.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use steadyvm_host::engine::{Directory, Storage as _};

/// What a process does with the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It keeps them in force.
    Watch,
    /// It takes them back and restores them, again and again.
    Measure,
}

/// Held by a process for as long as it has a role.
#[derive(Debug)]
pub struct Held {
    _file: File,
}

/// Whoever only looks whether a lock is held holds it for a moment: that long a taker waits at most.
const PATIENCE: u32 = 50;
const RETRY_EVERY: Duration = Duration::from_millis(20);

impl Role {
    fn file(self) -> &'static str {
        match self {
            Self::Watch => "watch.lock",
            Self::Measure => "measure.lock",
        }
    }
}

/// Takes a role; none if another process has it.
pub fn hold(directory: &Path, role: Role) -> io::Result<Option<Held>> {
    Directory::new(directory).prepare()?;
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(directory.join(role.file()))?;
    for _ in 0..PATIENCE {
        match file.try_lock() {
            Ok(()) => return Ok(Some(Held { _file: file })),
            Err(TryLockError::WouldBlock) => thread::sleep(RETRY_EVERY),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(None)
}

/// Whether a process has the role. What cannot be told is taken for no.
pub fn is_held(directory: &Path, role: Role) -> bool {
    let Ok(file) = File::open(directory.join(role.file())) else {
        return false;
    };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_has_one_holder_and_ends_with_it() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("host");
        assert!(!is_held(&directory, Role::Measure));
        let held = hold(&directory, Role::Measure).unwrap().unwrap();
        assert!(is_held(&directory, Role::Measure));
        assert!(!is_held(&directory, Role::Watch));
        assert!(hold(&directory, Role::Measure).unwrap().is_none());
        drop(held);
        assert!(!is_held(&directory, Role::Measure));
        assert!(hold(&directory, Role::Measure).unwrap().is_some());
    }
}
