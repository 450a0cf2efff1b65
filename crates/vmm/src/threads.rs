//! The threads of a VM: one a VCPU, one a disk, one for the console's input, one for what is written,
//! one for the channel, one for the cards' interrupts where somebody has to be woken for them.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use vmm_sys_util::eventfd::EventFd;

use crate::bus::Bus;
use crate::configuration::Configuration;
use crate::devices::channel::{Channel, Wanted};
use crate::event::borrow;
use crate::jail::Jail;
use crate::machine::{KernelVm, Machine, OnLine};
use crate::output::Outputs;
use crate::routing::Sleepers;
use crate::seccomp::{Filters, Role};
use crate::statistics::CountedVcpu;
use crate::terminal::{self, RawTerminal};
use crate::thread;
use crate::vcpu::{End, Ending, Vcpu};
use steadyvm_fault::{At, Result};

/// How long threads have for their end; what a kernel keeps longer is abandoned.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How often they are called to it: a call may come just before what blocks.
const CALL_INTERVAL: Duration = Duration::from_millis(100);

/// What confines each thread before the guest begins.
pub struct Confinement {
    /// Users, groups, capabilities.
    pub jail: Jail,
    /// System calls.
    pub filters: Filters,
}

impl Confinement {
    /// Confines the calling thread, for ever.
    ///
    /// # Errors
    /// The guest must not begin then.
    pub fn confine(&self, role: Role) -> Result<()> {
        self.jail.drop_privileges(role)?;
        self.filters.apply(role)
    }
}

/// The threads of a VM, all of which end when its end has come.
pub struct Threads {
    /// VCPUs are the last of them.
    all: Vec<JoinHandle<()>>,
    vcpus: usize,
    /// Opens to threads that are ready.
    gates: Vec<Sender<()>>,
    /// From each thread, once it is what it is to be.
    ready: (Sender<Result<()>>, Receiver<Result<()>>),
    /// Each thread holds the sender until it ends.
    ended: (Option<Sender<()>>, Receiver<()>),
    sleepers: Sleepers,
    ending: Arc<Ending>,
    confinement: Arc<Confinement>,
    name: String,
    vm: KernelVm,
}

impl Threads {
    /// Starts them, and waits until each has its priority and is confined. None does anything before
    /// [`release`](Self::release).
    pub fn start(
        configuration: &Configuration,
        machine: Machine,
        outputs: Outputs,
        ending: &Arc<Ending>,
        terminal: Option<&RawTerminal>,
        confinement: &Arc<Confinement>,
    ) -> Result<Self> {
        let (ended, last) = channel();
        let mut threads = Self {
            all: Vec::new(),
            vcpus: machine.vcpus.len(),
            gates: Vec::new(),
            ready: channel(),
            ended: (Some(ended), last),
            sleepers: Sleepers::new(
                machine.sockets,
                configuration.vcpus.into(),
                Arc::clone(&machine.vm.fd),
            ),
            ending: Arc::clone(ending),
            confinement: Arc::clone(confinement),
            name: configuration.name.clone(),
            vm: machine.vm,
        };
        let start = || {
            let stop = Arc::clone(ending);
            threads.carry("output", None, move || outputs.carry(&stop.event))?;
            for (index, disk) in machine.disks.into_iter().enumerate() {
                let OnLine { part: disk, line } = disk;
                let bell = disk.bell().try_clone().cannot("share an event")?;
                let name = format!("disk{index}");
                let work = OnLine {
                    part: move || disk.serve(),
                    line,
                };
                threads.serve(&name, Role::Disk, None, bell, work)?;
            }
            if let Some(channel) = machine.channel {
                threads.carry_channel(channel)?;
            }
            for (index, relay) in machine.relays.into_iter().enumerate() {
                let OnLine { part: relay, line } = relay;
                let bell = relay.from_kernel.try_clone().cannot("share an event")?;
                let name = format!("net{index}");
                let priority = relay_priority(configuration);
                let work = OnLine {
                    part: move || relay.pass_on(),
                    line,
                };
                threads.serve(&name, Role::Carrier, priority, bell, work)?;
            }
            if let Some(terminal) = terminal {
                threads.feed_console(&machine.bus, terminal.is_raw())?;
            }
            threads.start_vcpus(configuration, machine.vcpus, &machine.bus)?;
            let ready = threads.ready.1.iter().take(threads.all.len());
            ready.collect::<Result<()>>()
        };
        if let Err(error) = start() {
            ending.come(End::Failed(error.to_string()));
            threads.join();
            return Err(error);
        }
        Ok(threads)
    }

    /// Lets them begin.
    pub fn release(&mut self) {
        for gate in self.gates.drain(..) {
            // A thread that is gone has said why.
            let _ = gate.send(());
        }
    }

    /// The process was stopped and goes on: each VCPU leaves the guest, and tells it. One that was stopped within the
    /// guest has left it by itself; one that was not would enter it again without a word.
    pub fn tell_of_stop(&self) {
        let first = self.all.len().saturating_sub(self.vcpus);
        self.all[first..].iter().for_each(thread::kick);
    }

    /// Does `work`, which raises interrupts of its line, whenever `bell` is rung.
    fn serve(
        &mut self,
        name: &str,
        role: Role,
        priority: Option<i32>,
        bell: EventFd,
        work: OnLine<impl Fn() + Send + 'static>,
    ) -> Result<()> {
        let (ending, sleepers) = (Arc::clone(&self.ending), self.sleepers.clone());
        self.spawn(name, role, priority, move || {
            while wait_for(&bell, &ending) {
                sleepers.wake_for(work.line, || ((work.part)(), true));
            }
        })
    }

    fn carry(
        &mut self,
        name: &str,
        priority: Option<i32>,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        self.spawn(name, Role::Carrier, priority, work)
    }

    fn carry_channel(&mut self, channel: OnLine<Arc<Channel>>) -> Result<()> {
        let OnLine {
            part: channel,
            line,
        } = channel;
        let (ending, sleepers) = (Arc::clone(&self.ending), self.sleepers.clone());
        self.carry("channel", None, move || {
            let mut wanted = Wanted::default();
            while channel.wait(wanted, &ending.event) {
                wanted = sleepers.wake_for(line, || channel.serve());
            }
        })
    }

    fn feed_console(&mut self, bus: &Arc<Bus>, raw: bool) -> Result<()> {
        let (bus, ending, sleepers) = (
            Arc::clone(bus),
            Arc::clone(&self.ending),
            self.sleepers.clone(),
        );
        self.carry("console", None, move || {
            // Keys are few: whoever gets them.
            if terminal::feed(&bus.console, &ending.event, raw, || sleepers.wake()) {
                ending.come(End::Asked("Ctrl-A x".into()));
            }
        })
    }

    fn start_vcpus(
        &mut self,
        configuration: &Configuration,
        vcpus: Vec<CountedVcpu>,
        bus: &Arc<Bus>,
    ) -> Result<()> {
        for (number, counted) in vcpus.into_iter().enumerate() {
            let rt = configuration.rt_vcpus.contains(&(number as u8));
            let priority = rt.then_some(configuration.rt_priority);
            let vcpu = Vcpu {
                fd: counted.fd,
                counters: counted.counters,
                bus: Arc::clone(bus),
                ending: Arc::clone(&self.ending),
            };
            let name = format!("vcpu{number}");
            self.spawn(&name, Role::Vcpu, priority, move || vcpu.run())?;
        }
        Ok(())
    }

    /// Starts a thread named NAME/NAME OF THE VM, of which the kernel shows 15 bytes. If it panics, the
    /// VM ends.
    fn spawn(
        &mut self,
        name: &str,
        role: Role,
        priority: Option<i32>,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
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
        let confinement = Arc::clone(&self.confinement);
        let tell_ready = self.ready.0.clone();
        let ended = self.ended.0.clone();
        let (open, gate) = channel();
        let thread = Builder::new()
            .name(format!("{name}/{}", self.name))
            .spawn(move || {
                let _ended = ended;
                let _guard = guard;
                let _ = tell_ready.send(prepare(priority, role, &confinement));
                // Without an opener the VM does not start.
                if gate.recv().is_ok() {
                    work();
                }
            })
            .cannot("start a thread")?;
        self.all.push(thread);
        self.gates.push(open);
        Ok(())
    }

    /// Waits for the end of all threads, after the end has come, for as long as [`PATIENCE`] lasts. One
    /// that the kernel keeps, as for a disk that does not answer, ends with the process: then `false`.
    pub fn join(mut self) -> bool {
        self.gates.clear();
        self.ended.0 = None;
        let until = Instant::now() + PATIENCE;
        loop {
            self.sleepers.wake();
            self.all.iter().for_each(thread::kick);
            match self.ended.1.recv_timeout(CALL_INTERVAL) {
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
                Err(RecvTimeoutError::Disconnected) | Ok(()) => break,
                Err(RecvTimeoutError::Timeout) => {
                    // Whoever still runs may use the guest's memory.
                    std::mem::forget(self.vm);
                    return false;
                }
            }
        }
        for thread in self.all {
            // A panic has been said, and has become how the VM ended.
            let _ = thread.join();
        }
        true
    }
}

/// A relay is one stage of a card's way to an RT VCPU: it comes before that, as vhost does.
fn relay_priority(configuration: &Configuration) -> Option<i32> {
    let rt = !configuration.rt_vcpus.is_empty();
    rt.then(|| (configuration.rt_priority + 1).min(thread::HIGHEST_FIFO))
}

fn prepare(priority: Option<i32>, role: Role, confinement: &Confinement) -> Result<()> {
    if let Some(priority) = priority {
        thread::set_fifo(priority).cannot_or(
            format!("give an RT VM's thread SCHED_FIFO priority {priority}"),
            "run as root, or raise the limit (ulimit -r 99, or LimitRTPRIO=99); in a container, \
             give it CAP_SYS_NICE",
        )?;
    }
    confinement.confine(role)
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn configuration(rt: bool, priority: i32) -> Configuration {
        let vcpus = if rt { "[1]" } else { "[]" };
        let text = format!(
            "name = \"a\"\nkernel = \"k\"\nvcpus = 2\nrt_vcpus = {vcpus}\nrt_priority = {priority}\n"
        );
        Configuration::parse(&text, "vm.toml").unwrap()
    }

    proptest! {
        /// The way of a card's interrupt has no stage below the VCPU that it is for.
        #[test]
        fn a_relay_is_never_below_the_vcpus_that_it_is_for(priority in 1..=thread::HIGHEST_FIFO) {
            let relay = relay_priority(&configuration(true, priority));
            prop_assert!(relay.is_some_and(|relay| relay >= priority));
            prop_assert!(relay.is_some_and(|relay| relay <= thread::HIGHEST_FIFO));
            prop_assert_eq!(relay == Some(priority), priority == thread::HIGHEST_FIFO);
            prop_assert_eq!(relay_priority(&configuration(false, priority)), None);
        }
    }

    /// As root, or where the limit allows a real-time priority: a thread gets its rank before it works.
    #[test]
    fn a_threads_rank_is_in_force() {
        let rank = relay_priority(&configuration(true, 7)).unwrap();
        let found = std::thread::spawn(move || {
            thread::set_fifo(rank).unwrap();
            let mut parameters = libc::sched_param { sched_priority: 0 };
            // SAFETY: the kernel writes one sched_param; 0 is the calling thread.
            let policy = unsafe {
                libc::sched_getparam(0, &raw mut parameters);
                libc::sched_getscheduler(0)
            };
            (
                policy & !libc::SCHED_RESET_ON_FORK,
                parameters.sched_priority,
            )
        });
        assert_eq!(found.join().unwrap(), (libc::SCHED_FIFO, 8));
    }
}
