//! The file of a host's calibration.
//!
//! Rule: it is taken only from a file and a directory that nobody but root and the caller may change, and no link is
//! followed: who writes it says how little VMs are promised.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use serde::Serialize;
use steadyvm_fault::{At, Result};
use steadyvm_files::{Directory, Others, READABLE, must_be_trusted};

use crate::calibration::Calibration;
use crate::stale::{Here, Stale};

/// Where a host has its own.
pub const DEFAULT_FILE: &str = "/var/lib/steadyvm/calibration.toml";

/// No calibration is longer, bytes.
const LONGEST: u64 = 64 << 10;

/// What a file has for this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The file.
    pub file: PathBuf,
    /// What of it counts.
    pub state: State,
}

/// Whether figures count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Nothing was measured.
    Missing,
    /// The file is not to be read, or is none: why.
    Unusable(String),
    /// They do not count any more, or not here.
    Stale(Box<Calibration>, Stale),
    /// They count.
    Valid(Box<Calibration>),
}

/// A state in a word, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    /// Nothing was measured.
    Missing,
    /// The file cannot be used.
    Unusable,
    /// The figures do not count.
    Stale,
    /// They count.
    Valid,
}

impl Found {
    /// That of a file for this host.
    pub fn here(file: &Path, here: &Here, now_unix_s: u64) -> Self {
        Self::with(file, |it| it.stale(here, now_unix_s))
    }

    /// That of a file of whichever host the caller plans for.
    pub fn elsewhere(file: &Path, now_unix_s: u64) -> Self {
        Self::with(file, |it| it.stale_by_date(now_unix_s))
    }

    fn with(file: &Path, refuse: impl FnOnce(&Calibration) -> Option<Stale>) -> Self {
        let state = match read(file) {
            Ok(None) => State::Missing,
            Err(why) => State::Unusable(why.to_string()),
            Ok(Some(text)) => match Calibration::parse(&text) {
                Err(why) => State::Unusable(why.to_string()),
                Ok(calibration) => match refuse(&calibration) {
                    Some(why) => State::Stale(Box::new(calibration), why),
                    None => State::Valid(Box::new(calibration)),
                },
            },
        };
        let file = file.to_owned();
        Self { file, state }
    }

    /// The state in a word.
    pub const fn word(&self) -> Word {
        match self.state {
            State::Missing => Word::Missing,
            State::Unusable(_) => Word::Unusable,
            State::Stale(..) => Word::Stale,
            State::Valid(_) => Word::Valid,
        }
    }

    /// Figures that count.
    pub const fn valid(&self) -> Option<&Calibration> {
        match &self.state {
            State::Valid(calibration) => Some(calibration),
            _ => None,
        }
    }

    /// Why a file that is there does not count, and what to do; none if it counts, or is not there.
    pub fn refused(&self) -> Option<String> {
        let why = match &self.state {
            State::Missing | State::Valid(_) => return None,
            State::Unusable(why) => why.clone(),
            State::Stale(_, why) => why.to_string(),
        };
        Some(format!(
            "the calibration {} does not count: {why}; run `steadyvm calibrate`",
            self.file.display()
        ))
    }
}

/// Its text; none if there is no such file.
fn read(file: &Path) -> io::Result<Option<String>> {
    let absent = |error: &io::Error| error.kind() == ErrorKind::NotFound;
    let opened = Directory::of(file, Others::Refused)
        .and_then(|(directory, name)| open(&directory, &name, file));
    let opened = match opened {
        Err(error) if absent(&error) => return Ok(None),
        other => other?,
    };
    let mut text = String::new();
    opened.take(LONGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(io::Error::other("it is longer than 64 KiB"));
    }
    Ok(Some(text))
}

fn open(directory: &Directory, name: &OsStr, path: &Path) -> io::Result<File> {
    // A pipe would wait for a writer.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(directory.reach(name))?;
    let metadata = file.metadata()?;
    must_be_trusted(&metadata, &path.display().to_string())?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    Ok(file)
}

/// Puts a calibration into a file, in the place of one that may be there, in one step. The directory of the host's own is
/// made if it is not there.
///
/// # Errors
/// A directory that others may change, or that is not there; the kernel's.
pub fn write(file: &Path, calibration: &Calibration) -> Result<()> {
    let write = || -> io::Result<()> {
        if file == Path::new(DEFAULT_FILE)
            && let Some(directory) = file.parent()
        {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(directory)?;
        }
        let (directory, name) = Directory::of(file, Others::Refused)?;
        directory.replace(&name, READABLE & !0o022, |file| {
            file.write_all(calibration.text().as_bytes())?;
            file.sync_all()
        })
    };
    write().at("write", file)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::calibration::tests::calibration;

    #[test]
    fn a_file_counts_where_it_was_measured_and_nobody_else_may_have_written_it() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("calibration.toml");
        let whole = calibration();
        let here = Here {
            kernel: whole.kernel.clone(),
            cpu: whole.cpu.clone(),
        };
        let now = whole.unix_s;
        let found = || Found::here(&file, &here, now);
        assert_eq!(found().state, State::Missing);
        assert_eq!(found().refused(), None);
        write(&file, &whole).unwrap();
        assert_eq!(found().valid(), Some(&whole));
        // It replaces an old one.
        let older = Calibration {
            kernel: "6.1".into(),
            ..whole.clone()
        };
        write(&file, &older).unwrap();
        let said = found().refused().unwrap();
        assert!(
            said.contains("kernel 6.1") && said.contains("`steadyvm calibrate`"),
            "{said}"
        );
        assert_eq!(found().word(), Word::Stale);
        assert_eq!(Found::elsewhere(&file, now).valid(), Some(&older));
        assert_eq!(
            Found::elsewhere(&file, now + 100 * 86_400).word(),
            Word::Stale
        );

        fs::set_permissions(&file, Permissions::from_mode(0o646)).unwrap();
        let said = found().refused().unwrap();
        assert!(said.contains("written by others"), "{said}");
        fs::remove_file(&file).unwrap();
        let other = place.path().join("other.toml");
        write(&other, &whole).unwrap();
        symlink(&other, &file).unwrap();
        assert_eq!(found().word(), Word::Unusable);
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert_eq!(found().word(), Word::Unusable);
        fs::remove_dir(&file).unwrap();
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(found().word(), Word::Unusable);
        fs::remove_file(&file).unwrap();
        fs::write(&file, "#".repeat(LONGEST as usize + 1)).unwrap();
        assert!(found().refused().unwrap().contains("64 KiB"));
        fs::write(&file, [0xff]).unwrap();
        assert_eq!(found().word(), Word::Unusable);
    }

    #[test]
    fn a_directory_that_is_not_there_is_told() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("none/calibration.toml");
        let said = write(&file, &calibration()).unwrap_err().to_string();
        assert!(said.contains("none/calibration.toml"), "{said}");
        let missing = Found::elsewhere(&file, 0);
        assert_eq!(missing.word(), Word::Missing);
    }
}
