//! The threads of a VM: one a VCPU, one a disk, one for the console's input, one for the channel, one
//! for the cards' interrupts where somebody has to be woken for them.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle};
use steadyvm_sockets::Device as SocketsDevice;
use vmm_sys_util::eventfd::EventFd;

use crate::bus::Bus;
use crate::configuration::Configuration;
use crate::devices::channel::{Channel, Wanted};
use crate::error::{Doing, Error, Result};
use crate::machine::{CountedVcpu, KernelVm, Machine};
use crate::seccomp::{Filters, Role};
use crate::terminal::{self, RawTerminal, borrow};
use crate::thread;
use crate::vcpu::{End, Ending, Vcpu};

/// VCPUs that may sleep in the idle call of outsourced sockets. An interrupt that comes by the kernel
/// alone does not end that sleep: whoever raises one wakes them.
#[derive(Clone)]
struct Sleepers {
    device: Option<Arc<SocketsDevice>>,
    vcpus: u16,
}

impl Sleepers {
    fn wake(&self) {
        if let Some(device) = &self.device {
            (0..self.vcpus).for_each(|vcpu| device.wake(vcpu));
        }
    }
}

/// The threads of a VM, all of which end when its end has come.
pub struct Threads {
    vcpus: Vec<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
    sleepers: Sleepers,
    ending: Arc<Ending>,
    filters: Arc<Filters>,
    name: String,
    _vm: KernelVm,
}

impl Threads {
    /// Starts them. No VCPU enters the guest before all threads are what they are to be.
    pub fn start(
        configuration: &Configuration,
        machine: Machine,
        ending: &Arc<Ending>,
        terminal: Option<&RawTerminal>,
        filters: &Arc<Filters>,
    ) -> Result<Self> {
        let mut threads = Self {
            vcpus: Vec::new(),
            others: Vec::new(),
            sleepers: Sleepers {
                device: machine.sockets,
                vcpus: configuration.vcpus.into(),
            },
            ending: Arc::clone(ending),
            filters: Arc::clone(filters),
            name: configuration.name.clone(),
            _vm: machine.vm,
        };
        let start = || {
            for (index, disk) in machine.disks.into_iter().enumerate() {
                let bell = disk.bell().try_clone().doing("share an event")?;
                threads.serve(&format!("disk{index}"), bell, move || disk.serve())?;
            }
            if let Some(channel) = machine.channel {
                threads.carry_channel(channel)?;
            }
            for (index, relay) in machine.relays.into_iter().enumerate() {
                let bell = relay.from_kernel.try_clone().doing("share an event")?;
                threads.serve(&format!("net{index}"), bell, move || relay.pass_on())?;
            }
            if let Some(terminal) = terminal {
                threads.feed_console(&machine.bus, terminal.is_raw())?;
            }
            threads.start_vcpus(configuration, machine.vcpus, &machine.bus)
        };
        if let Err(error) = start() {
            ending.come(End::Failed(error.to_string()));
            threads.join()?;
            return Err(error);
        }
        Ok(threads)
    }

    /// Does `work`, which raises interrupts, whenever `bell` is rung.
    fn serve(&mut self, role: &str, bell: EventFd, work: impl Fn() + Send + 'static) -> Result<()> {
        let (ending, sleepers) = (Arc::clone(&self.ending), self.sleepers.clone());
        self.start_other(role, move || {
            while wait_for(&bell, &ending) {
                work();
                sleepers.wake();
            }
        })
    }

    fn carry_channel(&mut self, channel: Arc<Channel>) -> Result<()> {
        let (ending, sleepers) = (Arc::clone(&self.ending), self.sleepers.clone());
        self.start_other("channel", move || {
            let mut wanted = Wanted::default();
            while channel.wait(wanted, &ending.event) {
                let interrupted;
                (wanted, interrupted) = channel.serve();
                if interrupted {
                    sleepers.wake();
                }
            }
        })
    }

    fn feed_console(&mut self, bus: &Arc<Bus>, raw: bool) -> Result<()> {
        let (bus, ending, sleepers) = (
            Arc::clone(bus),
            Arc::clone(&self.ending),
            self.sleepers.clone(),
        );
        self.start_other("console", move || {
            if terminal::feed(&bus.console, &ending.event, raw, || sleepers.wake()) {
                ending.come(End::Asked("Ctrl-A x".into()));
            }
        })
    }

    fn start_other(&mut self, role: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let (filters, ending) = (Arc::clone(&self.filters), Arc::clone(&self.ending));
        let thread = self.spawn(role, move || match filters.apply(Role::Other) {
            Ok(()) => work(),
            Err(error) => ending.come(End::Failed(error.to_string())),
        })?;
        self.others.push(thread);
        Ok(())
    }

    fn start_vcpus(
        &mut self,
        configuration: &Configuration,
        vcpus: Vec<CountedVcpu>,
        bus: &Arc<Bus>,
    ) -> Result<()> {
        let (tell_ready, ready) = channel();
        let mut gates = Vec::new();
        for (number, counted) in vcpus.into_iter().enumerate() {
            let rt = configuration.rt_vcpus.contains(&(number as u8));
            let priority = rt.then_some(configuration.rt_priority);
            let vcpu = Vcpu {
                fd: counted.fd,
                counters: counted.counters,
                bus: Arc::clone(bus),
                ending: Arc::clone(&self.ending),
            };
            let filters = Arc::clone(&self.filters);
            let tell_ready = tell_ready.clone();
            let (open, gate) = channel();
            let thread = self.spawn(&format!("vcpu{number}"), move || {
                let _ = tell_ready.send(prepare_vcpu_thread(priority, &filters));
                // Without an opener the VM does not start.
                if gate.recv().is_ok() {
                    vcpu.run();
                }
            })?;
            self.vcpus.push(thread);
            gates.push(open);
        }
        ready.iter().take(gates.len()).collect::<Result<()>>()?;
        for gate in gates {
            let _ = gate.send(());
        }
        Ok(())
    }

    /// Starts a thread named ROLE/NAME, of which the kernel shows 15 bytes. If it panics, the VM
    /// ends.
    fn spawn(&self, role: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
        struct EndOnPanic(Arc<Ending>);
        impl Drop for EndOnPanic {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    let why = "a thread of the monitor panicked";
                    self.0.come(End::Failed(why.into()));
                }
            }
        }
        let guard = EndOnPanic(Arc::clone(&self.ending));
        Builder::new()
            .name(format!("{role}/{}", self.name))
            .spawn(move || {
                let _guard = guard;
                work();
            })
            .doing("start a thread")
    }

    /// Waits for the end of all threads, after the end has come.
    pub fn join(self) -> Result<()> {
        self.sleepers.wake();
        self.vcpus.iter().for_each(thread::kick);
        for thread in self.vcpus.into_iter().chain(self.others) {
            let panicked = |_| Error::Guest("a thread of the monitor panicked; see above".into());
            thread.join().map_err(panicked)?;
        }
        Ok(())
    }
}

fn prepare_vcpu_thread(priority: Option<i32>, filters: &Filters) -> Result<()> {
    if let Some(priority) = priority {
        thread::set_fifo(priority).doing_or(
            format!("give an RT VCPU's thread SCHED_FIFO priority {priority}"),
            "run as root, or raise the limit (ulimit -r 99, or LimitRTPRIO=99); in a container, \
             give it CAP_SYS_NICE",
        )?;
    }
    filters.apply(Role::Vcpu)
}

/// Waits until the bell is rung; `false` where the end has come.
fn wait_for(bell: &EventFd, ending: &Ending) -> bool {
    loop {
        let mut fds =
            [bell, &ending.event].map(|event| PollFd::new(borrow(event), PollFlags::POLLIN));
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => return !fds[1].any().unwrap_or(true),
            Err(nix::Error::EINTR) => {}
            Err(error) => {
                ending.come(End::Failed(format!("a thread cannot wait: {error}")));
                return false;
            }
        }
    }
}
