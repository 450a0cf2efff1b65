//! Since when what the file wants does not hold, as a watch has seen it.
//!
//! A watch mends what it can at once. What it cannot is drift, and it notes when it saw that first; what it has
//! mended it notes too. `status` reads both from `drift.json` in the state directory, which is gone after a
//! reboot, as the settings are.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use steadyvm_host::engine::{Directory, Storage};

const FILE: &str = "drift.json";
const BESIDE: &str = "drift.new";
/// What was mended last is kept, and no more.
const MOST_MENDED: usize = 32;

/// What a watch has seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Drift {
    /// Version of this shape.
    pub schema_version: u32,
    /// Settings that do not hold, and when that was seen first, in seconds after 1970.
    pub open: BTreeMap<String, u64>,
    /// Settings that a watch has mended, the last one last.
    pub mended: Vec<Mended>,
}

/// A setting that did not hold, and holds again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mended {
    /// The setting.
    pub subject: String,
    /// When it was seen not to hold, in seconds after 1970.
    pub seen_unix_s: u64,
    /// When it held again.
    pub held_again_unix_s: u64,
}

impl Drift {
    /// Takes note of what does not hold now. What held before is new, what holds again is mended.
    pub fn see(&mut self, drifted: &BTreeSet<String>, now_unix_s: u64) {
        self.schema_version = 1;
        let gone: Vec<String> = self
            .open
            .keys()
            .filter(|subject| !drifted.contains(*subject))
            .cloned()
            .collect();
        for subject in gone {
            let seen_unix_s = self.open.remove(&subject).unwrap_or(now_unix_s);
            self.note_mended(subject, seen_unix_s, now_unix_s);
        }
        for subject in drifted {
            self.open.entry(subject.clone()).or_insert(now_unix_s);
        }
    }

    /// Takes note that these did not hold and were mended by one look, and what does not hold all the same.
    pub fn see_mended(
        &mut self,
        subjects: &BTreeSet<String>,
        drifted: &BTreeSet<String>,
        now_unix_s: u64,
    ) {
        self.see(drifted, now_unix_s);
        let known: BTreeSet<String> = self
            .mended
            .iter()
            .filter(|mended| mended.held_again_unix_s == now_unix_s)
            .map(|mended| mended.subject.clone())
            .collect();
        for subject in subjects.difference(&known) {
            self.note_mended(subject.clone(), now_unix_s, now_unix_s);
        }
    }

    fn note_mended(&mut self, subject: String, seen_unix_s: u64, held_again_unix_s: u64) {
        self.mended.push(Mended {
            subject,
            seen_unix_s,
            held_again_unix_s,
        });
        let more = self.mended.len().saturating_sub(MOST_MENDED);
        self.mended.drain(..more);
    }

    /// Reads what a watch wrote; nothing if none did, or if it cannot be read.
    pub fn read(directory: &Path) -> Self {
        let bytes = Directory::new(directory).read(FILE).ok().flatten();
        bytes
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    /// Writes it, so that nobody ever reads half of it.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        let directory = Directory::new(directory);
        directory.prepare()?;
        let mut file = directory.create(BESIDE)?;
        file.append(&serde_json::to_vec_pretty(self)?)?;
        directory.rename(BESIDE, FILE)
    }
}

/// Now, in seconds after 1970.
pub fn now_unix_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// How long ago a time was, for people.
pub fn ago(then_unix_s: u64, now_unix_s: u64) -> String {
    let seconds = now_unix_s.saturating_sub(then_unix_s);
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(subjects: &[&str]) -> BTreeSet<String> {
        subjects.iter().map(|one| (*one).to_owned()).collect()
    }

    #[test]
    fn drift_keeps_the_time_it_was_first_seen_until_it_is_mended() {
        let mut drift = Drift::default();
        drift.see(&set(&["a"]), 10);
        drift.see(&set(&["a", "b"]), 20);
        assert_eq!(drift.open["a"], 10);
        assert_eq!(drift.open["b"], 20);
        drift.see(&set(&["b"]), 30);
        assert!(!drift.open.contains_key("a"));
        let expected = Mended {
            subject: "a".into(),
            seen_unix_s: 10,
            held_again_unix_s: 30,
        };
        assert_eq!(drift.mended, [expected]);
        // It is new when it comes again.
        drift.see(&set(&["a", "b"]), 40);
        assert_eq!(drift.open["a"], 40);
    }

    #[test]
    fn what_one_look_mends_is_noted_once_with_the_time_it_was_seen() {
        let mut drift = Drift::default();
        drift.see(&set(&["a"]), 10);
        drift.see_mended(&set(&["a", "b"]), &BTreeSet::new(), 20);
        assert!(drift.open.is_empty());
        let times: Vec<(&str, u64)> = drift
            .mended
            .iter()
            .map(|mended| (mended.subject.as_str(), mended.seen_unix_s))
            .collect();
        assert_eq!(times, [("a", 10), ("b", 20)]);
    }

    #[test]
    fn it_is_read_as_it_was_written_and_garbage_is_nothing() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("state");
        assert_eq!(Drift::read(&directory), Drift::default());
        let mut drift = Drift::default();
        drift.see(&set(&["a"]), 10);
        drift.write(&directory).unwrap();
        drift.write(&directory).unwrap();
        assert_eq!(Drift::read(&directory), drift);
        std::fs::write(directory.join(FILE), "{").unwrap();
        assert_eq!(Drift::read(&directory), Drift::default());
    }

    #[test]
    fn times_are_told_in_a_unit_that_fits() {
        let told = [0, 119, 120, 7200, 172_800].map(|seconds| ago(1000, 1000 + seconds));
        assert_eq!(
            told,
            ["0 s ago", "119 s ago", "2 min ago", "2 h ago", "2 days ago"]
        );
        assert_eq!(ago(5, 1), "0 s ago");
    }

    proptest! {
        #[test]
        fn whatever_is_seen_open_is_what_does_not_hold(
            looks in prop::collection::vec(prop::collection::btree_set("[a-c]", 0..3), 1..60)
        ) {
            let mut drift = Drift::default();
            for (time, look) in looks.iter().enumerate() {
                drift.see(look, time as u64);
                let open: BTreeSet<String> = drift.open.keys().cloned().collect();
                prop_assert_eq!(&open, look);
                prop_assert!(drift.mended.len() <= MOST_MENDED);
            }
        }
    }
}
