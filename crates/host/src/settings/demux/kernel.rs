//! Early demultiplexing as a setting of the host: installed or not, behind a trait, so that a fake
//! host can stand in for the real one.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use steadyvm_demux::{self as demux, BoundSocket, Counters, Port, Specification};

/// Where the programs are pinned, and nothing else is.
const DIRECTORY: &str = "/sys/fs/bpf/steadyvm-demux";
/// Below which control group sockets are watched: all of them.
const CONTROL_GROUP: &str = "/sys/fs/cgroup";

/// Lists the sockets that are bound.
pub type ListSockets<'l> = dyn FnMut() -> io::Result<Vec<BoundSocket>> + 'l;

/// What of the programs is in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Nothing.
    Absent,
    /// All that the specification asks for.
    Whole,
    /// Something else: half of it, or for another specification.
    Other,
}

/// What the programs have counted and know.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DemuxState {
    /// Packets since they were installed.
    pub packets: Counters,
    /// The port to priority map.
    pub ports: Vec<Port>,
}

/// The programs.
pub trait Demultiplexer: Send + Sync {
    /// What of them is there.
    fn presence(&self, specification: &Specification) -> io::Result<Presence>;
    /// Loads and attaches them.
    fn install(
        &self,
        specification: &Specification,
        sockets: &mut ListSockets<'_>,
    ) -> io::Result<()>;
    /// Enters the sockets that they have missed.
    fn refresh(&self, sockets: &mut ListSockets<'_>) -> io::Result<()>;
    /// Ends them.
    fn remove(&self) -> io::Result<()>;
    /// The names of the levels' kernel threads, from the lowest; none if they are not there.
    fn threads(&self) -> io::Result<Vec<String>>;
    /// What they have counted and know; none if they are not there.
    fn state(&self) -> io::Result<Option<DemuxState>>;
}

/// The programs in the running kernel.
#[derive(Debug, Clone)]
pub struct KernelDemultiplexer {
    directory: PathBuf,
    control_group: PathBuf,
}

impl Default for KernelDemultiplexer {
    fn default() -> Self {
        Self {
            directory: DIRECTORY.into(),
            control_group: CONTROL_GROUP.into(),
        }
    }
}

impl KernelDemultiplexer {
    /// Programs pinned elsewhere, that watch the sockets of one control group only.
    pub fn at(directory: impl Into<PathBuf>, control_group: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            control_group: control_group.into(),
        }
    }

    /// Where they are pinned.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Demultiplexer for KernelDemultiplexer {
    fn presence(&self, specification: &Specification) -> io::Result<Presence> {
        Ok(match demux::installed(&self.directory) {
            Ok(None) => Presence::Absent,
            Ok(Some(installed)) if installed.is(specification) => Presence::Whole,
            Ok(Some(_)) | Err(_) => Presence::Other,
        })
    }

    fn install(
        &self,
        specification: &Specification,
        sockets: &mut ListSockets<'_>,
    ) -> io::Result<()> {
        demux::install(&self.directory, &self.control_group, specification, sockets)
            .map_err(io::Error::other)
    }

    fn refresh(&self, sockets: &mut ListSockets<'_>) -> io::Result<()> {
        demux::refresh(&self.directory, sockets).map_err(io::Error::other)
    }

    fn remove(&self) -> io::Result<()> {
        demux::remove(&self.directory)
    }

    fn threads(&self) -> io::Result<Vec<String>> {
        let installed = demux::installed(&self.directory).map_err(io::Error::other)?;
        Ok(installed.map_or_else(Vec::new, |installed| installed.threads))
    }

    fn state(&self) -> io::Result<Option<DemuxState>> {
        if !self.directory.exists() {
            return Ok(None);
        }
        let packets = demux::counters(&self.directory).map_err(io::Error::other)?;
        let ports = demux::ports(&self.directory).map_err(io::Error::other)?;
        Ok(Some(DemuxState { packets, ports }))
    }
}
