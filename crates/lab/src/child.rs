//! Child processes that never outlive this one.
//!
//! Three ways lead to a child's end, so that nothing is left however this process ends:
//! dropping its [`Child`] kills and collects it; [`kill_all`] does so for every child when a
//! signal asks this process to stop, and lets no other begin: whoever sees a machine die then may
//! well try to boot it again; and the kernel kills it when this process is gone
//! (`PR_SET_PDEATHSIG`), even by `kill -9`. The kernel means the *thread* that spawned it, so one
//! thread, which lives as long as the process, spawns them all.
//!
//! Children of threads that work side by side form a [`Crew`], which can be ended by itself.

use crate::{At, Error, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

/// The process groups of the children that run, each with its crew; `None` once [`kill_all`] has begun.
static GROUPS: Mutex<Option<BTreeMap<i32, Option<Crew>>>> = Mutex::new(Some(BTreeMap::new()));

thread_local! {
    /// The crew of the children that this thread starts.
    static CREW: RefCell<Option<Crew>> = const { RefCell::new(None) };
}

/// Children that end together, before this process does: those of threads that work for one result. It says
/// whether they have been killed.
#[derive(Debug, Clone, Default)]
pub struct Crew(Arc<AtomicBool>);

impl Crew {
    /// Does what starts children of this crew, all in this thread.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = CREW.replace(Some(self.clone()));
        let result = work();
        CREW.set(before);
        result
    }

    /// Kills its children; none can be started from then on. The thread that started one collects it.
    pub fn kill(&self) {
        // Under the lock, as where children are started: none can be missed.
        let groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.store(true, Ordering::Relaxed);
        for (&group, crew) in groups.iter().flatten() {
            if crew.as_ref().is_some_and(|it| Arc::ptr_eq(&it.0, &self.0)) {
                let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
            }
        }
    }

    fn is_killed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

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
pub fn spawn(mut command: Command) -> Result<Child> {
    command.process_group(0);
    spawn_leader(command, false)
}

/// The same in a session of its own, which can be given its share of the CPUs:
/// [`scheduling::prefer_session`](crate::scheduling::prefer_session).
pub fn spawn_in_own_session(command: Command) -> Result<Child> {
    spawn_leader(command, true)
}

/// Starts a leader of its own process group, and of its own session if asked for.
fn spawn_leader(mut command: Command, own_session: bool) -> Result<Child> {
    let what = format!("run {}", command.get_program().to_string_lossy());
    let parent = process::id();
    // SAFETY: setsid, prctl and getppid are async-signal-safe and touch no memory of this process.
    unsafe {
        command.pre_exec(move || {
            if own_session && libc::setsid() < 0 {
                return Err(io::Error::last_os_error());
            }
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
    let (reply, spawned) = channel();
    let gone = || Error::machine(what.clone(), "the thread that starts processes is gone");
    let crew = CREW.with_borrow(Clone::clone);
    let request = (command, crew, reply);
    spawner().send(request).map_err(|_| gone())?;
    let inner = spawned.recv().map_err(|_| gone())?.doing(what.clone())?;
    Ok(Child { inner, what })
}

type Request = (Command, Option<Crew>, Sender<io::Result<process::Child>>);

/// The way to the thread that spawns.
fn spawner() -> Sender<Request> {
    static SPAWNER: OnceLock<Sender<Request>> = OnceLock::new();
    let start = || {
        let (sender, requests) = channel::<Request>();
        thread::spawn(move || {
            for (mut command, crew, reply) in requests {
                // Whoever asked may be gone; a child that nobody holds is killed with us.
                let _ = reply.send(spawn_unless_ending(&mut command, crew));
            }
        });
        sender
    };
    SPAWNER.get_or_init(start).clone()
}

/// Starts a process that [`kill_all`] and its crew's [`Crew::kill`] know of, unless one of them has begun.
fn spawn_unless_ending(command: &mut Command, crew: Option<Crew>) -> io::Result<process::Child> {
    // The lock is kept until the child is noted: none of them in between can miss it.
    let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(groups) = groups.as_mut() else {
        return Err(io::Error::other("this process is about to end"));
    };
    if crew.as_ref().is_some_and(Crew::is_killed) {
        return Err(io::Error::other("what it is for has failed elsewhere"));
    }
    let child = command.spawn()?;
    groups.insert(child.id() as i32, crew);
    Ok(child)
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

/// Kills every child and waits for its end; none can be started from then on. For use when this
/// process is about to exit.
pub fn kill_all() {
    let groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner).take();
    for (group, _) in groups.into_iter().flatten() {
        let group = Pid::from_raw(group);
        let _ = killpg(group, Signal::SIGKILL);
        let _ = nix::sys::wait::waitpid(group, None);
    }
}

/// Whether [`kill_all`] has begun: what fails from then on fails because of it.
pub fn all_are_killed() -> bool {
    GROUPS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .is_none()
}

/// Whether this thread can start no child any more: what fails for it is no news.
pub fn none_can_be_started() -> bool {
    all_are_killed() || CREW.with_borrow(|crew| crew.as_ref().is_some_and(Crew::is_killed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn exists(pid: u32) -> bool {
        std::path::Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn dropping_a_child_ends_it() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        let child = spawn(command).unwrap();
        let pid = child.pid();
        assert!(exists(pid));
        drop(child);
        assert!(!exists(pid));
    }

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it() {
        let ask = || {
            let mut command = Command::new("cat");
            command
                .stdin(process::Stdio::piped())
                .stdout(process::Stdio::piped());
            spawn(command)
        };
        let mut child = thread::spawn(ask).join().unwrap().unwrap();
        let streams = child.streams();
        streams.stdin.take().unwrap().write_all(b"alive").unwrap();
        let mut said = String::new();
        streams
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        assert_eq!(said, "alive");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = spawn(Command::new("no-such-program")).unwrap_err();
        assert!(error.to_string().contains("no-such-program"), "{error}");
    }
}
