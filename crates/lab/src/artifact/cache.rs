//! A store of things that are slow to build, keyed by everything they were built from.
//!
//! An entry is a directory `NAME-KEY` whose manifest lists each file with its size and
//! SHA-256. It is built beside, under a lock, and renamed into place when whole; so a crash
//! leaves nothing that could be mistaken for an entry. A reader checks the manifest first: an
//! entry that was changed, cut or never finished is built again. What nobody has used for a
//! while is removed when something newer of the same name is built.

use crate::progress::{News, Observer};
use crate::{At, Error, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The environment variable that moves the cache.
pub const LOCATION_VARIABLE: &str = "STEADYVM_CACHE";
const MANIFEST: &str = "manifest.json";
/// An entry counts as unused after this long: other clones on the machine may want other versions.
const UNUSED_AFTER: Duration = Duration::from_secs(30 * 24 * 3600);

/// The store.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// What an entry is built from; any difference makes another entry.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Inputs(BTreeMap<String, String>);

impl Inputs {
    /// Adds an input by name.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// The key: the first 64 bits of the inputs' SHA-256, in hexadecimal digits.
    pub fn key(&self) -> String {
        let mut digest = Sha256::new();
        for (name, value) in &self.0 {
            for part in [name, value] {
                digest.update((part.len() as u64).to_le_bytes());
                digest.update(part);
            }
        }
        hexadecimal(&digest.finalize()[..8])
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    inputs: Inputs,
    files: BTreeMap<String, FileRecord>,
}

#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
struct FileRecord {
    bytes: u64,
    sha256: String,
}

impl Cache {
    /// The machine's cache: `$STEADYVM_CACHE`, else `/var/cache/steadyvm` for root, else
    /// `~/.cache/steadyvm`.
    ///
    /// # Errors
    /// The directory cannot be made or written.
    pub fn of_this_machine() -> Result<Self> {
        let home = || env::var_os("HOME").map(PathBuf::from);
        let root = match env::var_os(LOCATION_VARIABLE) {
            Some(path) => PathBuf::from(path),
            None if nix::unistd::geteuid().is_root() => PathBuf::from("/var/cache/steadyvm"),
            None => home().unwrap_or_default().join(".cache/steadyvm"),
        };
        Self::at(root)
    }

    /// A cache in this directory, which is made if it does not exist.
    pub fn at(root: impl Into<PathBuf>) -> Result<Self> {
        let root = root.into();
        fs::create_dir_all(&root)
            .at("create the cache directory", &root)
            .map_err(|error| {
                error.what_to_do(format!(
                    "set {LOCATION_VARIABLE} to a directory you can write"
                ))
            })?;
        Ok(Self { root })
    }

    /// A directory for helpers' own caches, such as the compiler's.
    pub fn helper_directory(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The directory of the entry, built with `build` if there is no sound one.
    ///
    /// `build` gets an empty directory to fill. Two processes that want the same entry build
    /// it once; the second waits.
    ///
    /// # Errors
    /// `build`'s own, or the directory cannot be written.
    pub fn entry(
        &self,
        name: &str,
        inputs: &Inputs,
        observer: &dyn Observer,
        build: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let label = format!("{name}-{}", inputs.key());
        let entry = self.root.join(&label);
        let _lock = self.lock(&label, observer)?;
        if entry.exists() {
            match check(&entry) {
                Ok(()) => return Ok(entry),
                Err(error) => {
                    observer.tell(News::Note(format!("{error}; it is built again")));
                    fs::remove_dir_all(&entry).at("remove", &entry)?;
                }
            }
        }
        let partial = self.root.join(format!("{label}.partial"));
        if partial.exists() {
            // Somebody was interrupted: the lock says that nobody works on it now.
            fs::remove_dir_all(&partial).at("remove", &partial)?;
        }
        fs::create_dir_all(&partial).at("create", &partial)?;
        let sealed = build(&partial).and_then(|()| seal(&partial, inputs));
        if let Err(error) = sealed {
            let _ = fs::remove_dir_all(&partial);
            return Err(error);
        }
        fs::rename(&partial, &entry).at("put in place", &entry)?;
        self.remove_unused(name, &label);
        Ok(entry)
    }

    /// Removes the entries of this name, but for `kept`, whose locks nobody has taken for a
    /// while. What cannot be removed now is left for another time.
    fn remove_unused(&self, name: &str, kept: &str) {
        let now = SystemTime::now();
        for place in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            let file_name = place.file_name();
            let lock = file_name.to_string_lossy();
            let Some(label) = lock.strip_suffix(".lock") else {
                continue;
            };
            if label == kept || label.rsplit_once('-').is_none_or(|(of, _)| of != name) {
                continue;
            }
            let used = place.metadata().and_then(|metadata| metadata.modified());
            let unused_for = used.map(|used| now.duration_since(used).unwrap_or_default());
            if unused_for.is_ok_and(|time| time > UNUSED_AFTER)
                && let Ok(lock) = File::open(place.path())
                && lock.try_lock().is_ok()
            {
                let _ = fs::remove_dir_all(self.root.join(label));
            }
        }
    }

    /// Holds the entry's lock for as long as the file is open; the kernel releases it when the
    /// process ends.
    fn lock(&self, label: &str, observer: &dyn Observer) -> Result<File> {
        let path = self.root.join(format!("{label}.lock"));
        let file = File::create(&path).at("create", &path).map_err(|error| {
            error.what_to_do(format!(
                "set {LOCATION_VARIABLE} to a directory you can write"
            ))
        })?;
        if file.try_lock().is_err() {
            observer.tell(News::Note(format!(
                "another process builds {label}: waiting for it"
            )));
            file.lock().at("lock", &path)?;
        }
        // The time of the last use, for `remove_unused`.
        file.set_modified(SystemTime::now()).at("touch", &path)?;
        Ok(file)
    }
}

/// Writes the manifest that makes a directory an entry.
fn seal(directory: &Path, inputs: &Inputs) -> Result<()> {
    let manifest = Manifest {
        inputs: inputs.clone(),
        files: records(directory)?,
    };
    let path = directory.join(MANIFEST);
    let text = serde_json::to_vec_pretty(&manifest).at("describe", directory)?;
    fs::write(&path, text).at("write", &path)?;
    // The rename that follows must not reach the disk before the contents.
    let sync = || nix::unistd::syncfs(File::open(&path)?).map_err(io::Error::from);
    sync().at("write", &path)
}

/// Checks every file of an entry against its manifest.
fn check(entry: &Path) -> Result<()> {
    let what = || format!("the cache entry {} is corrupt", entry.display());
    let path = entry.join(MANIFEST);
    let text =
        fs::read(&path).map_err(|error| Error::machine(what(), format!("manifest: {error}")))?;
    let manifest: Manifest = serde_json::from_slice(&text).doing(what())?;
    let found = records(entry)?;
    for (name, record) in &manifest.files {
        if found.get(name) != Some(record) {
            return Err(Error::machine(
                what(),
                format!("{name} is not what was built"),
            ));
        }
    }
    Ok(())
}

/// Size and digest of each file below a directory, but for the manifest.
fn records(directory: &Path) -> Result<BTreeMap<String, FileRecord>> {
    let mut records = BTreeMap::new();
    let mut to_visit = vec![directory.to_path_buf()];
    while let Some(place) = to_visit.pop() {
        for child in fs::read_dir(&place).at("read", &place)? {
            let path = child.at("read", &place)?.path();
            let name = path
                .strip_prefix(directory)
                .unwrap_or(&path)
                .to_string_lossy()
                .into_owned();
            if path.is_dir() {
                to_visit.push(path);
            } else if name != MANIFEST {
                records.insert(name, record(&path)?);
            }
        }
    }
    Ok(records)
}

fn record(path: &Path) -> Result<FileRecord> {
    let mut file = File::open(path).at("read", path)?;
    let mut digest = Sha256::new();
    let bytes = io::copy(&mut file, &mut digest).at("read", path)?;
    Ok(FileRecord {
        bytes,
        sha256: hexadecimal(&digest.finalize()),
    })
}

/// A file's SHA-256 in hexadecimal digits.
pub fn sha256_of(path: &Path) -> Result<String> {
    record(path).map(|record| record.sha256)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;
    use std::cell::Cell;

    struct Fixture {
        cache: Cache,
        builds: Cell<u32>,
        _directory: tempfile::TempDir,
    }

    impl Fixture {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let cache = Cache::at(directory.path()).unwrap();
            Self {
                cache,
                builds: Cell::new(0),
                _directory: directory,
            }
        }

        fn entry(&self, version: &str) -> Result<PathBuf> {
            let inputs = Inputs::default().with("version", version);
            self.cache.entry("thing", &inputs, &Silent, |directory| {
                self.builds.set(self.builds.get() + 1);
                fs::create_dir(directory.join("deep")).unwrap();
                fs::write(directory.join("deep/file"), version).at("write", directory)
            })
        }
    }

    #[test]
    fn an_entry_is_built_once_for_the_same_inputs() {
        let fixture = Fixture::new();
        let first = fixture.entry("1").unwrap();
        assert_eq!(fixture.entry("1").unwrap(), first);
        assert_eq!(fixture.builds.get(), 1);
        assert_ne!(fixture.entry("2").unwrap(), first);
        assert_eq!(fixture.builds.get(), 2);
    }

    #[test]
    fn a_corrupt_entry_is_built_again() {
        type Damage = fn(&Path);
        let damages: [(&str, Damage); 5] = [
            ("changed", |entry| {
                fs::write(entry.join("deep/file"), "x").unwrap();
            }),
            ("cut", |entry| {
                fs::write(entry.join("deep/file"), "").unwrap();
            }),
            ("removed", |entry| {
                fs::remove_file(entry.join("deep/file")).unwrap();
            }),
            ("no manifest", |entry| {
                fs::remove_file(entry.join(MANIFEST)).unwrap();
            }),
            ("broken manifest", |entry| {
                fs::write(entry.join(MANIFEST), "{").unwrap();
            }),
        ];
        for (name, damage) in damages {
            let fixture = Fixture::new();
            damage(&fixture.entry("1").unwrap());
            let again = fixture.entry("1").unwrap();
            assert_eq!(fixture.builds.get(), 2, "{name}");
            assert_eq!(
                fs::read_to_string(again.join("deep/file")).unwrap(),
                "1",
                "{name}"
            );
        }
    }

    #[test]
    fn a_half_built_entry_is_never_used() {
        let fixture = Fixture::new();
        let inputs = Inputs::default().with("version", "1");
        let partial = fixture
            .cache
            .root
            .join(format!("thing-{}.partial", inputs.key()));
        fs::create_dir_all(partial.join("deep")).unwrap();
        fs::write(partial.join("leftover"), "half").unwrap();
        let entry = fixture.entry("1").unwrap();
        assert!(!entry.join("leftover").exists());
        assert!(!partial.exists());
    }

    #[test]
    fn a_failed_build_leaves_nothing() {
        let fixture = Fixture::new();
        let inputs = Inputs::default();
        let result = fixture.cache.entry("thing", &inputs, &Silent, |directory| {
            fs::write(directory.join("half"), "").unwrap();
            Err(Error::machine("build", "no"))
        });
        assert!(result.is_err());
        let left: Vec<_> = fs::read_dir(&fixture.cache.root)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| Path::new(name).extension() != Some("lock".as_ref()))
            .collect();
        assert_eq!(left, Vec::<String>::new());
    }

    /// Tells a channel of every note.
    struct Teller(std::sync::Mutex<std::sync::mpsc::Sender<String>>);

    impl Observer for Teller {
        fn tell(&self, news: News) {
            if let News::Note(note) = news {
                self.0.lock().unwrap().send(note).unwrap();
            }
        }
    }

    /// Locks belong to open files, so two threads stand for two processes.
    #[test]
    fn who_comes_second_waits_and_builds_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path()).unwrap();
        let inputs = Inputs::default();
        let (building, is_building) = std::sync::mpsc::channel();
        let (teller, told) = std::sync::mpsc::channel::<String>();
        std::thread::scope(|scope| {
            let (cache, inputs) = (&cache, &inputs);
            let first = scope.spawn(move || {
                cache.entry("thing", inputs, &Silent, |_| {
                    building.send(()).unwrap();
                    // It goes on when the second one has said that it waits.
                    let note = told.recv().unwrap();
                    assert!(note.contains("another process builds thing-"), "{note}");
                    Ok(())
                })
            });
            is_building.recv().unwrap();
            let teller = Teller(std::sync::Mutex::new(teller));
            let second = cache.entry("thing", inputs, &teller, |_| panic!("built twice"));
            assert_eq!(second.unwrap(), first.join().unwrap().unwrap());
        });
    }

    #[test]
    fn only_what_is_old_and_of_the_same_name_is_removed() {
        let fixture = Fixture::new();
        let inputs = |version: &str| Inputs::default().with("version", version);
        let fill = |directory: &Path| fs::write(directory.join("file"), "").at("write", directory);
        let other = fixture
            .cache
            .entry("thing-else", &inputs("1"), &Silent, fill)
            .unwrap();
        let (old, recent) = (fixture.entry("1").unwrap(), fixture.entry("2").unwrap());
        for aged in [&other, &old] {
            let lock = File::open(aged.with_extension("lock")).unwrap();
            let long_ago = SystemTime::now() - UNUSED_AFTER - Duration::from_secs(60);
            lock.set_modified(long_ago).unwrap();
        }
        let newest = fixture.entry("3").unwrap();
        assert!(!old.exists());
        assert!(other.exists() && recent.exists() && newest.exists());
        // Use counts, not age.
        assert_eq!(fixture.entry("2").unwrap(), recent);
    }

    #[test]
    fn keys_do_not_confuse_neighbouring_inputs() {
        let one = Inputs::default().with("a", "bc").with("d", "");
        let other = Inputs::default().with("a", "b").with("cd", "");
        assert_ne!(one.key(), other.key());
    }
}
