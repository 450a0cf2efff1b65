//! The journal: what will be changed, on disk before it is changed.
//!
//! A file of JSON lines. The first is the [`Header`]; each further one a [`Step`] that may have
//! been made, or the mark that applying is complete. Lines are only appended, and flushed to
//! disk before the first change they describe, so that whatever was changed is in the file,
//! whenever the process or the machine stops. A torn last line describes nothing that was done.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::change::Step;
use crate::cpu_set::CpuSet;
use crate::error::HostError;
use crate::machine::ThreadId;
use crate::method::{Method, Target};
use crate::net::Profile;

/// Where the journal is kept unless the caller says otherwise: gone after a reboot, as the
/// settings are.
pub const DEFAULT_STATE_DIRECTORY: &str = "/run/steadyvm/host";

const VERSION: u32 = 1;

/// The first line of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The version of the format.
    pub schema_version: u32,
    /// What is applied.
    pub method: Method,
    /// To what.
    pub target: Target,
    /// Since when, in seconds after 1970.
    pub applied_unix_s: u64,
    /// The same in clock ticks after boot: later threads have inherited their settings.
    pub applied_ticks: u64,
    /// In which boot; an earlier boot's settings are gone.
    pub boot_id: String,
    /// The threads that the settings are for; they are not moved off the dedicated CPU.
    pub beneficiaries: Vec<ThreadId>,
    /// The CPU that is dedicated, if one is.
    pub dedicated_cpu: Option<usize>,
    /// The CPUs that are left for everything else.
    pub other_cpus: Option<CpuSet>,
    /// The profile of the receive path, if the method has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

impl Header {
    /// A header of the current version.
    pub(crate) fn version() -> u32 {
        VERSION
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Header(Box<Header>),
    Step(Step),
    Applied,
}

/// What a journal says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    /// The first line.
    pub header: Header,
    /// What may have been changed, in order.
    pub steps: Vec<Step>,
    /// Whether applying came to its end.
    pub complete: bool,
    /// Lines in the middle that could not be read: the numbers and why.
    pub unreadable: Vec<String>,
}

impl Journal {
    /// Steps that may have been made, of an apply that has not come to its end.
    pub(crate) fn of(header: Header, steps: Vec<Step>) -> Self {
        Self {
            header,
            steps,
            complete: false,
            unreadable: Vec::new(),
        }
    }
}

/// The directory with the journal.
#[derive(Debug, Clone)]
pub struct StateDirectory {
    path: PathBuf,
}

/// Held while the host is changed; the kernel releases it when the process ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// A journal that is being written.
#[derive(Debug)]
pub struct Writer {
    file: File,
    path: PathBuf,
}

impl StateDirectory {
    /// The directory; made when it is needed.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The journal's path.
    pub fn journal_path(&self) -> PathBuf {
        self.path.join("journal.jsonl")
    }

    /// Takes the lock, or says who is in the way.
    pub fn lock(&self) -> Result<Lock, HostError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)
            .map_err(|error| failure("create the directory", &self.path, error))?;
        let path = self.path.join("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| failure("open the lock", &path, error))?;
        // SAFETY: the descriptor is open: it belongs to `file`, which lives beyond the call.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(Lock { _file: file });
        }
        let error = io::Error::last_os_error();
        if error.kind() == io::ErrorKind::WouldBlock {
            return Err(HostError::Busy {
                path: path.display().to_string(),
            });
        }
        Err(failure("take the lock", &path, error))
    }

    /// Reads the journal; none if nothing is in force.
    pub fn read(&self) -> Result<Option<Journal>, HostError> {
        let path = self.journal_path();
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failure("read the journal", &path, error)),
        };
        parse(&bytes).map_err(|problem| HostError::Malformed {
            path: path.display().to_string(),
            problem: format!(
                "{problem}; the settings it recorded can only be cleared by a reboot: \
                 then, or if nothing was applied, remove the file"
            ),
        })
    }

    /// Starts a journal with the steps that are in force already. It takes the place of the one before only
    /// when all of it is on disk: written beside and renamed, so that no crash and no full disk loses a step.
    pub fn create(&self, header: &Header, steps: &[Step]) -> Result<Writer, HostError> {
        let path = self.journal_path();
        let beside = self.path.join("journal.new");
        let file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&beside)
            .map_err(|error| failure("create the journal", &beside, error))?;
        let mut writer = Writer {
            file,
            path: beside.clone(),
        };
        let mut lines = vec![Line::Header(Box::new(header.clone()))];
        lines.extend(steps.iter().cloned().map(Line::Step));
        writer.write(&lines)?;
        self.publish(&beside, &path)?;
        writer.path = path;
        Ok(writer)
    }

    /// Replaces the journal by what is left of it.
    pub fn keep_only(&self, journal: &Journal, steps: Vec<Step>) -> Result<(), HostError> {
        self.replace(&Journal::of(journal.header.clone(), steps))
    }

    /// Replaces the journal by another, which nobody ever sees half of.
    pub fn replace(&self, journal: &Journal) -> Result<(), HostError> {
        let beside = self.path.join("journal.new");
        let file =
            File::create(&beside).map_err(|error| failure("create the journal", &beside, error))?;
        let mut writer = Writer {
            file,
            path: beside.clone(),
        };
        let mut lines = vec![Line::Header(Box::new(journal.header.clone()))];
        lines.extend(journal.steps.iter().cloned().map(Line::Step));
        if journal.complete {
            lines.push(Line::Applied);
        }
        writer.write(&lines)?;
        self.publish(&beside, &self.journal_path())
    }

    /// Ends the journal: nothing is in force.
    pub fn remove(&self) -> Result<(), HostError> {
        let path = self.journal_path();
        match fs::remove_file(&path) {
            Ok(()) => self.flush_directory(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failure("remove the journal", &path, error)),
        }
    }

    fn publish(&self, from: &Path, to: &Path) -> Result<(), HostError> {
        fs::rename(from, to).map_err(|error| failure("rename the journal", to, error))?;
        self.flush_directory()
    }

    fn flush_directory(&self) -> Result<(), HostError> {
        File::open(&self.path)
            .and_then(|directory| directory.sync_all())
            .map_err(|error| failure("flush the directory", &self.path, error))
    }
}

impl Writer {
    /// Records steps; they are on disk when this returns.
    pub fn record(&mut self, steps: &[Step]) -> Result<(), HostError> {
        let lines: Vec<Line> = steps.iter().cloned().map(Line::Step).collect();
        self.write(&lines)
    }

    /// Marks that applying is complete.
    pub fn complete(&mut self) -> Result<(), HostError> {
        self.write(&[Line::Applied])
    }

    fn write(&mut self, lines: &[Line]) -> Result<(), HostError> {
        let mut text = String::new();
        for line in lines {
            text.push_str(
                &serde_json::to_string(line).map_err(|error| HostError::Malformed {
                    path: self.path.display().to_string(),
                    problem: error.to_string(),
                })?,
            );
            text.push('\n');
        }
        self.file
            .write_all(text.as_bytes())
            .and_then(|()| self.file.sync_all())
            .map_err(|error| failure("write the journal", &self.path, error))
    }
}

/// Reads a journal's bytes. None: it holds not even a whole header, so nothing was done.
fn parse(bytes: &[u8]) -> Result<Option<Journal>, String> {
    let text = String::from_utf8_lossy(bytes);
    // What follows the last line end was never flushed.
    let Some((whole, _torn)) = text.rsplit_once('\n') else {
        return Ok(None);
    };
    let mut lines = whole.lines().enumerate();
    let Some((_, first)) = lines.next() else {
        return Ok(None);
    };
    let header = match serde_json::from_str(first) {
        Ok(Line::Header(header)) => *header,
        Ok(_) => return Err("line 1 is not a header".into()),
        Err(error) => return Err(format!("line 1: {error}")),
    };
    if header.schema_version != VERSION {
        return Err(format!(
            "its version is {}, not {VERSION}",
            header.schema_version
        ));
    }
    let mut journal = Journal::of(header, Vec::new());
    for (index, line) in lines {
        match serde_json::from_str(line) {
            Ok(Line::Step(step)) => journal.steps.push(step),
            Ok(Line::Applied) => journal.complete = true,
            Ok(Line::Header(_)) => {
                journal
                    .unreadable
                    .push(format!("line {}: a second header", index + 1));
            }
            Err(error) => journal
                .unreadable
                .push(format!("line {}: {error}", index + 1)),
        }
    }
    Ok(Some(journal))
}

fn failure(action: &'static str, path: &Path, error: io::Error) -> HostError {
    HostError::io(action, path.display().to_string(), error)
}
