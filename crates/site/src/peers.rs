//! Who else acts on the settings of a state directory.
//!
//! A `watch` keeps a file in force; a `measure` takes it back for a while, and everybody else then keeps off. Each holds a lock of the
//! kernel on a file of its own, so it never outlives its process; the file says which process that is.
//!
//! `undo` holds: it leaves a file that says so, and until the next `apply` neither a watch nor a hook puts anything in force.
//! Each actor asks [`may_change`] under the lock of the machine, so that nothing happens between the question and the change.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use steadyvm_host::engine::{Directory, MayChange, Storage as _};
use steadyvm_host::{HostError, printable};
use steadyvm_sched::process::ProcessId;

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

/// Who has a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The process.
    pub process: ProcessId,
    /// What it keeps in force, or measures.
    pub what: String,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { process, what } = self;
        write!(formatter, "process {}, {}", process.pid, printable(what))
    }
}

/// Who wants to change settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor {
    /// A person, who says what is to be.
    Person,
    /// A watch or a hook, which keeps what persons have said.
    Keeper,
}

/// Whoever only looks whether a lock is held holds it for a moment: that long a taker waits at most.
const PATIENCE: u32 = 50;
const RETRY_EVERY: Duration = Duration::from_millis(20);
/// Says that an `undo` holds.
const UNDONE: &str = "undone";

impl Role {
    fn file(self) -> &'static str {
        match self {
            Self::Watch => "watch.lock",
            Self::Measure => "measure.lock",
        }
    }
}

/// Takes a role for a process, and says what it does; none if another process has it.
pub fn hold(
    directory: &Path,
    role: Role,
    process: ProcessId,
    what: &str,
) -> io::Result<Option<Held>> {
    Directory::new(directory).prepare()?;
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(directory.join(role.file()))?;
    for _ in 0..PATIENCE {
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0)?;
                file.write_all(format!("{process}\n{what}").as_bytes())?;
                return Ok(Some(Held { _file: file }));
            }
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

/// Who has the role, if anybody has.
pub fn holder(directory: &Path, role: Role) -> Option<Holder> {
    if !is_held(directory, role) {
        return None;
    }
    let text = fs::read_to_string(directory.join(role.file())).ok()?;
    let (process, what) = text.split_once('\n')?;
    Some(Holder {
        process: process.parse().ok()?,
        what: what.to_owned(),
    })
}

/// Has watches and hooks keep off until [`resume`]. Whether they did already.
pub fn suspend(directory: &Path) -> io::Result<bool> {
    let place = Directory::new(directory);
    place.prepare()?;
    if is_suspended(directory) {
        return Ok(true);
    }
    place.create(UNDONE)?.sync()?;
    Ok(false)
}

/// Lets watches and hooks go on.
pub fn resume(directory: &Path) -> io::Result<()> {
    match Directory::new(directory).remove(UNDONE) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether an `undo` holds.
pub fn is_suspended(directory: &Path) -> bool {
    directory.join(UNDONE).exists()
}

/// Whether somebody may change settings now.
///
/// # Errors
/// [`HostError::KeptOff`]: a `measure` runs, or an `undo` holds.
pub fn ask(directory: &Path, actor: Actor) -> Result<(), HostError> {
    if is_held(directory, Role::Measure) {
        let measure = holder(directory, Role::Measure);
        let process = measure.map_or_else(String::new, |held| format!(" ({held})"));
        return Err(HostError::KeptOff {
            why: format!(
                "`steadyvm measure` runs{process}: a change would be measured now, and undone at its end"
            ),
            fix: "wait for its end, or end it (`steadyvm undo --end-measure`)".into(),
        });
    }
    if actor == Actor::Keeper && is_suspended(directory) {
        return Err(HostError::KeptOff {
            why: "`steadyvm undo` took the settings back, which holds until the next apply".into(),
            fix: "run `steadyvm apply` to have them in force again".into(),
        });
    }
    Ok(())
}

/// The same question, for the engine to ask before each change.
pub fn may_change(directory: &Path, actor: Actor) -> MayChange {
    let directory = PathBuf::from(directory);
    Arc::new(move || ask(&directory, actor))
}

/// Refuses what a watch would take back at its next look.
///
/// # Errors
/// A watch runs, and it keeps another file than `file` in force.
pub fn must_not_be_watched(directory: &Path, file: Option<&Path>) -> Result<(), HostError> {
    let Some(watch) = holder(directory, Role::Watch) else {
        return Ok(());
    };
    if file.is_some_and(|file| watched_name(file) == watch.what) {
        return Ok(());
    }
    Err(HostError::BadInput {
        what: format!("`steadyvm watch` runs ({watch}) and would take this back"),
        fix: "apply the file that it keeps in force, or stop it first".into(),
    })
}

/// How a watch calls its file.
pub fn watched_name(file: &Path) -> String {
    let whole = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    whole.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_has_one_holder_and_ends_with_it() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("host");
        let own = ProcessId::own().unwrap();
        let take = || hold(&directory, Role::Measure, own, "all of it").unwrap();
        assert_eq!(holder(&directory, Role::Measure), None);
        let held = take().unwrap();
        assert!(!is_held(&directory, Role::Watch));
        let found = holder(&directory, Role::Measure).unwrap();
        assert_eq!((found.process, &*found.what), (own, "all of it"));
        assert!(take().is_none());
        drop(held);
        assert_eq!(holder(&directory, Role::Measure), None);
        assert!(take().is_some());
    }

    #[test]
    fn nobody_changes_what_is_measured_and_keepers_keep_off_while_an_undo_holds() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("host");
        let may = |actor| may_change(&directory, actor)().is_ok();
        let all = || [may(Actor::Person), may(Actor::Keeper)];
        assert_eq!(all(), [true, true]);
        assert!(!suspend(&directory).unwrap());
        assert!(suspend(&directory).unwrap());
        assert_eq!(all(), [true, false]);
        resume(&directory).unwrap();
        resume(&directory).unwrap();
        assert_eq!(all(), [true, true]);
        let own = ProcessId::own().unwrap();
        let held = hold(&directory, Role::Measure, own, "a service").unwrap();
        assert_eq!(all(), [false, false]);
        let error = ask(&directory, Actor::Person).unwrap_err();
        let process = format!("process {}, a service", own.pid);
        assert!(error.to_string().contains(&process), "{error}");
        drop(held);
        assert_eq!(all(), [true, true]);
    }

    #[test]
    fn what_a_watch_would_take_back_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let (one, other) = (place.path().join("one"), place.path().join("other"));
        fs::write(&one, "").unwrap();
        must_not_be_watched(place.path(), None).unwrap();
        let what = watched_name(&one);
        let own = ProcessId::own().unwrap();
        let _held = hold(place.path(), Role::Watch, own, &what).unwrap();
        must_not_be_watched(place.path(), Some(&one)).unwrap();
        for file in [Some(&*other), None] {
            let error = must_not_be_watched(place.path(), file).unwrap_err();
            assert!(error.to_string().contains(&what), "{error}");
        }
    }
}
