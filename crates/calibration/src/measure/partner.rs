//! The other side of a switch: a process that sends back each byte it is sent. Processes, not threads: VMs have address
//! spaces of their own, and a switch between them changes it.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use steadyvm_fault::{At, Fault, Result};
use steadyvm_host::CpuSet;

use super::thread;

/// How it is started.
#[derive(Debug, Clone)]
pub struct Partner {
    /// A program that does what [`echo`] does.
    pub program: PathBuf,
    /// What it is called with.
    pub arguments: Vec<OsString>,
}

/// It runs until this is dropped, or its caller ends: then its input ends.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    /// Where it may run.
    cpus: CpuSet,
}

impl Partner {
    pub(super) fn start(&self) -> Result<(Running, ChildStdin, ChildStdout)> {
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .at("start", &self.program)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let mut running = Running {
            child,
            cpus: CpuSet::default(),
        };
        running.cpus = thread::own_cpus()?;
        let (to, from) = pipes
            .ok_or_else(|| Fault::machine("the partner has no pipes", "it was just started"))?;
        Ok((running, to, from))
    }
}

impl Running {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Where it gets no time it could not end.
        thread::release(self.pid(), &self.cpus);
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the partner does: sends back each byte until its input ends.
///
/// # Errors
/// The kernel's.
pub fn echo(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut byte = [0];
    while from.read(&mut byte)? > 0 {
        to.write_all(&byte)?;
        to.flush()?;
    }
    Ok(())
}
