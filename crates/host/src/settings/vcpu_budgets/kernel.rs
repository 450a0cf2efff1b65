//! Budgets of virtual CPUs by `sched_ext`, as one setting of the host: behind a trait, so that a fake host can stand in for
//! the real one.
//!
//! The scheduler lives as long as its loader, a process of its own: `steadyvm sched ext serve`. `apply` starts it, and talks
//! to it by its socket. If it dies, the kernel's own scheduler has all threads; `status` then shows drift.
//!
//! A loader that does not answer, or is of another version, is at work all the same: what it enforces is not known, which is no
//! VCPU's budget. So undo ends it, and apply starts another one in its place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use steadyvm_sched::enforcement::Enforcement;
use steadyvm_sched::service::{self, Reply, Request};
use steadyvm_sched::{Error, SCHED_EXT, is_attached_by};

/// What the loader says when the scheduler is at work.
const READY: &str = "scheduling";
/// What it says of errors, beside the socket.
const LOG: &str = "sched.log";
/// A longer log makes room for a new one.
const LONGEST_LOG_BYTES: u64 = 1 << 20;
/// A loader is at work within this time: the kernel verifies it for seconds, and beside computing VCPUs for minutes.
const START_LIMIT: Duration = Duration::from_secs(120);
/// The kernel's own scheduler has all threads so soon after the loader's end.
const DETACH_LIMIT: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// One that did not answer is not asked again for so long: a look asks several times.
const SILENCE: Duration = Duration::from_secs(10);

/// The scheduler of virtual CPUs.
pub trait VcpuScheduler: Send + Sync {
    /// What it enforces; none if it is not at work.
    fn enforced(&self) -> io::Result<Option<Enforcement>>;
    /// Has it enforce this; starts it if need be.
    fn enforce(&self, wanted: &Enforcement) -> io::Result<()>;
    /// Ends it: the kernel's own scheduler has all threads.
    fn end(&self) -> io::Result<()>;
}

/// The scheduler in the running kernel.
#[derive(Debug, Clone)]
pub struct KernelVcpuScheduler {
    socket: PathBuf,
    /// Where the kernel says what it is told by.
    sched_ext: PathBuf,
    /// When its loader did not answer last.
    silent: Arc<Mutex<Option<Instant>>>,
}

impl Default for KernelVcpuScheduler {
    fn default() -> Self {
        Self::at(service::SOCKET, SCHED_EXT)
    }
}

impl KernelVcpuScheduler {
    fn at(socket: impl Into<PathBuf>, sched_ext: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            sched_ext: sched_ext.into(),
            silent: Arc::default(),
        }
    }

    fn is_attached(&self) -> bool {
        is_attached_by(&self.sched_ext)
    }

    /// None: it does not answer, or is of another version.
    fn ask(&self, request: &Request) -> io::Result<Option<Reply>> {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        if silent.is_some_and(|since| since.elapsed() < SILENCE) {
            return Ok(None);
        }
        *silent = None;
        match service::ask(&self.socket, request) {
            Ok(reply) => Ok(Some(reply)),
            Err(Error::OtherVersion { .. }) => Ok(None),
            Err(Error::Silent { .. }) => {
                *silent = Some(Instant::now());
                Ok(None)
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Returns when the scheduler is at work. The loader outlives this process, and no terminal's signals reach it.
    fn start(&self) -> io::Result<()> {
        let directory = self.socket.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(directory)?;
        let path = directory.join(LOG);
        let log = opened_log(&path)?;
        let from = log.metadata()?.len();
        // Its own file, which is there even if a newer build has replaced it meanwhile.
        let mut loader = Command::new("/proc/self/exe")
            .args(["sched", "--socket"])
            .arg(&self.socket)
            .args(["ext", "serve"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .current_dir("/")
            .process_group(0)
            .spawn()?;
        match first_line(&mut loader, START_LIMIT) {
            Some(said) if said.trim_end() == READY => {
                // A watch outlives its loaders: none may stay as a zombie.
                thread::spawn(move || loader.wait());
                Ok(())
            }
            said => {
                let _ = loader.kill();
                let status = loader.wait()?;
                let why = if said.is_none() {
                    format!("it was not ready after {} s", START_LIMIT.as_secs())
                } else {
                    let log = fs::read_to_string(&path).unwrap_or_default();
                    let own = log.get(from as usize..).unwrap_or_default();
                    own.lines().last().unwrap_or("it says nothing").to_owned()
                };
                Err(io::Error::other(format!(
                    "its loader ended with {status}: {why}"
                )))
            }
        }
    }
}

/// Opens the log to be appended to, with the time in it. Not below a directory of users: nobody else makes files there.
fn opened_log(log: &Path) -> io::Result<File> {
    if fs::metadata(log).is_ok_and(|found| found.len() > LONGEST_LOG_BYTES) {
        fs::rename(log, log.with_extension("log.old"))?;
    }
    let mut options = OpenOptions::new();
    let mut file = options
        .create(true)
        .append(true)
        .mode(0o644)
        .custom_flags(libc::O_NOFOLLOW)
        .open(log)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_unix_s = now.map_or(0, |now| now.as_secs());
    writeln!(file, "a loader is started {now_unix_s} s after 1970")?;
    Ok(file)
}

/// The first line of what a child says, or that it says nothing more; none if it does neither within a time limit.
fn first_line(child: &mut Child, limit: Duration) -> Option<String> {
    let output = child.stdout.take()?;
    let (tell, told) = mpsc::channel();
    // It ends with the child, which is killed if it is too late.
    thread::spawn(move || {
        let mut said = String::new();
        let read = BufReader::new(output).read_line(&mut said);
        let _ = tell.send(read.map_or_else(|error| error.to_string(), |_| said));
    });
    told.recv_timeout(limit).ok()
}

impl VcpuScheduler for KernelVcpuScheduler {
    fn enforced(&self) -> io::Result<Option<Enforcement>> {
        if !self.is_attached() {
            return Ok(None);
        }
        match self.ask(&Request::Enforced)? {
            Some(Reply::Enforced(enforcement)) => Ok(Some(enforcement)),
            Some(other) => Err(io::Error::other(format!(
                "its loader answers another question: {other:?}"
            ))),
            None => Ok(Some(Enforcement::default())),
        }
    }

    fn enforce(&self, wanted: &Enforcement) -> io::Result<()> {
        let request = Request::Enforce(wanted.clone());
        if self.is_attached() {
            if self.ask(&request)?.is_some() {
                return Ok(());
            }
            self.end()?;
        }
        self.start()?;
        let done = match self.ask(&request) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(io::Error::other(
                "its loader was started and does not answer",
            )),
            Err(error) => Err(error),
        };
        if done.is_err() {
            // All or nothing: nobody asked for a scheduler without budgets.
            let _ = self.end();
        }
        done
    }

    fn end(&self) -> io::Result<()> {
        if !self.is_attached() {
            return Ok(());
        }
        service::end(&self.socket).map_err(io::Error::other)?;
        *self.silent.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let begun = Instant::now();
        while self.is_attached() {
            if begun.elapsed() > DETACH_LIMIT {
                return Err(io::Error::other(
                    "its loader has ended, and the kernel still has the scheduler",
                ));
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Says what the kernel says where our scheduler is at work, or is not.
    fn say(sched_ext: &Path, is_attached: bool) {
        fs::create_dir_all(sched_ext.join("root")).unwrap();
        fs::write(sched_ext.join("root/ops"), "steadyvm\n").unwrap();
        let state = if is_attached {
            "enabled\n"
        } else {
            "disabled\n"
        };
        fs::write(sched_ext.join("state"), state).unwrap();
    }

    /// The listener is another process, which is stopped.
    #[test]
    fn a_loader_that_is_stopped_is_at_work_with_budgets_unknown_and_undo_ends_it() {
        let place = tempfile::tempdir().unwrap();
        let (socket, sched_ext) = (place.path().join("sched.sock"), place.path().join("ext"));
        let _listener = UnixListener::bind(&socket).unwrap();
        let mut loader = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = nix::unistd::Pid::from_raw(loader.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
        let id = steadyvm_sched::process::ProcessId::of(loader.id()).unwrap();
        fs::write(socket.with_extension("pid"), id.to_string()).unwrap();
        say(&sched_ext, true);
        let scheduler = KernelVcpuScheduler::at(&socket, &sched_ext);
        let begun = Instant::now();
        for _ in 0..3 {
            let found = scheduler.enforced().unwrap();
            assert_eq!(found, Some(Enforcement::default()));
        }
        assert!(begun.elapsed() < SILENCE, "it is asked once, not thrice");
        // The kernel's own scheduler has all threads as the loader ends.
        let kernel = thread::spawn(move || {
            loader.wait().unwrap();
            say(&sched_ext, false);
        });
        scheduler.end().unwrap();
        kernel.join().unwrap();
        assert_eq!(scheduler.enforced().unwrap(), None);
    }

    #[test]
    fn a_child_that_says_nothing_is_not_waited_for() {
        let silent = |script: &str| {
            let mut child = Command::new("sh");
            let child = child.args(["-c", script]).stdout(Stdio::piped());
            child.spawn().unwrap()
        };
        let mut child = silent("exec sleep 1000");
        assert_eq!(first_line(&mut child, Duration::from_millis(50)), None);
        child.kill().unwrap();
        child.wait().unwrap();
        let mut child = silent("exit 3");
        let ended = first_line(&mut child, START_LIMIT);
        assert_eq!(ended.as_deref(), Some(""));
        child.wait().unwrap();
    }

    #[test]
    fn the_log_keeps_what_loaders_before_have_said() {
        let place = tempfile::tempdir().unwrap();
        let log = place.path().join(LOG);
        writeln!(opened_log(&log).unwrap(), "steadyvm: the kernel's reason").unwrap();
        opened_log(&log).unwrap();
        let text = fs::read_to_string(&log).unwrap();
        assert_eq!(text.matches("is started").count(), 2);
        assert!(text.contains("the kernel's reason"), "{text}");
        fs::write(&log, vec![b'x'; LONGEST_LOG_BYTES as usize + 1]).unwrap();
        opened_log(&log).unwrap();
        assert!(fs::metadata(&log).unwrap().len() < 100);
    }
}
