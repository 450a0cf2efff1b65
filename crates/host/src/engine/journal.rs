//! The journal: what will be changed, on disk before it is changed.
//!
//! A file of JSON lines. The first is the [`Header`]; each further one a [`Step`] that may have
//! been made, or the mark that applying is complete. Lines are only appended, and flushed to
//! disk before the first change they describe, so that whatever was changed is in the file,
//! whenever the process or the machine stops. A torn last line describes nothing that was done.
//!
//! Rule: a journal that takes the place of another holds every step of it that may be in force
//! before it gets its name. So there is no moment at which a setting in force is recorded nowhere.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::desired::Desired;
use super::failure::Failure;
use super::storage::{Storage, StoredFile};
use crate::error::HostError;
use crate::planner::Step;
use crate::settings::Namespaces;

/// Where the journal is kept unless the caller says otherwise: gone after a reboot, as the
/// settings are.
pub const DEFAULT_STATE_DIRECTORY: &str = "/run/steadyvm/host";

const VERSION: u32 = 2;
const JOURNAL: &str = "journal.jsonl";
const BESIDE: &str = "journal.new";

/// The first line of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The version of the format.
    pub schema_version: u32,
    /// What is to be in force.
    pub desired: Desired,
    /// Since when, in seconds after 1970.
    pub applied_unix_s: u64,
    /// The same in clock ticks after boot, of the first apply: later threads have inherited their
    /// settings.
    pub applied_ticks: u64,
    /// In which boot; an earlier boot's settings are gone.
    pub boot_id: String,
    /// In which namespaces: names of devices and files are theirs.
    #[serde(default)]
    pub namespaces: Namespaces,
    /// Subjects of settings that the kernel refused and the host can do without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// The groups that could not be served.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Failure>,
}

impl Header {
    /// The version of the format.
    pub(crate) const fn version() -> u32 {
        VERSION
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Header(Box<Header>),
    Step(Box<Step>),
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
    /// These lines themselves, which are kept for the version that wrote them.
    pub unreadable_lines: Vec<String>,
}

impl Journal {
    /// Steps that may have been made, of an apply that has not come to its end.
    pub(crate) fn of(header: Header, steps: Vec<Step>) -> Self {
        Self {
            header,
            steps,
            complete: false,
            unreadable: Vec::new(),
            unreadable_lines: Vec::new(),
        }
    }
}

/// The journal of a state directory.
#[derive(Clone)]
pub(crate) struct JournalFile {
    storage: Arc<dyn Storage>,
}

/// A journal that is being written.
pub(crate) struct Writer {
    file: Box<dyn StoredFile>,
    path: PathBuf,
}

impl JournalFile {
    pub fn new(storage: Arc<dyn Storage>) -> Self {
        Self { storage }
    }

    /// Its path, for messages.
    pub fn path(&self) -> PathBuf {
        self.storage.directory().join(JOURNAL)
    }

    /// The directory that it is in.
    pub fn directory(&self) -> PathBuf {
        let path = self.storage.directory();
        path.canonicalize().unwrap_or_else(|_| path.to_owned())
    }

    /// Makes the directory, if it is not there.
    pub fn prepare(&self) -> Result<(), HostError> {
        self.storage.prepare().map_err(|cause| {
            let path = self.storage.directory().display().to_string();
            HostError::io("use the state directory", path, cause)
        })
    }

    /// Reads the journal; none if nothing is in force.
    pub fn read(&self) -> Result<Option<Journal>, HostError> {
        let bytes = self
            .storage
            .read(JOURNAL)
            .map_err(|cause| self.failed("read the journal", cause))?;
        let Some(bytes) = bytes else { return Ok(None) };
        parse(&bytes).map_err(|problem| HostError::Malformed {
            path: self.path().display().to_string(),
            problem: format!(
                "{problem}; the settings it recorded can only be cleared by a reboot: \
                 then, or if nothing was applied, remove the file"
            ),
        })
    }

    /// Puts a journal in the place of the one that may be there, which nobody ever sees half of, and
    /// goes on writing it.
    pub fn replace(&self, journal: &Journal) -> Result<Writer, HostError> {
        let file = self
            .storage
            .create(BESIDE)
            .map_err(|cause| self.failed("create the journal", cause))?;
        let path = self.path();
        let mut writer = Writer { file, path };
        let mut lines = vec![Line::Header(Box::new(journal.header.clone()))];
        let steps = journal.steps.iter().cloned().map(Box::new);
        lines.extend(steps.map(Line::Step));
        if journal.complete {
            lines.push(Line::Applied);
        }
        writer.write(&lines, &journal.unreadable_lines)?;
        self.storage
            .rename(BESIDE, JOURNAL)
            .map_err(|cause| self.failed("rename the journal", cause))?;
        self.storage
            .sync()
            .map_err(|cause| self.failed("flush the directory of the journal", cause))?;
        Ok(writer)
    }

    /// Ends the journal: nothing is in force.
    pub fn remove(&self) -> Result<(), HostError> {
        match self.storage.remove(JOURNAL) {
            Ok(()) => self
                .storage
                .sync()
                .map_err(|cause| self.failed("flush the directory of the journal", cause)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(cause) => Err(self.failed("remove the journal", cause)),
        }
    }

    fn failed(&self, action: &'static str, cause: io::Error) -> HostError {
        HostError::of_journal(action, &self.path(), cause)
    }
}

impl Writer {
    /// Records steps; they are on disk when this returns.
    pub fn record(&mut self, steps: &[Step]) -> Result<(), HostError> {
        let steps = steps.iter().cloned().map(Box::new);
        let lines: Vec<Line> = steps.map(Line::Step).collect();
        self.write(&lines, &[])
    }

    fn write(&mut self, lines: &[Line], others: &[String]) -> Result<(), HostError> {
        let mut text = String::new();
        for line in lines {
            let line = serde_json::to_string(line).map_err(|error| HostError::Malformed {
                path: self.path.display().to_string(),
                problem: error.to_string(),
            })?;
            text.push_str(&line);
            text.push('\n');
        }
        for line in others {
            text.push_str(line);
            text.push('\n');
        }
        let written = self.file.append(text.as_bytes());
        written
            .and_then(|()| self.file.sync())
            .map_err(|cause| HostError::of_journal("write the journal", &self.path, cause))
    }
}

/// Reads a journal's bytes. None: it holds not even a whole header, so nothing was done.
fn parse(bytes: &[u8]) -> Result<Option<Journal>, String> {
    let text = String::from_utf8_lossy(bytes);
    // What follows the last line end was never flushed.
    let Some((whole, _torn)) = text.rsplit_once('\n') else {
        return Ok(None);
    };
    // By line ends alone, so that what cannot be read is kept to the byte. Empty lines record nothing.
    let lines = whole.split('\n').enumerate();
    let mut lines = lines.filter(|(_, line)| !line.trim().is_empty());
    let Some((_, first)) = lines.next() else {
        return Ok(None);
    };
    let version = version_of(first);
    let header = match serde_json::from_str(first) {
        _ if version.is_some_and(|version| version != VERSION) => {
            return Err(format!(
                "its version is {}, not {VERSION}: the steadyvm that wrote it can undo it",
                version.unwrap_or_default()
            ));
        }
        Ok(Line::Header(header)) => *header,
        Ok(_) => return Err("line 1 is not a header".into()),
        Err(error) => return Err(format!("line 1: {error}")),
    };
    let mut journal = Journal::of(header, Vec::new());
    for (index, line) in lines {
        let problem = match serde_json::from_str(line) {
            Ok(Line::Step(step)) => {
                journal.steps.push(*step);
                continue;
            }
            Ok(Line::Applied) => {
                journal.complete = true;
                continue;
            }
            Ok(Line::Header(_)) => "a second header".to_owned(),
            Err(error) => error.to_string(),
        };
        journal
            .unreadable
            .push(format!("line {}: {problem}", index + 1));
        journal.unreadable_lines.push(line.to_owned());
    }
    Ok(Some(journal))
}

/// The version that a header of any version says it has.
fn version_of(line: &str) -> Option<u32> {
    let value: serde_json::Value = serde_json::from_str(line).ok()?;
    let version = value.get("header")?.get("schema_version")?.as_u64()?;
    u32::try_from(version).ok()
}
