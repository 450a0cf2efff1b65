//! The kernel's threads that carry out preemptions.
//!
//! On `PREEMPT_RT`, `scx_bpf_kick_cpu` and the wake-ups of ring buffers go through `irq_work/N`, of FIFO priority 1
//! (`kernel/irq_work.c`). A FIFO thread above that would hold up every preemption that begins on its CPU. So the threads get
//! the timer's priority while the scheduler is at work. A loader that is killed leaves them there.

use crate::error::Error;
use std::fs;
use std::mem::MaybeUninit;

/// Threads with another priority, and what they had.
#[derive(Debug)]
pub(crate) struct Raised(Vec<(i32, i32, libc::sched_param)>);

impl Raised {
    /// Gives every `irq_work/N` this FIFO priority. A kernel without such threads has none to raise.
    pub fn to(priority: i32) -> Result<Self, Error> {
        let mut raised = Self(Vec::new());
        for thread in threads().map_err(Error::io("look for irq_work threads"))? {
            let mut before = MaybeUninit::<libc::sched_param>::zeroed();
            // SAFETY: numbers, and a structure that is zero and lives.
            let (policy, read) = unsafe {
                (
                    libc::sched_getscheduler(thread),
                    libc::sched_getparam(thread, before.as_mut_ptr()),
                )
            };
            let what = format!("raise the priority of thread {thread}");
            nix::errno::Errno::result(policy.min(read)).map_err(Error::system(&what))?;
            // SAFETY: zero is a valid value, and the kernel filled it in.
            let before = unsafe { before.assume_init() };
            if policy == libc::SCHED_FIFO && before.sched_priority >= priority {
                continue;
            }
            set_policy(thread, libc::SCHED_FIFO, priority).map_err(Error::system(&what))?;
            raised.0.push((thread, policy, before));
        }
        Ok(raised)
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        for (thread, policy, before) in &self.0 {
            // A CPU's thread may be gone with it.
            let _ = set_policy(*thread, *policy, before.sched_priority);
        }
    }
}

/// Gives a thread a policy; thread 0 is the calling one.
pub(crate) fn set_policy(thread: i32, policy: i32, priority: i32) -> nix::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: numbers and a live structure.
    let done = unsafe { libc::sched_setscheduler(thread, policy, &raw const parameters) };
    nix::errno::Errno::result(done).map(drop)
}

/// The kernel's threads of that name. Kernel threads have no command line; one that ends meanwhile is none.
fn threads() -> std::io::Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let number = path
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok());
        let Some(number) = number else { continue };
        let is_named = fs::read_to_string(path.join("comm"))
            .is_ok_and(|comm| comm.trim_end().starts_with("irq_work/"));
        if is_named && fs::read(path.join("cmdline")).is_ok_and(|words| words.is_empty()) {
            found.push(number);
        }
    }
    Ok(found)
}
