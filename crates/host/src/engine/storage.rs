//! Where a journal is kept: the few operations that it needs of a directory, behind a trait, so
//! that tests can let each of them fail or be the last.
//!
//! Rule: what a journal says is carried out as root, so it is read only from files and directories
//! that are the caller's or root's and that nobody else may write, and no symbolic link is followed.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};
use steadyvm_files::must_be_trusted;

/// No journal is larger: some 100,000 settings.
const LARGEST_FILE: u64 = 64 << 20;

/// The operations on the directory of a journal. All but `read` and `directory` change it.
pub trait Storage: Send + Sync {
    /// The directory, for messages.
    fn directory(&self) -> &Path;
    /// Makes the directory if it is not there.
    fn prepare(&self) -> io::Result<()>;
    /// A whole file; none if there is none.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;
    /// A new file, in the place of one that may be there.
    fn create(&self, name: &str) -> io::Result<Box<dyn StoredFile>>;
    /// Renames a file, in the place of one that may be there.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. `NotFound` if there is none.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Flushes names to the disk.
    fn sync(&self) -> io::Result<()>;
}

/// A file that is written.
pub trait StoredFile {
    /// Appends all bytes. On an error some of them may have been.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Flushes them to the disk.
    fn sync(&mut self) -> io::Result<()>;
}

/// A directory of the running host.
#[derive(Debug, Clone)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// The directory; made when it is needed.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Opens it, if it may be trusted.
    fn open(&self) -> io::Result<File> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let directory = File::from(open(&self.path, flags, Mode::empty())?);
        must_be_trusted(&directory.metadata()?, &self.path.display().to_string())?;
        Ok(directory)
    }

    /// Opens the lock file for writing.
    pub(crate) fn open_lock(&self, name: &str) -> io::Result<File> {
        let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let file = openat(self.open()?, name, flags, mode)?;
        Ok(File::from(file))
    }
}

impl Storage for Directory {
    fn directory(&self) -> &Path {
        &self.path
    }

    fn prepare(&self) -> io::Result<()> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)?;
        self.open().map(drop)
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let directory = match self.open() {
            Ok(directory) => directory,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // A pipe would wait for a writer.
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = match openat(&directory, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::ENOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let metadata = file.metadata()?;
        must_be_trusted(&metadata, &self.path.join(name).display().to_string())?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        let mut bytes = Vec::new();
        file.take(LARGEST_FILE).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StoredFile>> {
        let directory = self.open()?;
        match unlinkat(&directory, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let file = openat(&directory, name, flags, mode)?;
        Ok(Box::new(File::from(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let directory = self.open()?;
        Ok(renameat(&directory, from, &directory, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(self.open()?, name, UnlinkatFlags::NoRemoveDir)?)
    }

    fn sync(&self) -> io::Result<()> {
        self.open()?.sync_all()
    }
}

impl StoredFile for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}
