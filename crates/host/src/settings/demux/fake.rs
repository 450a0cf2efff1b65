//! Early demultiplexing on the fake host.

use std::io;

use steadyvm_demux::{Queues, Specification};

use super::kernel::{Demultiplexer, DemuxState, ListSockets, Presence};
use crate::cpu_set::CpuSet;
use crate::parse::{PF_KTHREAD, PF_NO_SETAFFINITY};
use crate::settings::fake::{FakeHost, FakeThread, error};
use crate::settings::threads::Scheduling;

/// The first level's thread; the others follow.
const FIRST_THREAD: u32 = 900;

fn level_thread(tid: u32, cpu: u32, level: u32) -> FakeThread {
    FakeThread {
        pid: tid,
        comm: format!("cpumap/{cpu}/map:{}", 7 + level),
        parent: 2,
        flags: PF_KTHREAD | PF_NO_SETAFFINITY,
        start_time: u64::from(tid) * 3,
        scheduling: Scheduling::normal(),
        cpus: CpuSet::single(cpu as usize),
    }
}

impl Demultiplexer for FakeHost {
    fn presence(&self, specification: &Specification) -> io::Result<Presence> {
        Ok(match &self.lock().state.demux {
            None => Presence::Absent,
            Some(installed) if installed == specification => Presence::Whole,
            Some(_) => Presence::Other,
        })
    }

    /// As igb does, the NICs stop and start: their IRQ threads are new ones.
    fn install(
        &self,
        specification: &Specification,
        sockets: &mut ListSockets<'_>,
    ) -> io::Result<()> {
        let entered = sockets()?;
        self.mutate(|state| {
            if state.demux.is_some() {
                return Err(error(libc::EEXIST));
            }
            state.demux = Some(specification.clone());
            state.demux_sockets = entered
                .iter()
                .map(|socket| (socket.port, socket.thread, socket.priority))
                .collect();
            if let Queues::Threads { cpu } = specification.queues {
                for level in 0..specification.levels.count() as u32 {
                    let tid = FIRST_THREAD + level;
                    state.threads.insert(tid, level_thread(tid, cpu, level));
                }
            }
            state.restart_irq_threads(&specification.nics);
            Ok(())
        })
    }

    fn refresh(&self, sockets: &mut ListSockets<'_>) -> io::Result<()> {
        let entered = sockets()?;
        let mut inner = self.lock();
        inner.state.demux_sockets = entered
            .iter()
            .map(|socket| (socket.port, socket.thread, socket.priority))
            .collect();
        Ok(())
    }

    fn remove(&self) -> io::Result<()> {
        self.mutate(|state| {
            if let Some(specification) = state.demux.take() {
                state
                    .threads
                    .retain(|_, thread| !thread.comm.starts_with("cpumap/"));
                state.demux_sockets.clear();
                state.restart_irq_threads(&specification.nics);
            }
            Ok(())
        })
    }

    fn threads(&self) -> io::Result<Vec<String>> {
        let inner = self.lock();
        let threads = inner.state.threads.range(FIRST_THREAD..);
        Ok(threads
            .filter(|(_, thread)| thread.comm.starts_with("cpumap/"))
            .map(|(_, thread)| thread.comm.clone())
            .collect())
    }

    fn state(&self) -> io::Result<Option<DemuxState>> {
        let installed = self.lock().state.demux.is_some();
        Ok(installed.then(DemuxState::default))
    }
}
