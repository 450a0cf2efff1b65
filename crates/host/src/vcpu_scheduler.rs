//! Budgets of virtual CPUs by `sched_ext`, as one setting of the host: behind a trait, so that a fake host can stand in for
//! the real one.
//!
//! The scheduler lives as long as its loader, a process of its own: `steadyvm sched ext serve`. `apply` starts it, and talks
//! to it by its socket. If it dies, the kernel's own scheduler has all threads; `status` then shows drift.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use steadyvm_sched::enforcement::Enforcement;
use steadyvm_sched::is_attached;
use steadyvm_sched::service::{self, Reply, Request};

/// What the loader says when the scheduler is at work.
const READY: &str = "scheduling";
/// What it says of errors, beside the socket.
const LOG: &str = "sched.log";

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
}

impl Default for KernelVcpuScheduler {
    fn default() -> Self {
        Self {
            socket: service::SOCKET.into(),
        }
    }
}

impl KernelVcpuScheduler {
    fn ask(&self, request: &Request) -> io::Result<Reply> {
        service::ask(&self.socket, request).map_err(io::Error::other)
    }

    /// Returns when the scheduler is at work. The loader outlives this process, and no terminal's signals reach it.
    fn start(&self) -> io::Result<()> {
        let directory = self.socket.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(directory)?;
        let log = directory.join(LOG);
        // Not below a directory of users: nobody else makes files there.
        File::create(&log)?;
        let mut loader = Command::new(std::env::current_exe()?)
            .args(["sched", "--socket"])
            .arg(&self.socket)
            .args(["ext", "serve"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(OpenOptions::new().append(true).open(&log)?)
            .current_dir("/")
            .process_group(0)
            .spawn()?;
        let mut said = String::new();
        if let Some(output) = loader.stdout.take() {
            BufReader::new(output).read_line(&mut said)?;
        }
        if said.trim_end() == READY {
            // A watch outlives its loaders: none may stay as a zombie.
            std::thread::spawn(move || loader.wait());
            return Ok(());
        }
        let _ = loader.kill();
        let status = loader.wait()?;
        let why = fs::read_to_string(&log).unwrap_or_default();
        let why = why.lines().last().unwrap_or("it says nothing");
        Err(io::Error::other(format!(
            "its loader ended with {status}: {why}"
        )))
    }
}

impl VcpuScheduler for KernelVcpuScheduler {
    fn enforced(&self) -> io::Result<Option<Enforcement>> {
        if !is_attached() {
            return Ok(None);
        }
        match self.ask(&Request::Enforced)? {
            Reply::Enforced(enforcement) => Ok(Some(enforcement)),
            other => Err(io::Error::other(format!(
                "its loader answers another question: {other:?}"
            ))),
        }
    }

    fn enforce(&self, wanted: &Enforcement) -> io::Result<()> {
        let is_new = !is_attached();
        if is_new {
            self.start()?;
        }
        let done = self.ask(&Request::Enforce(wanted.clone())).map(drop);
        if is_new && done.is_err() {
            // All or nothing: nobody asked for a scheduler without budgets.
            let _ = self.end();
        }
        done
    }

    fn end(&self) -> io::Result<()> {
        if !is_attached() {
            return Ok(());
        }
        self.ask(&Request::Stop).map(drop)
    }
}
