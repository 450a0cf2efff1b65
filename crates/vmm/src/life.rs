//! The life of a VM, from its description to its end.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use vmm_sys_util::eventfd::EventFd;

use crate::allocator;
use crate::configuration::{Configuration, Console};
use crate::event::borrow;
use crate::force;
use crate::jail::{self, Jail, Limits};
use crate::machine::{Machine, Surroundings};
use crate::namespace;
use crate::output::{Messages, Outputs, Pipe, Sink};
use crate::resources::{self, Resources};
use crate::seccomp::{Filters, Role};
use crate::statistics::Report;
use crate::terminal::RawTerminal;
use crate::thread;
use crate::threads::{Confinement, Threads};
use crate::vcpu::{End, Ending};
use steadyvm_fault::{At, Fault as Error, Result};

/// Runs a VM from start to end. Statistics go to a file at the end, and at every SIGUSR1.
///
/// The process is the VM's alone, and has one thread: descriptors that it inherited are closed, it leaves
/// the host's namespaces and file system, and gives up its rights.
///
/// # Errors
/// What is missing, or how the guest failed.
pub fn run(configuration: &Configuration, statistics: Option<&Path>) -> Result<End> {
    allocator::prepare();
    jail::close_inherited()?;
    let signals = Signals::take()?;
    thread::prepare_kicks()?;
    let filters = Filters::new(
        configuration.sockets.is_some(),
        !configuration.net.is_empty(),
    )?;
    let _name = resources::name_of(configuration)?;
    let mut resources = Resources::open(configuration)?;
    let mut report = statistics
        .map(|path| Report::create(path, &configuration.name))
        .transpose()?;
    Limits::set(configuration, resources.largest_file()?)?;
    configuration
        .oom_score_adj
        .map_or(Ok(()), Limits::set_oom_score_adj)?;
    let later_is_locked = configuration.lock_memory && Limits::allow_locked_memory();
    let jail = Jail::enter(&configuration.into())?;
    let sockets = configuration.sockets.as_ref();
    let _namespace = sockets.map(namespace::enter).transpose()?;

    let ending = Arc::new(Ending::new().cannot("make an event")?);
    let (surroundings, outputs) = outputs(&ending, resources.console()?)?;
    let machine = Machine::new(configuration, resources, &surroundings)?;
    if let Some(report) = &mut report {
        machine.vcpus.iter().for_each(|vcpu| report.add(vcpu));
        if let Some(sockets) = &machine.sockets {
            report.add_sockets(sockets.counts());
        }
    }
    if configuration.lock_memory {
        lock_memory(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE)?;
    }
    let terminal = match configuration.console {
        Console::Standard => Some(RawTerminal::enter().cannot("set the terminal's mode")?),
        Console::File(_) => None,
    };
    jail.leave_file_system()?;
    let confinement = Arc::new(Confinement { jail, filters });
    let mut threads = Threads::start(
        configuration,
        machine,
        outputs,
        &ending,
        terminal.as_ref(),
        &confinement,
    )?;
    if configuration.lock_memory && !later_is_locked {
        // All that there is stays locked; what comes later would be refused once the right to lock more
        // is given up.
        lock_memory(MlockAllFlags::MCL_CURRENT)?;
    }
    Jail::hide()?;
    confinement.confine(Role::Main)?;
    threads.release();

    let end = signals.wait_for_end(&ending, report.as_mut(), || threads.tell_of_stop());
    force::arm(end.exit_code())?;
    let all_ended = threads.join();
    drop(terminal);
    if let Some(mut report) = report {
        report.write()?;
    }
    if !all_ended {
        eprintln!("steadyvm up: a thread waits for the host's kernel, and ends with the process");
    }
    match end {
        End::Failed(why) => Err(Error::guest(why)),
        end => Ok(end),
    }
}

/// What devices write to, and who carries it out of the process.
pub(crate) fn outputs(ending: &Ending, console: Sink) -> Result<(Surroundings, Outputs)> {
    let what = "make the way of the console";
    let bell = EventFd::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC).cannot(what)?;
    let pipe = || Pipe::new(&bell).cannot(what);
    let (of_console, of_messages) = (pipe()?, pipe()?);
    let errors = io::stderr().as_fd().try_clone_to_owned().cannot(what)?;
    let surroundings = Surroundings {
        stopping: Arc::clone(&ending.stopping),
        console: Arc::clone(&of_console),
        messages: Messages(Arc::clone(&of_messages)),
    };
    let errors = Sink::stream(File::from(errors));
    let outputs = Outputs::new(bell, (of_console, console), (of_messages, errors));
    Ok((surroundings, outputs))
}

pub(crate) fn lock_memory(what: MlockAllFlags) -> Result<()> {
    mlockall(what).cannot_or(
        "lock the VM's memory",
        "raise the limit (ulimit -l unlimited, or LimitMEMLOCK=infinity), or do without (lock_memory = false, --no-lock-memory)",
    )
}

/// Signals that the main thread takes one by one. All threads block them.
pub(crate) struct Signals(SignalFd);

impl Signals {
    pub(crate) fn take() -> Result<Self> {
        let what = "take signals";
        let signals: SigSet = [
            Signal::SIGTERM,
            Signal::SIGINT,
            Signal::SIGHUP,
            Signal::SIGQUIT,
            Signal::SIGUSR1,
            Signal::SIGCONT,
        ]
        .into_iter()
        .collect();
        signals.thread_block().cannot(what)?;
        force::prepare()?;
        SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map(Self)
            .cannot(what)
    }

    /// Waits until `other` is readable, or a signal comes, which is then said.
    pub(crate) fn wait_for(&self, other: BorrowedFd<'_>) -> Result<Option<String>> {
        loop {
            let mut fds = [self.0.as_fd(), other].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error).cannot("wait for signals"),
            }
            let came = fds[1].any().unwrap_or_default();
            match self.0.read_signal() {
                Ok(Some(taken)) => match Signal::try_from(taken.ssi_signo as i32) {
                    Ok(Signal::SIGUSR1 | Signal::SIGCONT) => {}
                    signal => {
                        return Ok(Some(signal.map_or("a signal", Signal::as_str).to_owned()));
                    }
                },
                _ if came => return Ok(None),
                _ => {}
            }
        }
    }

    /// Waits for the end, which a signal may be. Whatever fails here ends the VM too. `goes_on` is called when the
    /// process was stopped and goes on (SIGCONT).
    pub(crate) fn wait_for_end(
        &self,
        ending: &Ending,
        mut report: Option<&mut Report>,
        goes_on: impl Fn(),
    ) -> End {
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
                (Ok(Signal::SIGCONT), _) => goes_on(),
                (signal, _) => {
                    let name = signal.map_or("a signal", Signal::as_str);
                    ending.come(End::Asked(name.to_owned()));
                }
            }
        }
    }
}
