//! Fake hosts for tests.

use crate::fair_server::file;
use crate::fake::{FakeHost, FakeState};
use crate::{HostControl, RtVm, Target};

pub use crate::fake::paper::{FIFO_50, nic, paper_host, threaded_irq};

/// What every method but `vanilla` makes of the fair servers.
pub fn bound_fair_servers(state: &mut FakeState) {
    for cpu in state.online.clone().iter() {
        state.files.insert(file(cpu, "runtime"), "1000000\n".into());
        state.files.insert(file(cpu, "period"), "20000000\n".into());
    }
}

pub fn paper_target() -> Target {
    Target {
        rt_nics: vec!["rt0".into()],
        rt_vms: vec![RtVm {
            pid: 100,
            rt_vcpus: vec![1],
        }],
        ..Target::default()
    }
}

pub fn control(host: &FakeHost, directory: &tempfile::TempDir) -> HostControl {
    HostControl::new(host.machine(), directory.path().join("state"))
}

/// A directory for a journal, in memory where there is such a place: every change is flushed.
pub fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}
