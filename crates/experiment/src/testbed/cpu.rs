//! How busy the emulated host's CPUs are, as its own kernel counts.

use steadyvm_comparison::CpuTimes;
use steadyvm_lab::agent::Connection;
use steadyvm_lab::{Error, Result};

/// The host's counters now.
pub(crate) fn cpu_times(host: &Connection) -> Result<CpuTimes> {
    let text = host.text(&["head", "-n1", "/proc/stat"])?;
    CpuTimes::parse(&text).ok_or_else(|| Error::machine("read the host's /proc/stat", text))
}
