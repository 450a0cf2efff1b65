//! The scheduling of a fake host's threads.

use std::io;

use super::kernel::{Policy, Reserved, Scheduling, Threads};
use crate::cpu_set::CpuSet;
use crate::parse::PF_NO_SETAFFINITY;
use crate::settings::fair_server::fake::FakeReserved;
use crate::settings::fake::{FakeHost, error};

impl Threads for FakeHost {
    fn core_cookie(&self, tid: u32) -> io::Result<u64> {
        let inner = self.lock();
        if inner.state.hides_core_cookies {
            return Err(error(libc::EPERM));
        }
        let exists = inner.state.threads.contains_key(&tid);
        let cookie = inner.state.core_cookies.get(&tid).copied();
        exists
            .then(|| cookie.unwrap_or(0))
            .ok_or_else(|| error(libc::ESRCH))
    }

    fn scheduling(&self, tid: u32) -> io::Result<Scheduling> {
        let inner = self.lock();
        let thread = inner
            .state
            .threads
            .get(&tid)
            .ok_or_else(|| error(libc::ESRCH))?;
        Ok(thread.scheduling)
    }

    fn set_scheduling(&self, tid: u32, scheduling: &Scheduling) -> io::Result<()> {
        self.mutate(|state| {
            let thread = state
                .threads
                .get_mut(&tid)
                .ok_or_else(|| error(libc::ESRCH))?;
            if scheduling.policy == Policy::Deadline
                && let Some(refusals) = state.busy.get_mut(&tid).filter(|left| **left > 0)
            {
                *refusals -= 1;
                return Err(error(libc::EPERM));
            }
            thread.scheduling = *scheduling;
            Ok(())
        })
    }

    fn affinity(&self, tid: u32) -> io::Result<CpuSet> {
        let inner = self.lock();
        let thread = inner
            .state
            .threads
            .get(&tid)
            .ok_or_else(|| error(libc::ESRCH))?;
        let online = &inner.state.online;
        let allowed = match inner.state.cpusets.get(&thread.pid) {
            Some(cpuset) => cpuset.intersection(online),
            None => online.clone(),
        };
        // Where nothing of what was asked for is left, the kernel takes all that is allowed.
        let shown = thread.cpus.intersection(&allowed);
        Ok(if shown.is_empty() { allowed } else { shown })
    }

    fn set_affinity(&self, tid: u32, cpus: &CpuSet) -> io::Result<()> {
        self.mutate(|state| {
            let online = state.online.clone();
            let cpusets = state.cpusets.clone();
            let thread = state
                .threads
                .get_mut(&tid)
                .ok_or_else(|| error(libc::ESRCH))?;
            let cpus = cpus.intersection(&online);
            let allowed = match cpusets.get(&thread.pid) {
                Some(cpuset) => cpus.intersection(cpuset),
                None => cpus.clone(),
            };
            if allowed.is_empty() || thread.flags & PF_NO_SETAFFINITY != 0 {
                return Err(error(libc::EINVAL));
            }
            thread.cpus = cpus;
            Ok(())
        })
    }

    fn reserve(&self, _cpus: &CpuSet, reservation: &Scheduling) -> io::Result<Box<dyn Reserved>> {
        FakeReserved::admit(self, reservation)
    }
}
