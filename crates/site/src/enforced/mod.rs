//! How VCPUs with a budget stand: by our `sched_ext` scheduler, or by `SCHED_DEADLINE`.

pub mod deadline;
mod report;

use std::path::Path;

use steadyvm_host::Machine;
use steadyvm_sched::service::{self, Reply, Request};
use steadyvm_sched::show::Standing;
use steadyvm_sched::{Error, is_attached};

use crate::error::Result;

pub use report::{DIRECTORY, Reports};

/// How the VCPUs stand; without a loader those of `SCHED_DEADLINE`, and threads by name beside them, or that nothing is
/// enforced.
///
/// # Errors
/// A loader that does not answer, a part of procfs that cannot be read.
pub fn look(socket: &Path, threads: &[(String, u32)], reports: &mut Reports) -> Result<Standing> {
    let mut standing = if let Some(standing) = ext_standing(socket)? {
        standing
    } else {
        let machine = Machine::real();
        let candidates = deadline::candidates(&machine, threads)?;
        deadline::standing(&machine, &candidates).unwrap_or_else(Standing::nothing)
    };
    for vcpu in &mut standing.vcpus {
        vcpu.guest = reports.of(&vcpu.vm);
    }
    Ok(standing)
}

/// How the VCPUs of our `sched_ext` scheduler stand; none if it does not have this host's threads.
///
/// # Errors
/// Its loader does not answer.
pub fn ext_standing(socket: &Path) -> Result<Option<Standing>> {
    if !is_attached() {
        return Ok(None);
    }
    match service::ask(socket, &Request::Show)? {
        Reply::Standing(standing) => Ok(Some(standing)),
        other => Err(Error::State(format!(
            "the scheduler's loader answers another question: {other:?}"
        ))
        .into()),
    }
}
