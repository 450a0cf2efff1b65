//! Fake hosts for tests.

use crate::control::HostControl;
use crate::fake::{FakeHost, FakeState};
use crate::method::{RtVm, Target};
use crate::settings::fair_server::file;
use crate::settings::files::known;

pub use crate::fake::paper::{FIFO_50, nic, paper_host, threaded_irq};

/// What every method but `vanilla` makes of the fair servers.
pub fn bound_fair_servers(state: &mut FakeState) {
    for cpu in state.online.clone().iter() {
        state.files.insert(file(cpu, "runtime"), "1000000\n".into());
        state.files.insert(file(cpu, "period"), "20000000\n".into());
    }
}

/// The paper's host as tuned's command line boots it: its last CPU is isolated, and it has what tuned
/// sets on Debian.
pub fn tuned_host(cpus: usize) -> FakeHost {
    let host = paper_host(cpus);
    host.file(
        "/sys/devices/system/cpu/isolated",
        &format!("{}\n", cpus - 1),
    );
    for (path, ..) in known::FILES {
        host.writable_file(path, "1\n");
    }
    host.writable_file(
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "always [madvise] never\n",
    );
    let queues = "/sys/devices/virtual/workqueue";
    host.writable_file(&format!("{queues}/writeback/cpumask"), "ff\n");
    host
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
