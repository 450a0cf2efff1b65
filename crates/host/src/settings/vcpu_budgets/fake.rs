//! The scheduler of virtual CPUs on the fake host.

use std::io;

use steadyvm_sched::enforcement::Enforcement;

use super::kernel::VcpuScheduler;
use crate::settings::fake::{FakeHost, error};

impl VcpuScheduler for FakeHost {
    /// Of threads that live, as the loader tells it.
    fn enforced(&self) -> io::Result<Option<Enforcement>> {
        let state = &self.lock().state;
        let mut found = state.vcpu_scheduler.clone();
        if let Some(found) = &mut found {
            found
                .vcpus
                .retain(|vcpu| state.threads.contains_key(&vcpu.tid));
        }
        Ok(found)
    }

    fn enforce(&self, wanted: &Enforcement) -> io::Result<()> {
        self.mutate(|state| {
            wanted.check().map_err(|_| error(libc::EINVAL))?;
            let lives = |tid| state.threads.contains_key(tid);
            if wanted.vcpus.iter().any(|vcpu| !lives(&vcpu.tid)) {
                return Err(error(libc::ESRCH));
            }
            state.vcpu_scheduler = Some(wanted.clone());
            Ok(())
        })
    }

    fn end(&self) -> io::Result<()> {
        self.mutate(|state| {
            state.vcpu_scheduler = None;
            Ok(())
        })
    }
}
