//! The files of a fake host.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::io;
use std::time::Duration;

use super::tree::HostTree;
use crate::cpu_set::CpuSet;
use crate::parse::PF_KTHREAD;
use crate::settings::fake::{FakeHost, FakeIrq, FakeState, FakeThread, error};
use crate::settings::threads::Scheduling;

impl FakeState {
    pub(crate) fn real(&self, path: &str) -> String {
        let mut path = path.trim_end_matches('/').to_owned();
        for _ in 0..8 {
            let link = self.links.iter().rev().find(|(link, _)| {
                path.strip_prefix(link.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            });
            let Some((link, target)) = link else { break };
            path = format!("{target}{}", &path[link.len()..]);
        }
        path
    }

    pub(crate) fn content(&self, path: &str) -> Option<String> {
        let path = self.real(path);
        if let Some(content) = self.files.get(&path) {
            return Some(content.clone());
        }
        if path == "/proc/interrupts" {
            let mut text = " ".repeat(11);
            for cpu in self.online.iter() {
                let _ = write!(text, "CPU{cpu}       ");
            }
            for (irq, fake) in &self.irqs {
                let counts = " 0".repeat(self.online.len());
                let _ = write!(
                    text,
                    "\n{irq:3}:{counts}  PCI-MSI {irq}-edge      {}",
                    fake.name
                );
            }
            return Some(text + "\n");
        }
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match parts.as_slice() {
            ["proc", pid, "task", tid, "stat"] => {
                let tid: u32 = tid.parse().ok()?;
                let thread = self.threads.get(&tid)?;
                (thread.pid.to_string() == *pid).then(|| {
                    format!(
                        "{tid} ({}) S {} 0 0 0 -1 {} 0 0 0 0 0 0 0 0 20 0 1 0 {} 0 0\n",
                        thread.comm, thread.parent, thread.flags, thread.start_time
                    )
                })
            }
            ["proc", pid, "status"] => {
                let pid: u32 = pid.parse().ok()?;
                let is_there = self.threads.values().any(|thread| thread.pid == pid);
                let user = self.users.get(&pid).copied().unwrap_or_default();
                is_there.then(|| format!("Name:\tx\nUid:\t{user}\t{user}\t{user}\t{user}\n"))
            }
            ["proc", "irq", irq, "smp_affinity_list"] => {
                Some(format!("{}\n", self.irqs.get(&irq.parse().ok()?)?.cpus))
            }
            ["proc", "irq", irq, "effective_affinity_list"] => Some(format!(
                "{}\n",
                self.irqs.get(&irq.parse().ok()?)?.effective
            )),
            _ => None,
        }
    }

    /// As `debugfs_locked_down()`: EPERM also for who only reads.
    pub(crate) fn open(&self, path: &str) -> io::Result<()> {
        let is_kept = self.locked_down
            && path.starts_with("/sys/kernel/debug/")
            && self.writable.contains(path);
        if is_kept {
            Err(error(libc::EPERM))
        } else {
            Ok(())
        }
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = self.files.keys().cloned().collect();
        paths.extend(self.links.keys().cloned());
        for (tid, thread) in &self.threads {
            paths.push(format!("/proc/{}/task/{tid}/stat", thread.pid));
        }
        paths.extend(
            self.irqs
                .keys()
                .map(|irq| format!("/proc/irq/{irq}/smp_affinity_list")),
        );
        paths
    }

    /// As the kernel does when a NIC's NAPI is first threaded.
    pub(crate) fn start_napi_threads(&mut self, device: &str) {
        let name = device.rsplit('/').next().unwrap_or(device).to_owned();
        for (index, tid) in self
            .napi_threads
            .remove(&name)
            .into_iter()
            .flatten()
            .enumerate()
        {
            let thread = FakeThread {
                pid: tid,
                comm: format!("napi/{name}-{}", 8193 + index),
                parent: 2,
                flags: PF_KTHREAD,
                start_time: u64::from(tid) * 3,
                scheduling: Scheduling::normal(),
                cpus: self.online.clone(),
            };
            self.threads.insert(tid, thread);
        }
    }

    /// As the kernel does since Linux 6.17: each NAPI that is threaded has a thread, and no other.
    pub(crate) fn thread_napis(&mut self, device: &str) {
        for napi in self.napis.get_mut(device).into_iter().flatten() {
            let tid = 50_000 + napi.id;
            if napi.threaded.is_none_or(|it| it == 0) {
                napi.thread = None;
                self.threads.remove(&tid);
                continue;
            }
            napi.thread = Some(tid);
            self.threads.entry(tid).or_insert_with(|| FakeThread {
                pid: tid,
                comm: format!("napi/{device}-{}", napi.id),
                parent: 2,
                flags: PF_KTHREAD,
                start_time: u64::from(tid) * 3,
                scheduling: Scheduling::normal(),
                cpus: self.online.clone(),
            });
        }
    }

    /// As when a NIC goes down and up: its IRQ threads are new, with the kernel's priority.
    pub(crate) fn restart_irq_threads(&mut self, nics: &[String]) {
        let of_nics = |thread: &FakeThread| {
            let name = thread.comm.split_once('-').map_or("", |(_, action)| action);
            thread.comm.starts_with("irq/") && nics.iter().any(|nic| name.starts_with(nic.as_str()))
        };
        for thread in self.threads.values_mut().filter(|thread| of_nics(thread)) {
            thread.start_time += 1;
            thread.scheduling = Scheduling::fifo(50, 0);
        }
    }

    pub(crate) fn fire(&mut self) {
        self.files.append(&mut self.after_waiting);
        for irq in self.irqs.values_mut() {
            irq.move_to_mask();
        }
    }
}

impl FakeIrq {
    /// As x86 does: the current CPU is kept as long as the mask allows it.
    pub(crate) fn move_to_mask(&mut self) {
        if !self.cpus.contains(self.effective) {
            self.effective = self.cpus.iter().next().unwrap_or(self.effective);
        }
    }
}

/// What a file shows that has a word of several, `old`, in brackets, when another is chosen.
fn chosen(old: &str, value: &str) -> Option<String> {
    old.contains('[').then(|| {
        let words = old.split_whitespace().map(|word| {
            let word = word.trim_matches(['[', ']']);
            if word == value {
                format!("[{word}]")
            } else {
                word.to_owned()
            }
        });
        words.collect::<Vec<_>>().join(" ")
    })
}

impl HostTree for FakeHost {
    fn read_bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        let inner = self.lock();
        inner.state.open(path)?;
        let content = inner.state.content(path);
        content
            .map(String::into_bytes)
            .ok_or_else(|| error(libc::ENOENT))
    }

    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        self.mutate(|state| {
            let path = state.real(path);
            let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
            if let ["proc", "irq", irq, "smp_affinity_list"] = parts.as_slice() {
                let number: u32 = irq.parse().map_err(|_| error(libc::ENOENT))?;
                let cpus: CpuSet = value.parse().map_err(|_| error(libc::EINVAL))?;
                let online = state.online.clone();
                let irq = state
                    .irqs
                    .get_mut(&number)
                    .ok_or_else(|| error(libc::ENOENT))?;
                if irq.managed {
                    return Err(error(libc::EIO));
                }
                if cpus.intersection(&online).is_empty() {
                    return Err(error(libc::EINVAL));
                }
                irq.cpus = cpus;
                if !irq.deferred {
                    irq.move_to_mask();
                }
                return Ok(());
            }
            if !state.files.contains_key(&path) {
                return Err(error(libc::ENOENT));
            }
            state.open(&path)?;
            if state.unthreadable.contains(&path) {
                return Err(error(libc::EOPNOTSUPP));
            }
            if !state.writable.contains(&path) {
                return Err(error(libc::EACCES));
            }
            if let Some(cpu) = FakeState::fair_server_of(&path) {
                return state.write_fair_server(cpu, &path, value);
            }
            if let (true, Ok(count)) = (path.ends_with("/sriov_numvfs"), value.parse()) {
                let present: u32 = state
                    .files
                    .get(&path)
                    .and_then(|text| text.trim().parse().ok())
                    .unwrap_or(0);
                if present != 0 && count != 0 {
                    return Err(error(libc::EBUSY));
                }
                state.make_functions(&path, count);
                return Ok(());
            }
            if path == "/proc/sys/kernel/sched_rt_runtime_us" {
                state.recount();
            }
            if let (Some(device), "1") = (path.strip_suffix("/threaded"), value) {
                state.start_napi_threads(device);
            }
            if let (Some(device), Ok(threaded)) = (path.strip_suffix("/threaded"), value.parse()) {
                let name = device.rsplit('/').next().unwrap_or(device).to_owned();
                for napi in state.napis.get_mut(&name).into_iter().flatten() {
                    napi.threaded = napi.threaded.and(Some(threaded));
                }
                if state
                    .napis
                    .get(&name)
                    .is_some_and(|all| all.iter().any(|it| it.threaded.is_some()))
                {
                    state.thread_napis(&name);
                }
            }
            let shown = state.files.get(&path).and_then(|old| chosen(old, value));
            let text = shown.unwrap_or_else(|| value.to_owned());
            state.files.insert(path, format!("{text}\n"));
            Ok(())
        })
    }

    fn write_from(&self, cpu: usize, path: &str, value: &str) -> io::Result<()> {
        if self.lock().state.online.contains(cpu) {
            self.write(path, value)
        } else {
            Err(error(libc::EINVAL))
        }
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let inner = self.lock();
        let directory = format!("{}/", inner.state.real(path));
        let names: BTreeSet<String> = inner
            .state
            .paths()
            .iter()
            .filter_map(|path| Some(path.strip_prefix(&directory)?.split('/').next()?.to_owned()))
            .collect();
        if names.is_empty() {
            Err(error(libc::ENOENT))
        } else {
            Ok(names.into_iter().collect())
        }
    }

    fn real_path(&self, path: &str) -> io::Result<String> {
        let inner = self.lock();
        let real = inner.state.real(path);
        let inside = format!("{real}/");
        let exists = inner.state.content(&real).is_some()
            || inner
                .state
                .paths()
                .iter()
                .any(|path| path.starts_with(&inside));
        if exists {
            Ok(real)
        } else {
            Err(error(libc::ENOENT))
        }
    }

    fn link(&self, path: &str) -> io::Result<String> {
        let inner = self.lock();
        let target = inner.state.links.get(path).cloned();
        target.ok_or_else(|| error(libc::EINVAL))
    }

    fn character_device(&self, path: &str) -> io::Result<Option<String>> {
        Ok(self.lock().state.devices.get(path).cloned())
    }

    fn can_open(&self, path: &str) -> io::Result<()> {
        let inner = self.lock();
        let real = inner.state.real(path);
        match inner.state.files.contains_key(&real) {
            false => Err(error(libc::ENOENT)),
            true if inner.state.writable.contains(&real) => Ok(()),
            true => Err(error(libc::EACCES)),
        }
    }

    fn wait(&self, _time: Duration) {
        self.lock().state.fire();
    }
}
