//! Outsourced sockets for a guest of another monitor: QEMU's stock `ivshmem-doorbell` device, served by
//! this process. `docs/design/sockets-for-qemu.md` has the decision.
//!
//! One process serves one VM: it waits for the front end, is confined as our own monitor is
//! ([`crate::jail`], [`crate::seccomp`]), and ends when the front end goes.

pub(crate) mod memory;
mod peer;
pub(crate) mod server;
#[cfg(test)]
mod tests;

use nix::sys::mman::MlockAllFlags;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::allocator;
use crate::configuration::Sockets;
use crate::force;
use crate::jail::{self, Jail, Limits, Wanted};
use crate::life::{self, Signals};
use crate::namespace;
use crate::output::{Outputs, Sink};
use crate::seccomp::{Filters, Role};
use crate::thread;
use crate::threads::Confinement;
use crate::vcpu::{End, Ending};
use steadyvm_fault::{At, Fault as Error, Result};

use memory::{Layout, allocate};
pub use memory::{MOST_CHANNELS, MOST_DATA};
use peer::{Door, introduce};
use server::Server;

/// The longest poll: a thread with a rank keeps others from its CPU meanwhile.
const MOST_POLL: Duration = Duration::from_millis(1);

/// What is served, and to whom.
#[derive(Debug, Clone)]
pub struct Service {
    /// The VM's name, in the names of threads.
    pub name: String,
    /// Where the front end connects.
    pub socket: PathBuf,
    /// The user that may connect besides this one.
    pub client_user: Option<u32>,
    /// Channels: the guest's VCPUs.
    pub channels: u16,
    /// The guest's sockets.
    pub sockets: Sockets,
    /// `SCHED_FIFO` priority of the threads that serve channels.
    pub rt_priority: Option<i32>,
    /// How long a thread looks for the next request before it sleeps, at most; zero for never.
    pub poll: Duration,
    /// Lock all memory of this process.
    pub lock_memory: bool,
    /// Numbers that root's process becomes.
    pub user: Option<u32>,
    /// The group; none: the user's number.
    pub group: Option<u32>,
}

impl Service {
    fn check(&self) -> Result<()> {
        self.sockets.check("sockets serve")?;
        if !(1..=MOST_CHANNELS).contains(&self.channels) {
            let why = format!("{} is not 1 to {MOST_CHANNELS}", self.channels);
            return Err(Error::input("--channels", why));
        }
        if self.poll > MOST_POLL {
            let why = format!("{:?} is more than {MOST_POLL:?}", self.poll);
            return Err(Error::input("--poll-us", why));
        }
        match self.rt_priority {
            Some(priority) if !(1..=thread::HIGHEST_FIFO).contains(&priority) => {
                let why = format!("{priority} is not 1 to {}", thread::HIGHEST_FIFO);
                Err(Error::input("--rt-priority", why))
            }
            _ => Ok(()),
        }
    }
}

/// Serves one VM until its front end goes, or a signal comes. The process is the service's alone.
///
/// # Errors
/// Bad input; what this machine lacks.
pub fn serve(service: &Service) -> Result<End> {
    service.check()?;
    allocator::prepare();
    jail::close_inherited()?;
    let signals = Signals::take()?;
    let filters = Filters::new(true, false)?;
    let limits = service.sockets.limits();
    let layout = Layout::new(service.channels, &limits);
    Limits::of_process(
        service.sockets.max_sockets,
        service.channels.into(),
        layout.size().into(),
    )?;
    let nowhere = File::options().write(true).open("/dev/null");
    let nowhere = nowhere.cannot("open /dev/null")?;
    let later_is_locked = service.lock_memory && Limits::allow_locked_memory();
    let door = Door::open(&service.socket, service.client_user)?;
    let jail = Jail::enter(&Wanted {
        user: service.user,
        group: service.group,
        sockets: Some(&service.sockets),
    })?;
    let _namespace = namespace::enter(&service.sockets)?;

    let ending = Arc::new(Ending::new().cannot("make an event")?);
    let (surroundings, outputs) = life::outputs(&ending, Sink::stream(nowhere))?;
    let (memory, file) = allocate(layout)?;
    let server = Arc::new(Server::new(limits, layout, memory, surroundings.messages)?);
    if service.lock_memory {
        life::lock_memory(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE)?;
    }
    eprintln!(
        "steadyvm sockets: {} channels for {}, which is waited for at {}",
        service.channels,
        service.name,
        service.socket.display()
    );
    let client = loop {
        if let Some(signal) = signals.wait_for(door.listener().as_fd())? {
            return Ok(End::Asked(signal));
        }
        if let Some(client) = door.accept()? {
            break client;
        }
    };
    drop(door);
    introduce(&client, file.as_raw_fd(), &server.kicks, &server.calls)
        .cannot("give the front end memory and doorbells")?;
    drop(file);
    jail.leave_file_system()?;
    let confinement = Arc::new(Confinement { jail, filters });
    let mut threads = Threads::new(&confinement);
    threads.start(service, &server, &client, outputs, &ending)?;
    if service.lock_memory && !later_is_locked {
        life::lock_memory(MlockAllFlags::MCL_CURRENT)?;
    }
    Jail::hide()?;
    confinement.confine(Role::Main)?;
    threads.release();

    let end = signals.wait_for_end(&ending, None, || {});
    force::arm(end.exit_code())?;
    threads.join();
    say_counted(&service.name, &server.counted());
    match end {
        End::Failed(why) => Err(Error::guest(why)),
        end => Ok(end),
    }
}

/// What there was to do: how often the guest had to ring, and was interrupted, beside its requests.
fn say_counted(name: &str, counted: &BTreeMap<&str, u64>) {
    let all: Vec<String> = counted
        .iter()
        .map(|(what, count)| format!("{what} {count}"))
        .collect();
    eprintln!("steadyvm sockets: {name} was served: {}", all.join(", "));
}

/// The threads of a service. None does anything before [`Self::release`].
struct Threads<'a> {
    confinement: &'a Arc<Confinement>,
    all: Vec<JoinHandle<()>>,
    gates: Vec<Sender<()>>,
}

impl<'a> Threads<'a> {
    const fn new(confinement: &'a Arc<Confinement>) -> Self {
        Self {
            confinement,
            all: Vec::new(),
            gates: Vec::new(),
        }
    }

    fn start(
        &mut self,
        service: &Service,
        server: &Arc<Server>,
        client: &UnixStream,
        outputs: Outputs,
        ending: &Arc<Ending>,
    ) -> Result<()> {
        let stop = Arc::clone(ending);
        let name = format!("output/{}", service.name);
        self.spawn(name, Role::Carrier, None, move || {
            outputs.carry(&stop.event);
        })?;
        for index in 0..service.channels {
            let epoll = server.watch(index, ending, client)?;
            let (server, ending) = (Arc::clone(server), Arc::clone(ending));
            let name = format!("sockets{index}/{}", service.name);
            let poll = service.poll;
            self.spawn(name, Role::Server, service.rt_priority, move || {
                server.run(index, &epoll, &ending, poll);
            })?;
        }
        Ok(())
    }

    /// Starts a thread and waits until it has its priority and is confined.
    fn spawn(
        &mut self,
        name: String,
        role: Role,
        priority: Option<i32>,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        let (gate, opens) = channel();
        let (tell, told) = channel();
        let confinement = Arc::clone(self.confinement);
        let what = format!("start the thread {name}");
        let thread = Builder::new().name(name).spawn(move || {
            let ranked = priority.map_or(Ok(()), thread::set_fifo).cannot_or(
                "give a thread its priority",
                "start as root, or with the limit of real-time priorities raised (ulimit -r)",
            );
            let ready = ranked.and_then(|()| confinement.confine(role));
            let go = ready.is_ok();
            let _ = tell.send(ready);
            // The gate is dropped where another thread could not start.
            if go && opens.recv().is_ok() {
                work();
            }
        });
        self.all.push(thread.cannot(&what)?);
        self.gates.push(gate);
        told.recv().map_err(|_| "it ended").cannot(what)?
    }

    fn release(&mut self) {
        for gate in self.gates.drain(..) {
            let _ = gate.send(());
        }
    }

    /// All end by themselves; what the kernel holds up is ended by the alarm.
    fn join(self) {
        for thread in self.all {
            let _ = thread.join();
        }
    }
}
