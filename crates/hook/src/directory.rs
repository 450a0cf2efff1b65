//! The directory of the files that hooks write: whole or not at all, by no other user's leave, one hook at a time.

use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};
use steadyvm_fault::{At, Fault};

use crate::error::{Result, refused};

/// The lock of all hooks; no reader takes it for a description.
const LOCK: &str = ".lock";
/// What a file is called until it is whole.
const NEW: &str = ".new";
/// How often a taken lock is tried again.
const RETRY_EVERY: Duration = Duration::from_millis(10);
/// No description is longer.
const LARGEST_FILE: u64 = 1 << 16;

/// An opened directory, in which this hook alone writes until it is dropped.
pub struct Directory {
    path: PathBuf,
    opened: File,
    _lock: File,
}

impl Directory {
    /// Opens a directory, which is made if it is not there, and takes its lock.
    ///
    /// # Errors
    /// A directory that others may write, and another hook that holds the lock until the deadline.
    pub fn lock(path: &Path, deadline: Instant) -> Result<Self> {
        let what = || format!("open {}", path.display());
        (DirBuilder::new().recursive(true).mode(0o755))
            .create(path)
            .cannot(what())?;
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let opened = nix::fcntl::open(path, flags, Mode::empty()).cannot(what())?;
        let opened = File::from(opened);
        let metadata = opened.metadata().cannot(what())?;
        if metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
            return refused(format!(
                "{} is not the hook's alone (user {}, mode {:o}): give it to root, with mode 755",
                path.display(),
                metadata.uid(),
                metadata.mode() & 0o7777
            ));
        }
        let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let lock = openat(&opened, LOCK, flags, Mode::S_IRUSR | Mode::S_IWUSR);
        let lock = File::from(lock.cannot(what())?);
        while let Err(error) = lock.try_lock() {
            match error {
                TryLockError::WouldBlock if Instant::now() < deadline => thread::sleep(RETRY_EVERY),
                TryLockError::WouldBlock => {
                    let what = format!(
                        "another hook has held {}/{LOCK} all the time",
                        path.display()
                    );
                    return Err(Fault::machine(what, "see which one hangs (fuser)").into());
                }
                TryLockError::Error(error) => Err(error).cannot(what())?,
            }
        }
        let directory = Self {
            path: path.to_owned(),
            opened,
            _lock: lock,
        };
        directory.remove_torn()?;
        Ok(directory)
    }

    /// What a hook that was killed has left half.
    fn remove_torn(&self) -> Result<()> {
        let names = self.names()?;
        let torn = names.iter().filter(|name| name.ends_with(NEW));
        torn.into_iter().try_for_each(|name| self.remove(name))
    }

    fn place(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    /// The names of all files.
    ///
    /// # Errors
    /// A directory that cannot be read.
    pub fn names(&self) -> Result<Vec<String>> {
        let entries = self.path.read_dir();
        let entries = entries.cannot(format!("read {}", self.path.display()))?;
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name != LOCK)
            .collect();
        names.sort();
        Ok(names)
    }

    /// A file's text; none if it is not there.
    ///
    /// # Errors
    /// What is no regular file, or cannot be read.
    pub fn read(&self, name: &str) -> Result<Option<String>> {
        let what = || format!("read {}", self.place(name));
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = match openat(&self.opened, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(nix::Error::ENOENT) => return Ok(None),
            Err(error) => return Ok(Err(error).cannot(what())?),
        };
        let mut text = String::new();
        (file.take(LARGEST_FILE))
            .read_to_string(&mut text)
            .cannot(what())?;
        Ok(Some(text))
    }

    /// Writes a file in the place of one that may be there: readers, and who comes after a crash, see the old or the new
    /// one, whole.
    ///
    /// # Errors
    /// What could not be written; then the old one is there.
    pub fn replace(&self, name: &str, text: &str) -> Result<()> {
        let new = format!("{name}{NEW}");
        let write = || -> io::Result<()> {
            let flags = OFlag::O_CREAT
                | OFlag::O_EXCL
                | OFlag::O_NOFOLLOW
                | OFlag::O_WRONLY
                | OFlag::O_CLOEXEC;
            let mode = Mode::S_IRUSR | Mode::S_IWUSR | Mode::S_IRGRP | Mode::S_IROTH;
            let mut file = File::from(openat(&self.opened, new.as_str(), flags, mode)?);
            file.write_all(text.as_bytes())?;
            renameat(&self.opened, new.as_str(), &self.opened, name)?;
            Ok(())
        };
        write().map_err(|error| {
            // What is left of it is removed by the next hook, if not now.
            let _ = unlinkat(&self.opened, new.as_str(), UnlinkatFlags::NoRemoveDir);
            Fault::cannot(format!("write {}", self.place(name)), error).into()
        })
    }

    /// Removes a file, which need not be there.
    ///
    /// # Errors
    /// One that cannot be removed.
    pub fn remove(&self, name: &str) -> Result<()> {
        match unlinkat(&self.opened, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(nix::Error::ENOENT) => Ok(()),
            Err(error) => Ok(Err(error).cannot(format!("remove {}", self.place(name)))?),
        }
    }
}

/// Whether a directory has such a file; without one there is nothing to forget.
pub fn has(path: &Path, name: &str) -> bool {
    match path.join(name).symlink_metadata() {
        Ok(_) => true,
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn a_file_is_replaced_whole_and_what_a_crash_left_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run/steadyvm.d");
        let directory = Directory::lock(&path, soon()).unwrap();
        directory.replace("a.toml", "one").unwrap();
        directory.replace("a.toml", "two").unwrap();
        assert_eq!(directory.read("a.toml").unwrap().as_deref(), Some("two"));
        fs::write(path.join("b.toml.new"), "ha").unwrap();
        drop(directory);
        let directory = Directory::lock(&path, soon()).unwrap();
        assert_eq!(directory.names().unwrap(), ["a.toml"]);
        directory.remove("a.toml").unwrap();
        directory.remove("a.toml").unwrap();
        assert_eq!(directory.read("a.toml").unwrap(), None);
    }

    #[test]
    fn links_are_not_followed_and_others_directories_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let victim = place.path().join("victim");
        fs::write(&victim, "whole").unwrap();
        let path = place.path().join("d");
        let directory = Directory::lock(&path, soon()).unwrap();
        symlink(&victim, path.join("a.toml.new")).unwrap();
        assert!(directory.replace("a.toml", "x").is_err());
        symlink(&victim, path.join("b.toml")).unwrap();
        assert!(directory.read("b.toml").is_err());
        directory.replace("b.toml", "x").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "whole");
        drop(directory);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Directory::lock(&path, soon()).is_err());
        symlink(place.path(), place.path().join("link")).unwrap();
        assert!(Directory::lock(&place.path().join("link"), soon()).is_err());
    }

    #[test]
    fn a_lock_that_is_held_is_waited_for_until_the_deadline() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("d");
        let _held = Directory::lock(&path, soon()).unwrap();
        let Err(error) = Directory::lock(&path, Instant::now()) else {
            panic!("two hold one lock");
        };
        assert!(error.to_string().contains("another hook"), "{error}");
    }
}
