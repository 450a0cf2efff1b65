//! The life of a VM, from its description to its end.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use crate::configuration::{Configuration, Console};
use crate::error::{Doing, Error, Result};
use crate::machine::Machine;
use crate::namespace;
use crate::resources::Resources;
use crate::seccomp::{Filters, Role};
use crate::statistics::Report;
use crate::terminal::{RawTerminal, borrow};
use crate::thread;
use crate::threads::Threads;
use crate::vcpu::{End, Ending};

/// Runs a VM from start to end. Statistics go to a file at the end, and at every SIGUSR1.
///
/// # Errors
/// What is missing, or how the guest failed.
pub fn run(configuration: &Configuration, statistics: Option<&Path>) -> Result<End> {
    let signals = Signals::take()?;
    thread::prepare_kicks()?;
    let filters = Arc::new(Filters::new()?);
    let resources = Resources::open(configuration)?;
    let mut report = statistics
        .map(|path| Report::create(path, &configuration.name))
        .transpose()?;
    if let Some(sockets) = &configuration.sockets {
        namespace::enter(&sockets.namespace)?;
    }
    let ending = Arc::new(Ending::new().doing("make an event")?);
    let machine = Machine::new(configuration, resources, &ending.stopping)?;
    if let Some(report) = &mut report {
        machine.vcpus.iter().for_each(|vcpu| report.add(vcpu));
    }
    if configuration.lock_memory {
        lock_memory()?;
    }
    let terminal = match configuration.console {
        Console::Standard => Some(RawTerminal::enter().doing("set the terminal's mode")?),
        Console::File(_) => None,
    };
    let threads = Threads::start(configuration, machine, &ending, terminal.as_ref(), &filters)?;
    filters.apply(Role::Other)?;
    let end = signals.wait_for_end(&ending, report.as_mut());
    threads.join()?;
    drop(terminal);
    if let Some(mut report) = report {
        report.write()?;
    }
    match end {
        End::Failed(why) => Err(Error::Guest(why)),
        end => Ok(end),
    }
}

fn lock_memory() -> Result<()> {
    mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE).doing_or(
        "lock the VM's memory",
        "raise the limit (ulimit -l unlimited, or LimitMEMLOCK=infinity), or set lock_memory = false",
    )
}

/// Signals that the main thread takes one by one. All threads block them.
struct Signals(SignalFd);

impl Signals {
    fn take() -> Result<Self> {
        let what = "take signals";
        let signals: SigSet = [
            Signal::SIGTERM,
            Signal::SIGINT,
            Signal::SIGHUP,
            Signal::SIGQUIT,
            Signal::SIGUSR1,
        ]
        .into_iter()
        .collect();
        signals.thread_block().doing(what)?;
        SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map(Self)
            .doing(what)
    }

    /// Waits for the end, which a signal may be. Whatever fails here ends the VM too.
    fn wait_for_end(&self, ending: &Ending, mut report: Option<&mut Report>) -> End {
        loop {
            if let Some(end) = ending.how() {
                return end.clone();
            }
            let mut fds = [self.0.as_fd(), borrow(&ending.event)]
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(error) => ending.come(End::Failed(format!("nobody can wait for it: {error}"))),
            }
            let Ok(Some(taken)) = self.0.read_signal() else {
                continue;
            };
            match (Signal::try_from(taken.ssi_signo as i32), report.as_mut()) {
                (Ok(Signal::SIGUSR1), Some(report)) => {
                    if let Err(error) = report.write() {
                        eprintln!("steadyvm up: {error}");
                    }
                }
                (Ok(Signal::SIGUSR1), None) => {}
                (signal, _) => {
                    let name = signal.map_or("a signal", Signal::as_str);
                    ending.come(End::Asked(name.to_owned()));
                }
            }
        }
    }
}
