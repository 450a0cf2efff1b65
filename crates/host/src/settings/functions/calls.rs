//! Redirection between cards and taps as a setting of the host, behind a trait, so that a fake host can stand in for the real
//! one.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use steadyvm_redirect::{self as redirect, Counters};
pub use steadyvm_redirect::{Budget as PacketBudget, Pair, Received};

use crate::address::Address;

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

/// What of a card's XDP program is in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// Nothing.
    Absent,
    /// All of it.
    Whole,
    /// Something of it: the card went, or attaching was interrupted.
    Broken,
}

/// The programs, each pair or card under a name.
pub trait Redirects: Send + Sync {
    /// What of a pair is there.
    fn joint(&self, name: &str) -> io::Result<Joint>;
    /// Hands what a function receives to a tap.
    fn receive(&self, name: &str, pair: &Pair) -> io::Result<()>;
    /// Hands what the VM sends to the function, once the card knows its address.
    fn send(&self, name: &str, pair: &Pair) -> io::Result<()>;
    /// Ends that. Nothing there is no error.
    fn send_no_more(&self, name: &str) -> io::Result<()>;
    /// What of a card's XDP program is there.
    fn program(&self, name: &str) -> io::Result<Program>;
    /// Attaches it to a card, by its index, with a thread for other packets on each of the CPUs.
    fn attach(&self, name: &str, card: u32, cpus: &[u32]) -> io::Result<()>;
    /// The addresses that it looks for, with the index of the tap; none if it is not there.
    fn served(&self, name: &str) -> io::Result<BTreeMap<Address, u32>>;
    /// Adds one.
    fn serve(&self, name: &str, address: Address, tap: u32) -> io::Result<()>;
    /// Takes one away. One that is not there is no error.
    fn forget(&self, name: &str, address: Address) -> io::Result<()>;
    /// The budgets of those that have one; none if the program is not there.
    fn budgets(&self, name: &str) -> io::Result<BTreeMap<Address, PacketBudget>>;
    /// Gives an address that it looks for a budget, or takes it away.
    fn limit(&self, name: &str, address: Address, budget: Option<PacketBudget>) -> io::Result<()>;
    /// What has come to each address that it looks for; none if the program is not there.
    fn received(&self, name: &str) -> io::Result<BTreeMap<Address, Received>>;
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

    fn receive(&self, name: &str, pair: &Pair) -> io::Result<()> {
        redirect::receive(&self.of(name), pair).map_err(io::Error::other)
    }

    fn send(&self, name: &str, pair: &Pair) -> io::Result<()> {
        redirect::send(&self.of(name), pair).map_err(io::Error::other)
    }

    fn send_no_more(&self, name: &str) -> io::Result<()> {
        redirect::send_no_more(&self.of(name))
    }

    fn program(&self, name: &str) -> io::Result<Program> {
        let directory = self.of(name);
        if !directory.exists() {
            return Ok(Program::Absent);
        }
        let whole = redirect::addresses(&directory).is_ok();
        Ok(if whole {
            Program::Whole
        } else {
            Program::Broken
        })
    }

    fn attach(&self, name: &str, card: u32, cpus: &[u32]) -> io::Result<()> {
        redirect::by_address(&self.of(name), card, cpus).map_err(io::Error::other)
    }

    fn served(&self, name: &str) -> io::Result<BTreeMap<Address, u32>> {
        let directory = self.of(name);
        if !directory.exists() {
            return Ok(BTreeMap::new());
        }
        let found = redirect::addresses(&directory).map_err(io::Error::other)?;
        Ok(found.into_iter().collect())
    }

    fn serve(&self, name: &str, address: Address, tap: u32) -> io::Result<()> {
        redirect::serve(&self.of(name), address, tap).map_err(io::Error::other)
    }

    fn forget(&self, name: &str, address: Address) -> io::Result<()> {
        let directory = self.of(name);
        if !directory.exists() {
            return Ok(());
        }
        redirect::forget(&directory, address).map_err(io::Error::other)
    }

    fn budgets(&self, name: &str) -> io::Result<BTreeMap<Address, PacketBudget>> {
        let found = redirect::limits(&self.of(name)).map_err(io::Error::other)?;
        Ok(found.into_iter().collect())
    }

    fn limit(&self, name: &str, address: Address, budget: Option<PacketBudget>) -> io::Result<()> {
        redirect::limit(&self.of(name), address, budget).map_err(io::Error::other)
    }

    fn received(&self, name: &str) -> io::Result<BTreeMap<Address, Received>> {
        let found = redirect::received(&self.of(name)).map_err(io::Error::other)?;
        Ok(found.into_iter().collect())
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
