//! The fair server of the fake host: the two files of a CPU, and the kernel's test of the
//! bandwidth as 6.12 makes it, mistake included.

use std::io;

use super::way::{Reservation, file};
use crate::settings::fake::{FakeHost, FakeState, error};
use crate::settings::threads::{Reserved, Scheduling};

/// Deadline tasks may have 95 % of each CPU (`sched_rt_runtime_us`).
const LIMIT: u64 = (950_000 << 20) / 1_000_000;

impl FakeHost {
    /// Gives every CPU a fair server with the kernel's default.
    pub fn fair_servers(&self) {
        let cpus = self.state().online;
        for cpu in cpus.iter() {
            self.writable_file(&file(cpu, "runtime"), "50000000\n");
            self.writable_file(&file(cpu, "period"), "1000000000\n");
        }
    }
}

impl FakeState {
    /// Which CPU's fair server a path is of.
    pub(crate) fn fair_server_of(path: &str) -> Option<usize> {
        let rest = path.strip_prefix("/sys/kernel/debug/sched/fair_server/cpu")?;
        rest.split_once('/')?.0.parse().ok()
    }

    /// As `dl_server_apply_params()`: the root domain's bandwidth lacks the servers' own.
    pub(crate) fn write_fair_server(
        &mut self,
        cpu: usize,
        path: &str,
        text: &str,
    ) -> io::Result<()> {
        let number = |text: &str| text.trim().parse().map_err(|_| error(libc::EINVAL));
        let read = |state: &Self, name| {
            let content = state.files.get(&file(cpu, name));
            number(content.ok_or_else(|| error(libc::ENOENT))?)
        };
        let old = Reservation {
            runtime_ns: read(self, "runtime")?,
            period_ns: read(self, "period")?,
        };
        let value: u64 = number(text)?;
        let new = if path.ends_with("/runtime") {
            Reservation {
                runtime_ns: value,
                ..old
            }
        } else {
            Reservation {
                period_ns: value,
                ..old
            }
        };
        if new.runtime_ns > new.period_ns || !(100_000..=4_194_304_000).contains(&new.period_ns) {
            return Err(error(libc::EINVAL));
        }
        let total = self
            .deadline_bandwidth
            .wrapping_sub(old.bandwidth())
            .wrapping_add(new.bandwidth());
        if total > LIMIT * self.online.len() as u64 {
            return Err(error(libc::EBUSY));
        }
        self.deadline_bandwidth = total;
        self.files.insert(path.to_owned(), format!("{value}\n"));
        Ok(())
    }

    /// As `dl_clear_root_domain()` and what follows it: the servers are forgotten.
    pub(crate) fn recount(&mut self) {
        self.deadline_bandwidth = self.deadline_threads;
    }
}

/// A thread's reservation, counted until it is dropped.
pub(crate) struct FakeReserved {
    host: FakeHost,
    bandwidth: u64,
}

impl FakeReserved {
    pub(crate) fn admit(host: &FakeHost, asked: &Scheduling) -> io::Result<Box<dyn Reserved>> {
        let bandwidth = Reservation {
            runtime_ns: asked.runtime_ns,
            period_ns: asked.period_ns,
        }
        .bandwidth();
        let mut admitted = Err(error(libc::EBUSY));
        host.edit(|state| {
            let total = state.deadline_bandwidth.wrapping_add(bandwidth);
            if total <= LIMIT * state.online.len() as u64 {
                state.deadline_bandwidth = total;
                state.deadline_threads += bandwidth;
                admitted = Ok(());
            }
        });
        admitted?;
        Ok(Box::new(Self {
            host: host.clone(),
            bandwidth,
        }))
    }
}

impl Reserved for FakeReserved {}

impl Drop for FakeReserved {
    fn drop(&mut self) {
        self.host.edit(|state| {
            state.deadline_bandwidth = state.deadline_bandwidth.wrapping_sub(self.bandwidth);
            state.deadline_threads -= self.bandwidth;
        });
    }
}
