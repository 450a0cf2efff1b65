//! The life of a VM: its threads from start to end.

use kvm_ioctls::VcpuFd;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle};
use steadyvm_sockets::Device as SocketsDevice;
use vmm_sys_util::eventfd::EventFd;

use crate::bus::Bus;
use crate::configuration::{Configuration, Console};
use crate::devices::block::Block;
use crate::error::{Doing, Error, Result};
use crate::machine::{KernelVm, Machine};
use crate::namespace;
use crate::resources::Resources;
use crate::statistics::Counters;
use crate::terminal::{self, RawTerminal};
use crate::thread;
use crate::vcpu::{End, Ending, Vcpu};

/// Runs a VM from start to end.
///
/// # Errors
/// What is missing, or how the guest failed.
pub fn run(configuration: &Configuration) -> Result<End> {
    let signals = Signals::take()?;
    thread::prepare_kicks()?;
    let resources = Resources::open(configuration)?;
    if let Some(sockets) = &configuration.sockets {
        namespace::enter(&sockets.namespace)?;
    }
    let ending = Arc::new(Ending::new().doing("make an event")?);
    let machine = Machine::new(configuration, resources, &ending.stopping)?;
    if configuration.lock_memory {
        lock_memory()?;
    }
    let terminal = match configuration.console {
        Console::Standard => Some(RawTerminal::enter().doing("set the terminal's mode")?),
        Console::File(_) => None,
    };
    let threads = Threads::start(configuration, machine, &ending, terminal.as_ref())?;
    let end = signals.wait_for_end(&ending)?;
    threads.join()?;
    drop(terminal);
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
        ]
        .into_iter()
        .collect();
        signals.thread_block().doing(what)?;
        SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map(Self)
            .doing(what)
    }

    fn wait_for_end(&self, ending: &Ending) -> Result<End> {
        loop {
            if let Some(end) = ending.how() {
                return Ok(end.clone());
            }
            let mut fds = [self.0.as_fd(), borrow(&ending.event)]
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error).doing("wait for the end of the VM"),
            }
            if let Ok(Some(signal)) = self.0.read_signal() {
                let name =
                    Signal::try_from(signal.ssi_signo as i32).map_or("a signal", Signal::as_str);
                ending.come(End::Asked(name.to_owned()));
            }
        }
    }
}

fn borrow(event: &EventFd) -> BorrowedFd<'_> {
    // SAFETY: the descriptor is open as long as `event` is borrowed.
    unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) }
}

/// The threads of a VM, all of which end when its end has come.
struct Threads {
    vcpus: Vec<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
    sockets: Option<Arc<SocketsDevice>>,
    _vm: KernelVm,
}

impl Threads {
    /// Starts them. No VCPU enters the guest before all threads are what they are to be.
    fn start(
        configuration: &Configuration,
        machine: Machine,
        ending: &Arc<Ending>,
        terminal: Option<&RawTerminal>,
    ) -> Result<Self> {
        let Machine {
            vcpus,
            bus,
            disks,
            sockets,
            vm,
        } = machine;
        let mut threads = Self {
            vcpus: Vec::new(),
            others: Vec::new(),
            sockets,
            _vm: vm,
        };
        let started = threads.start_all(configuration, vcpus, &bus, disks, ending, terminal);
        if let Err(error) = started {
            ending.come(End::Failed(error.to_string()));
            threads.join()?;
            return Err(error);
        }
        Ok(threads)
    }

    fn start_all(
        &mut self,
        configuration: &Configuration,
        vcpus: Vec<VcpuFd>,
        bus: &Arc<Bus>,
        disks: Vec<Arc<Block>>,
        ending: &Arc<Ending>,
        terminal: Option<&RawTerminal>,
    ) -> Result<()> {
        let name = &configuration.name;
        for (index, disk) in disks.into_iter().enumerate() {
            let ends = Arc::clone(ending);
            let serve = move || serve_disk(&disk, &ends);
            self.others
                .push(spawn(format!("disk{index}/{name}"), ending, serve)?);
        }
        if let Some(terminal) = terminal {
            let (bus, ends, raw) = (Arc::clone(bus), Arc::clone(ending), terminal.is_raw());
            let feed = move || {
                if terminal::feed(&bus.console, &ends.event, raw) {
                    ends.come(End::Asked("Ctrl-A x".into()));
                }
            };
            self.others
                .push(spawn(format!("console/{name}"), ending, feed)?);
        }
        let (tell_ready, ready) = channel();
        let mut gates = Vec::new();
        for (number, fd) in vcpus.into_iter().enumerate() {
            let rt = configuration.rt_vcpus.contains(&(number as u8));
            let priority = rt.then_some(configuration.rt_priority);
            let vcpu = Vcpu {
                fd,
                bus: Arc::clone(bus),
                ending: Arc::clone(ending),
                counters: Arc::new(Counters::default()),
            };
            let tell_ready = tell_ready.clone();
            let (open, gate) = channel();
            let run = move || {
                let _ = tell_ready.send(prepare_vcpu_thread(priority));
                // Without an opener the VM does not start.
                if gate.recv().is_ok() {
                    vcpu.run();
                }
            };
            self.vcpus
                .push(spawn(format!("vcpu{number}/{name}"), ending, run)?);
            gates.push(open);
        }
        ready.iter().take(gates.len()).collect::<Result<()>>()?;
        for gate in gates {
            let _ = gate.send(());
        }
        Ok(())
    }

    /// Waits for the end of all threads, after the end has come.
    fn join(self) -> Result<()> {
        for (channel, thread) in self.vcpus.iter().enumerate() {
            if let Some(sockets) = &self.sockets {
                sockets.wake(channel as u16);
            }
            thread::kick(thread);
        }
        for thread in self.vcpus.into_iter().chain(self.others) {
            let panicked = |_| Error::Guest("a thread of the monitor panicked; see above".into());
            thread.join().map_err(panicked)?;
        }
        Ok(())
    }
}

/// Starts a thread with its name, of which the kernel shows 15 bytes. If it panics, the VM ends.
fn spawn(
    name: String,
    ending: &Arc<Ending>,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>> {
    struct EndOnPanic(Arc<Ending>);
    impl Drop for EndOnPanic {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0
                    .come(End::Failed("a thread of the monitor panicked".into()));
            }
        }
    }
    let guard = EndOnPanic(Arc::clone(ending));
    Builder::new()
        .name(name)
        .spawn(move || {
            let _guard = guard;
            work();
        })
        .doing("start a thread")
}

fn prepare_vcpu_thread(priority: Option<i32>) -> Result<()> {
    if let Some(priority) = priority {
        thread::set_fifo(priority).doing_or(
            format!("give an RT VCPU's thread SCHED_FIFO priority {priority}"),
            "run as root, or raise the limit (ulimit -r 99, or LimitRTPRIO=99); in a container, \
             give it CAP_SYS_NICE",
        )?;
    }
    Ok(())
}

fn serve_disk(disk: &Block, ending: &Ending) {
    loop {
        let mut fds =
            [disk.bell(), &ending.event].map(|event| PollFd::new(borrow(event), PollFlags::POLLIN));
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) if fds[1].any().unwrap_or(true) => return,
            Ok(_) => disk.serve(),
            Err(nix::Error::EINTR) => {}
            Err(error) => {
                ending.come(End::Failed(format!("a disk's thread cannot wait: {error}")));
                return;
            }
        }
    }
}
