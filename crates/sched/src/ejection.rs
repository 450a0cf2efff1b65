//! Ends that the kernel made of the scheduler: remembered, so that a cause that stays is not loaded again and again.
//!
//! The loader notes each beside its socket, with the kernel's reason. Who starts loaders asks [`verdict`] before: after the
//! first end it waits a little, after the second longer, and after the third within ten minutes nobody starts one until a
//! person does (`steadyvm apply`). The directory of the socket is gone with the boot.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// So many are kept: more than the verdict needs.
const KEPT: usize = 8;
/// So many ends within [`WINDOW_S`] are the last.
const MOST: usize = 3;
const WINDOW_S: u64 = 600;
/// Pauses after the first and the second end within [`WINDOW_S`].
const PAUSES_S: [u64; 2] = [10, 60];

/// The kernel has ended the scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ejection {
    /// When, in seconds after the boot: the clock that nobody sets.
    pub boottime_s: u64,
    /// When, in seconds after 1970.
    pub unix_s: u64,
    /// The kernel's words.
    pub reason: String,
}

/// Whether a loader may be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    MayRun,
    /// Not yet.
    Waits {
        /// Until then, in seconds after the boot.
        until_boottime_s: u64,
    },
    /// Not until a person asks for it.
    GivenUp,
}

/// Seconds after the boot, sleep included.
pub fn boottime_s() -> u64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |now| now.tv_sec().unsigned_abs())
}

/// What follows from these ends, the last one last.
pub fn verdict(ends: &[Ejection], now_boottime_s: u64) -> Verdict {
    let Some(last) = ends.last() else {
        return Verdict::MayRun;
    };
    let recent = ends
        .iter()
        .filter(|end| last.boottime_s.saturating_sub(end.boottime_s) < WINDOW_S);
    let count = recent.count();
    if count >= MOST {
        return Verdict::GivenUp;
    }
    let until_boottime_s = last.boottime_s + PAUSES_S[count.min(PAUSES_S.len()) - 1];
    if now_boottime_s < until_boottime_s {
        Verdict::Waits { until_boottime_s }
    } else {
        Verdict::MayRun
    }
}

fn file(socket: &Path) -> PathBuf {
    socket.with_extension("ejections")
}

/// The ends that were noted beside this socket, the last one last. What cannot be read was none.
pub fn read(socket: &Path) -> Vec<Ejection> {
    let text = fs::read_to_string(file(socket)).unwrap_or_default();
    let lines = text.lines();
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Notes an end.
///
/// # Errors
/// The file cannot be written.
pub fn note(socket: &Path, reason: &str) -> io::Result<()> {
    let mut ends = read(socket);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    ends.push(Ejection {
        boottime_s: boottime_s(),
        unix_s: now.map_or(0, |now| now.as_secs()),
        reason: reason.to_owned(),
    });
    let mut text = String::new();
    for end in &ends[ends.len().saturating_sub(KEPT)..] {
        text += &serde_json::to_string(end)?;
        text.push('\n');
    }
    let (path, new) = (file(socket), socket.with_extension("ejections.new"));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    let mut written = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    written.write_all(text.as_bytes())?;
    fs::rename(&new, &path)
}

/// Forgets them: the next loader may be started at once.
///
/// # Errors
/// The file cannot be removed.
pub fn forget(socket: &Path) -> io::Result<()> {
    match fs::remove_file(file(socket)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: &[u64]) -> Vec<Ejection> {
        let one = |&boottime_s| Ejection {
            boottime_s,
            unix_s: 0,
            reason: String::new(),
        };
        seconds.iter().map(one).collect()
    }

    #[test]
    fn the_first_two_ends_are_waited_after_and_the_third_within_ten_minutes_is_the_last() {
        let waits = |until_boottime_s| Verdict::Waits { until_boottime_s };
        for (ends, now, expected) in [
            (&[][..], 0, Verdict::MayRun),
            (&[100], 100, waits(110)),
            (&[100], 110, Verdict::MayRun),
            (&[100, 140], 150, waits(200)),
            (&[100, 140], 200, Verdict::MayRun),
            (&[100, 140, 230], 231, Verdict::GivenUp),
            // For good.
            (&[100, 140, 230], 100_000, Verdict::GivenUp),
            // Long apart they are no pattern.
            (&[100, 800, 1500], 1505, waits(1510)),
            (&[100, 800, 1000], 1005, waits(1060)),
        ] {
            assert_eq!(verdict(&at(ends), now), expected, "{ends:?} at {now}");
        }
    }

    #[test]
    fn ends_are_noted_with_their_reason_and_forgotten() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("sched.sock");
        assert!(read(&socket).is_empty());
        forget(&socket).unwrap();
        for number in 0..=KEPT {
            note(&socket, &format!("runnable task stall {number}")).unwrap();
        }
        let found = read(&socket);
        assert_eq!(found.len(), KEPT);
        assert_eq!(
            found[KEPT - 1].reason,
            format!("runnable task stall {KEPT}")
        );
        assert!(found[0].unix_s > 0);
        assert_eq!(verdict(&found, boottime_s()), Verdict::GivenUp);
        forget(&socket).unwrap();
        assert_eq!(verdict(&read(&socket), boottime_s()), Verdict::MayRun);
    }
}
