//! Files that a program of root writes where a caller says.
//!
//! A directory is opened once, component by component, and what is in it is reached by it: who renames it meanwhile gains
//! nothing, and no link is followed that others have made. A file is always new (`O_EXCL`), and takes the place of an older
//! one in one step. So nobody leads root's process to a file that is not theirs.
//!
//! What a service writes again and again, with words of others in it, goes only where nobody else can change anything.
//!
//! A user who is not root loses nothing to others but files of their own: their paths are taken as they are.

#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, readlinkat, renameat};
use nix::sys::stat::{Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

/// As many links as Linux follows in one path.
const MOST_LINKS: u32 = 40;
/// How often a name is taken from those who are in its place.
const MOST_TRIES: u32 = 16;
const STICKY: u32 = 0o1000;
/// Of files that others may read, as the umask allows.
pub const READABLE: u32 = 0o666;

/// Who else may change a directory, or what is above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// Nobody, or it is refused.
    Refused,
    /// Anybody: what is written there is theirs to change as well.
    Allowed,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileType {
    /// Bytes.
    RegularFile,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
    /// A pipe with a name.
    Fifo,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
}

impl FileType {
    fn of(mode: u32) -> Self {
        match SFlag::from_bits_truncate(mode) & SFlag::S_IFMT {
            SFlag::S_IFDIR => Self::Directory,
            SFlag::S_IFLNK => Self::Symlink,
            SFlag::S_IFSOCK => Self::Socket,
            SFlag::S_IFIFO => Self::Fifo,
            SFlag::S_IFCHR => Self::CharacterDevice,
            SFlag::S_IFBLK => Self::BlockDevice,
            _ => Self::RegularFile,
        }
    }
}

/// A directory that was opened.
#[derive(Debug)]
pub struct Directory {
    file: File,
    path: PathBuf,
}

impl Directory {
    /// Opens a directory. Root follows no links of others to it, and goes only where `others` says.
    ///
    /// # Errors
    /// Who may change it, and where; the kernel's.
    pub fn open(path: &Path, others: Others) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let file = if geteuid().is_root() {
            walk(path, others)?
        } else {
            let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
            File::from(open(path, flags, Mode::empty())?)
        };
        Ok(Self {
            file,
            path: path.to_owned(),
        })
    }

    /// Opens the directory that a file is in, or will be, and says what the file is called there.
    ///
    /// # Errors
    /// As [`Self::open`]; a path that ends with no name.
    pub fn of(file: &Path, others: Others) -> io::Result<(Self, OsString)> {
        let name = file.file_name().ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "it does not end with a name")
        })?;
        let directory = file.parent().unwrap_or(Path::new(""));
        Ok((Self::open(directory, others)?, name.to_owned()))
    }

    /// A path by which the kernel finds a file of it, whatever it is called by now.
    pub fn reach(&self, name: &OsStr) -> PathBuf {
        Path::new("/proc/self/fd")
            .join(self.file.as_raw_fd().to_string())
            .join(name)
    }

    /// What a file of it is, no link followed; none if there is none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn kind(&self, name: &OsStr) -> io::Result<Option<FileType>> {
        match fstatat(&self.file, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::of(stat.st_mode))),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a file that is not there yet. `mode` is cut by the umask.
    ///
    /// # Errors
    /// The kernel's.
    pub fn create(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        let flags =
            OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(mode);
        Ok(openat(&self.file, name, flags, mode)?.into())
    }

    /// Removes a file; a link, not what it leads to.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.file, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Makes a file with what `write` gives it and puts it in the place of one that may be there, in one step.
    ///
    /// # Errors
    /// Something else than a file in its place; what `write` says; the kernel's.
    pub fn replace(
        &self,
        name: &OsStr,
        mode: u32,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<()> {
        self.must_be_a_file(name)?;
        let (beside, mut file) = self.create_beside(name, mode)?;
        let done = write(&mut file)
            .and_then(|()| Ok(renameat(&self.file, beside.as_os_str(), &self.file, name)?));
        if done.is_err() {
            let _ = self.remove(&beside);
        }
        done
    }

    /// A new file in the place of one that may be there, for a caller who writes to it as long as it runs.
    ///
    /// # Errors
    /// Something else than a file in its place; the kernel's.
    pub fn create_anew(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        self.must_be_a_file(name)?;
        let (beside, file) = self.create_beside(name, mode)?;
        renameat(&self.file, beside.as_os_str(), &self.file, name)
            .inspect_err(|_| drop(self.remove(&beside)))?;
        Ok(file)
    }

    fn must_be_a_file(&self, name: &OsStr) -> io::Result<()> {
        let what = match self.kind(name)? {
            None | Some(FileType::RegularFile) => return Ok(()),
            Some(FileType::Symlink) => "a symbolic link: name the file that is meant",
            Some(FileType::Directory) => "a directory: name a file in it",
            Some(_) => "no regular file: name another place",
        };
        let path = self.path.join(name);
        refuse(format!("{} is {what}", path.display()))
    }

    fn create_beside(&self, name: &OsStr, mode: u32) -> io::Result<(OsString, File)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut beside = OsString::from(".");
        beside.push(name);
        beside.push(format!(".{}.{number}.new", std::process::id()));
        for _ in 0..MOST_TRIES {
            match self.create(&beside, mode) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    // Of a process that was killed, or of somebody else, where others may write: only the name goes.
                    let _ = self.remove(&beside);
                }
                created => return Ok((beside, created?)),
            }
        }
        refuse(format!(
            "somebody makes files in {} as fast as this program does",
            self.path.display()
        ))
    }
}

/// Puts a file with these bytes in the place of one that may be there, in one step.
///
/// # Errors
/// As [`Directory::open`] and [`Directory::replace`].
pub fn write(file: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let (directory, name) = Directory::of(file, Others::Allowed)?;
    directory.replace(&name, READABLE, |file| file.write_all(bytes.as_ref()))
}

/// A new file in the place of one that may be there.
///
/// # Errors
/// As [`Directory::open`] and [`Directory::create_anew`].
pub fn create(file: &Path) -> io::Result<File> {
    let (directory, name) = Directory::of(file, Others::Allowed)?;
    directory.create_anew(&name, READABLE)
}

/// Fails if somebody other than root and the caller may change a file or directory.
///
/// # Errors
/// Who may, and what to do.
pub fn must_be_trusted(metadata: &Metadata, name: &str) -> io::Result<()> {
    must_be_owned(metadata.uid(), name)?;
    must_not_be_shared(metadata.mode(), name)
}

fn must_be_owned(owner: u32, name: &str) -> io::Result<()> {
    let own = geteuid().as_raw();
    if owner == 0 || owner == own {
        return Ok(());
    }
    refuse(format!(
        "{name} belongs to user {owner}, who could make steadyvm write any file: name a directory of root's, or chown it"
    ))
}

fn must_not_be_shared(mode: u32, name: &str) -> io::Result<()> {
    if mode & 0o022 == 0 {
        return Ok(());
    }
    refuse(format!(
        "{name} may be written by others (mode {:o}): chmod go-w, if nobody did, or name another directory",
        mode & 0o7777
    ))
}

fn refuse<T>(why: String) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Opens a directory component by component.
fn walk(path: &Path, others: Others) -> io::Result<File> {
    // What is left to do, the next last.
    let mut left: Vec<OsString> = Vec::new();
    let push = |left: &mut Vec<OsString>, path: &Path| {
        let parts = path.components().rev().filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        });
        left.extend(parts);
    };
    let here = if path.is_absolute() {
        PathBuf::new()
    } else {
        std::env::current_dir()?
    };
    push(&mut left, &here.join(path));
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut at = File::from(open("/", flags, Mode::empty())?);
    let mut name = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = left.pop() {
        if others == Others::Refused {
            let (metadata, name) = (at.metadata()?, name.display().to_string());
            must_be_owned(metadata.uid(), &name)?;
            // With the sticky bit nobody takes away what is root's.
            if metadata.mode() & STICKY == 0 {
                must_not_be_shared(metadata.mode(), &name)?;
            }
        }
        let stat = fstatat(&at, part.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW)?;
        if FileType::of(stat.st_mode) != FileType::Symlink {
            at = openat(&at, part.as_os_str(), flags, Mode::empty())?.into();
            if part == ".." {
                name.pop();
            } else {
                name.push(part);
            }
            continue;
        }
        must_be_owned(stat.st_uid, &name.join(&part).display().to_string())?;
        links += 1;
        if links > MOST_LINKS {
            return Err(Errno::ELOOP.into());
        }
        let target = readlinkat(&at, part.as_os_str())?;
        let target = Path::new(&target);
        if target.is_absolute() {
            at = open("/", flags, Mode::empty())?.into();
            name = PathBuf::from("/");
        }
        push(&mut left, target);
    }
    if others == Others::Refused {
        must_be_trusted(&at.metadata()?, &name.display().to_string())?;
    }
    Ok(at)
}

#[cfg(test)]
mod tests;
