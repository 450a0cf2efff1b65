//! Redirection between cards and taps as a setting of the host, behind a trait, so that a fake host can stand in for the real
//! one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use steadyvm_redirect::Pair;
use steadyvm_redirect::{self as redirect, Counters};

/// Where the programs are pinned, and nothing else is.
const DIRECTORY: &str = "/sys/fs/bpf/steadyvm-cards";

/// What of a pair is in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joint {
    /// Nothing.
    Absent,
    /// Both directions.
    Whole(Pair),
    /// Something else: one direction, or a device went.
    Broken,
}

/// The programs, each pair or card under a name.
pub trait Redirects: Send + Sync {
    /// What of a pair is there.
    fn joint(&self, name: &str) -> io::Result<Joint>;
    /// Joins a function with a tap.
    fn join(&self, name: &str, pair: &Pair) -> io::Result<()>;
    /// Ends what is under a name. Nothing there is no error.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Packets since the programs are there; none if they are not.
    fn counters(&self, name: &str) -> io::Result<Option<Counters>>;
}

/// The programs in the running kernel.
#[derive(Debug, Clone)]
pub struct KernelRedirects {
    directory: PathBuf,
}

impl Default for KernelRedirects {
    fn default() -> Self {
        Self::at(DIRECTORY)
    }
}

impl KernelRedirects {
    /// Programs pinned elsewhere.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
        }
    }

    /// Where the programs of a name are pinned.
    fn of(&self, name: &str) -> PathBuf {
        self.directory
            .join(Path::new(name).file_name().unwrap_or_default())
    }
}

impl Redirects for KernelRedirects {
    fn joint(&self, name: &str) -> io::Result<Joint> {
        Ok(match redirect::joined(&self.of(name)) {
            Ok(None) => Joint::Absent,
            Ok(Some(pair)) => Joint::Whole(pair),
            Err(_) => Joint::Broken,
        })
    }

    fn join(&self, name: &str, pair: &Pair) -> io::Result<()> {
        redirect::join(&self.of(name), pair).map_err(io::Error::other)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        redirect::remove(&self.of(name))?;
        // The last one takes the directory along. It is missing, or has others, in every other case.
        let _ = fs::remove_dir(&self.directory);
        Ok(())
    }

    fn counters(&self, name: &str) -> io::Result<Option<Counters>> {
        let directory = self.of(name);
        if !directory.exists() {
            return Ok(None);
        }
        redirect::counters(&directory)
            .map(Some)
            .map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_stays_once_the_last_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let cards = directory.path().join("cards");
        fs::create_dir_all(cards.join("2-0")).unwrap();
        fs::create_dir_all(cards.join("2-1")).unwrap();
        let redirects = KernelRedirects::at(&cards);
        redirects.remove("2-0").unwrap();
        assert!(cards.join("2-1").exists());
        redirects.remove("2-1").unwrap();
        assert!(!cards.exists());
        redirects.remove("2-1").unwrap();
    }

    #[test]
    fn a_name_leads_nowhere_else() {
        let redirects = KernelRedirects::at("/cards");
        assert_eq!(redirects.of("../2-0"), Path::new("/cards/2-0"));
    }
}
