//! What is installed, and what it has counted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapFlags};
use serde::{Deserialize, Serialize};

use crate::error::{Error, asked, failed};
use crate::levels::LEVELS;
use crate::shared::{Settings, Specification};
use crate::table::{self, open};

/// Counters before those of the levels.
pub(crate) const COUNTERS: usize = 9;

/// The maps of the levels.
pub(crate) const LEVEL_MAPS: [&str; LEVELS] = ["level_0", "level_1", "level_2", "level_3"];

/// What is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// NICs that XDP is attached to.
    pub nics: Vec<String>,
    /// The settings, as the programs have them.
    settings: Vec<u8>,
    /// The names of the levels' threads, from the lowest.
    pub threads: Vec<String>,
}

/// Packets since the programs were installed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// TCP and UDP to a port.
    pub to_ports: u64,
    /// Protocols without a process.
    pub to_kernel: u64,
    /// Fragments: they go to the lowest level, in order.
    pub fragments: u64,
    /// Malformed ones: they go to the lowest level, for the host's stack to drop.
    pub malformed: u64,
    /// To ports that nobody has bound.
    pub unknown_ports: u64,
    /// That could not be handed to a level's thread, or not be marked because the driver has no room
    /// for it, and took the ordinary way.
    pub not_sent: u64,
    /// Of those to protocols without a process, those beyond the rate that is served at the highest
    /// level (1,000/s a CPU): they go to the lowest.
    pub kernel_over_rate: u64,
    /// Sockets of real-time threads that the table had no room for: their packets are of the lowest
    /// level.
    pub sockets_not_listed: u64,
    /// Of all, those whose level was given.
    #[serde(default)]
    pub named: u64,
    /// By level, from the lowest.
    pub levels: Vec<u64>,
}

/// The settings, as the programs have them.
fn settings(directory: &Path) -> Result<Settings, Error> {
    let map = open(directory, "settings")?;
    let found = asked("read the settings", || {
        map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)
    })?;
    found
        .and_then(|bytes| Settings::of_bytes(&bytes))
        .ok_or_else(|| Error {
            action: "read the settings".into(),
            cause: "they are of another version of steadyvm".into(),
        })
}

/// What is installed; none if nothing is.
///
/// # Errors
/// It is there and cannot be read: it was left half installed.
pub fn installed(directory: &Path) -> Result<Option<Installed>, Error> {
    let names = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(failed(format!("list {}", directory.display())))?,
    };
    let mut nics: Vec<String> = names
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_prefix("xdp-").map(str::to_owned))
        .collect();
    nics.sort();
    table::present(directory)?;
    let settings = settings(directory)?;
    let mut threads = Vec::new();
    for map in LEVEL_MAPS {
        if directory.join(map).exists() {
            let level = open(directory, map)?;
            let info = asked("read a level", || level.info())?;
            threads.push(format!("cpumap/{}/map:{}", settings.cpu, info.info.id));
        }
    }
    Ok(Some(Installed {
        nics,
        settings: settings.bytes(),
        threads,
    }))
}

impl Installed {
    /// Whether this is what a specification asks for.
    pub fn is(&self, specification: &Specification) -> bool {
        let mut nics = specification.nics.clone();
        nics.sort();
        self.nics == nics && self.settings == Settings::of(specification).bytes()
    }
}

/// Packets since the programs were installed.
///
/// # Errors
/// Nothing is installed.
pub fn counters(directory: &Path) -> Result<Counters, Error> {
    let map = open(directory, "counters")?;
    let read = |index: usize| Ok(of_each_cpu(&map, index)?.iter().sum());
    // The kernel's own level is the highest.
    let levels = 0..=settings(directory)?.kernel_level as usize;
    Ok(Counters {
        to_ports: read(0)?,
        to_kernel: read(1)?,
        fragments: read(2)?,
        malformed: read(3)?,
        unknown_ports: read(4)?,
        not_sent: read(5)?,
        kernel_over_rate: read(6)?,
        sockets_not_listed: read(7)?,
        named: read(8)?,
        levels: levels
            .map(|level| read(COUNTERS + level))
            .collect::<Result<_, _>>()?,
    })
}

/// A counter, CPU by CPU.
pub(crate) fn of_each_cpu(counters: &impl MapCore, index: usize) -> Result<Vec<u64>, Error> {
    let found = asked("read a counter", || {
        counters.lookup_percpu(&(index as u32).to_ne_bytes(), MapFlags::ANY)
    })?;
    let number = |bytes: Vec<u8>| bytes.try_into().map_or(0, u64::from_ne_bytes);
    Ok(found.unwrap_or_default().into_iter().map(number).collect())
}

/// Ends the programs. Nothing installed is no error.
///
/// # Errors
/// A pin cannot be removed.
pub fn remove(directory: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    // XDP first: packets take the ordinary way before the table goes.
    paths.sort_by_key(|path| {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        (!name.starts_with("xdp-"), !name.starts_with("link-"), name)
    });
    for path in paths {
        fs::remove_file(path)?;
    }
    fs::remove_dir(directory)
}
