//! Child processes that never outlive this one.
//!
//! Three ways lead to a child's end, so that nothing is left however this process ends:
//! dropping its [`Child`] kills and collects it; [`kill_all`] does so for every child when a
//! signal asks this process to stop; and the kernel kills it when this process is gone
//! (`PR_SET_PDEATHSIG`), even by `kill -9`. The kernel means the *thread* that spawned it, so
//! children are spawned by threads that live as long as they are needed.

use crate::error::{At, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitStatus};
use std::sync::{Mutex, PoisonError};

/// The process groups of the children that run.
static GROUPS: Mutex<Option<HashSet<i32>>> = Mutex::new(None);

/// A child process, leader of its own process group.
#[derive(Debug)]
pub struct Child {
    inner: process::Child,
    what: String,
}

/// Starts `command` as a child that cannot outlive this process.
///
/// # Errors
/// The program is missing or cannot be started.
pub fn spawn(command: &mut Command) -> Result<Child> {
    let what = format!("run {}", command.get_program().to_string_lossy());
    let parent = process::id();
    command.process_group(0);
    // SAFETY: prctl and getppid are async-signal-safe and touch no memory of this process.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before the call above.
            if libc::getppid() != parent as i32 {
                return Err(io::Error::other("the parent process is gone"));
            }
            Ok(())
        });
    }
    let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
    let inner = command.spawn().doing(what.clone())?;
    groups.get_or_insert_default().insert(inner.id() as i32);
    Ok(Child { inner, what })
}

impl Child {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.inner.id()
    }

    /// Its standard streams, where they were piped.
    pub fn streams(&mut self) -> &mut process::Child {
        &mut self.inner
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.inner.wait().doing(self.what.clone())
    }

    /// The exit status if it has ended.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        self.inner.try_wait().doing(self.what.clone())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let group = self.inner.id() as i32;
        // An already collected child's number may be another's by now.
        if matches!(self.inner.try_wait(), Ok(None)) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
            let _ = self.inner.wait();
        }
        if let Some(groups) = GROUPS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_mut()
        {
            groups.remove(&group);
        }
    }
}

/// Kills every child and waits for its end. For use when this process is about to exit.
pub fn kill_all() {
    let groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner).take();
    for group in groups.into_iter().flatten() {
        let group = Pid::from_raw(group);
        let _ = killpg(group, Signal::SIGKILL);
        let _ = nix::sys::wait::waitpid(group, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exists(pid: u32) -> bool {
        std::path::Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn dropping_a_child_ends_it() {
        let child = spawn(Command::new("sleep").arg("1000")).unwrap();
        let pid = child.pid();
        assert!(exists(pid));
        drop(child);
        assert!(!exists(pid));
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = spawn(&mut Command::new("no-such-program")).unwrap_err();
        assert!(error.to_string().contains("no-such-program"), "{error}");
    }
}
