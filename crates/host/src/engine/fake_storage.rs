//! A journal's storage that fails or stops the process at an operation of the caller's choice.

use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::storage::{Directory, Storage, StoredFile};

/// What happens at an operation that changes the storage: a write, fsync, rename, removal, creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageFault {
    /// The process is killed before it; a write has half of its bytes written.
    StopBefore,
    /// The process is killed after it.
    StopAfter,
    /// It fails with this error number; a write has half of its bytes written.
    Refuse(i32),
    /// The same, and all that need space after it fail too: the disk stays full.
    RefuseFromNow(i32),
}

/// Counts the operations and lets one of them fail.
#[derive(Debug, Default)]
struct Faults {
    operations: AtomicUsize,
    armed: Mutex<Option<(usize, StorageFault)>>,
}

/// A directory whose operations can fail.
#[derive(Debug, Clone)]
pub struct FaultyStorage {
    inner: Directory,
    faults: Arc<Faults>,
}

struct FaultyFile {
    inner: Box<dyn StoredFile>,
    faults: Arc<Faults>,
}

impl Faults {
    /// Runs an operation: whole, or what remains of it where it is cut off.
    fn run<T>(
        &self,
        needs_space: bool,
        mut whole: impl FnMut(bool) -> io::Result<T>,
    ) -> io::Result<T> {
        let now = self.operations.fetch_add(1, Ordering::SeqCst);
        let armed = *self.armed.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((at, fault)) = armed else {
            return whole(true);
        };
        match fault {
            StorageFault::StopBefore if now == at => {
                let _ = whole(false);
                resume_unwind(Box::new("killed before an operation on the journal"));
            }
            StorageFault::StopAfter if now == at => {
                let _ = whole(true);
                resume_unwind(Box::new("killed after an operation on the journal"));
            }
            StorageFault::Refuse(errno) if now == at => {
                let _ = whole(false);
                Err(io::Error::from_raw_os_error(errno))
            }
            StorageFault::RefuseFromNow(errno) if now >= at && needs_space => {
                let _ = whole(false);
                Err(io::Error::from_raw_os_error(errno))
            }
            _ => whole(true),
        }
    }
}

impl FaultyStorage {
    /// A directory without faults.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            inner: Directory::new(path),
            faults: Arc::default(),
        }
    }

    /// How many operations there were.
    pub fn operations(&self) -> usize {
        self.faults.operations.load(Ordering::SeqCst)
    }

    /// Lets the operation with this number, counted from now, fail.
    pub fn fault_at(&self, operation: usize, fault: StorageFault) {
        self.arm(Some((self.operations() + operation, fault)));
    }

    /// Removes the fault.
    pub fn heal(&self) {
        self.arm(None);
    }

    fn arm(&self, fault: Option<(usize, StorageFault)>) {
        let mut armed = self
            .faults
            .armed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *armed = fault;
    }
}

impl Storage for FaultyStorage {
    fn directory(&self) -> &Path {
        self.inner.directory()
    }

    fn prepare(&self) -> io::Result<()> {
        self.inner.prepare()
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.inner.read(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StoredFile>> {
        let create = |whole| {
            if whole {
                self.inner.create(name).map(Some)
            } else {
                Ok(None)
            }
        };
        let inner = self.faults.run(true, create)?;
        let inner = inner.ok_or_else(|| io::Error::other("cut off"))?;
        let faults = self.faults.clone();
        Ok(Box::new(FaultyFile { inner, faults }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.faults.run(false, |whole| {
            if whole {
                self.inner.rename(from, to)
            } else {
                Ok(())
            }
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.faults.run(false, |whole| {
            if whole {
                self.inner.remove(name)
            } else {
                Ok(())
            }
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.faults.run(false, |_| self.inner.sync())
    }
}

impl StoredFile for FaultyFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let inner = &mut self.inner;
        self.faults.run(true, |whole| {
            inner.append(if whole {
                bytes
            } else {
                &bytes[..bytes.len() / 2]
            })
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        let inner = &mut self.inner;
        self.faults.run(false, |_| inner.sync())
    }
}
