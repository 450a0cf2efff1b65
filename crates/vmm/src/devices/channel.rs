//! virtio-console with one port that has a name, over a Unix socket: a way into the guest that is no
//! network (virtio 1.2, section 5.3).
//!
//! A thread of its own carries the bytes; a VCPU never waits for the other end. Nothing is stored here
//! but the piece under way: while the peer does not read, what the guest wrote stays in its queue;
//! while the guest takes nothing, what the peer wrote stays in the socket.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use steadyvm_sockets::{Held, Lock, Memory};
use virtio_bindings::virtio_ids::VIRTIO_ID_CONSOLE;
use virtio_queue::{DescriptorChain, Queue, QueueOwnedT, QueueT};
use vmm_sys_util::eventfd::EventFd;

use super::transport::{Activation, Identity};
use super::{Backend, Broken, Interrupt};
use crate::event::borrow;

/// Of each queue; the thread serves at most so many requests of one in a turn.
const QUEUE_SIZE: u16 = 64;
/// The port's queue for the guest's input, its output, and the same two of the control messages.
pub const QUEUES: usize = 4;
/// The most that is carried at once: what Linux puts into one buffer.
const PIECE: usize = 32 << 10;

/// Feature bit: ports with names, and control messages about them.
const MULTIPORT: u64 = 1;
/// `struct virtio_console_config`: columns, rows, `max_nr_ports` = 1, `emerg_wr`.
const CONFIGURATION: [u8; 12] = [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

/// `struct virtio_console_control`: the port (here always 0), what, and a value.
const CONTROL: usize = 8;
const DEVICE_READY: u16 = 0;
const PORT_ADD: u16 = 1;
const PORT_READY: u16 = 3;
const PORT_OPEN: u16 = 6;
const PORT_NAME: u16 = 7;

/// What the serving thread has to wait for besides the guest's bell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The peer's bytes.
    input: bool,
    /// That the peer takes more.
    output: bool,
}

/// What the VCPUs' side and the serving thread share.
pub struct Channel {
    memory: Memory,
    name: String,
    /// Connected, non-blocking.
    socket: File,
    /// Held while the queues are served or set up.
    state: Lock<State>,
    interrupt: Arc<Interrupt>,
    rung: EventFd,
}

struct State {
    queues: [Queue; QUEUES],
    /// Control messages that the guest has not taken yet: each kind at most once, whatever the guest
    /// asks for.
    owed: Vec<u16>,
    /// A program in the guest has the port open: what comes before would be lost.
    guest_listens: bool,
    /// So much of the guest's oldest buffer has been sent.
    sent: usize,
    peer_gone: bool,
}

/// What became of the buffers of a queue.
#[derive(Default)]
struct Progress {
    /// The guest wants to be told.
    interrupt: bool,
    /// The next buffer waits for the peer.
    waits: bool,
}

impl Channel {
    /// A channel whose queues' bell is `rung`.
    ///
    /// # Errors
    /// The socket cannot be made non-blocking.
    pub fn new(
        name: &str,
        socket: std::os::unix::net::UnixStream,
        memory: Memory,
        interrupt: Arc<Interrupt>,
        rung: EventFd,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let queue = |_| Queue::new(QUEUE_SIZE).map_err(io::Error::other);
        let queues: Vec<Queue> = (0..QUEUES).map(queue).collect::<io::Result<_>>()?;
        let queues = queues
            .try_into()
            .map_err(|_| io::Error::other("four queues"))?;
        Ok(Self {
            memory,
            name: name.to_owned(),
            socket: File::from(std::os::fd::OwnedFd::from(socket)),
            state: Lock::new(State {
                queues,
                owed: Vec::new(),
                guest_listens: false,
                sent: 0,
                peer_gone: false,
            }),
            interrupt,
            rung,
        })
    }

    /// Waits until there may be something to carry; `false` where `stop` is readable.
    pub fn wait(&self, wanted: Wanted, stop: &EventFd) -> bool {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, wanted.input);
        flags.set(PollFlags::POLLOUT, wanted.output);
        let mut fds = vec![
            PollFd::new(borrow(stop), PollFlags::POLLIN),
            PollFd::new(borrow(&self.rung), PollFlags::POLLIN),
        ];
        // A hang-up is always reported: it would be seen over and over by who wants nothing.
        if !flags.is_empty() {
            fds.push(PollFd::new(self.socket.as_fd(), flags));
        }
        loop {
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) => return !fds[0].any().unwrap_or(true),
                Err(nix::Error::EINTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// Carries what can be carried now: what to wait for next, and whether the guest was interrupted.
    pub fn serve(&self) -> (Wanted, bool) {
        let _ = self.rung.read();
        let mut state = self.lock();
        let heard = self.hear(&mut state);
        let sent = self.send(&mut state);
        let received = self.receive(&mut state);
        let told = self.tell(&mut state);
        let interrupt = heard.interrupt | sent.interrupt | received.interrupt | told.interrupt;
        if interrupt {
            self.interrupt.used_buffer();
        }
        let wanted = Wanted {
            input: received.waits && !state.peer_gone,
            output: sent.waits,
        };
        (wanted, interrupt)
    }

    /// The guest's control messages.
    fn hear(&self, state: &mut State) -> Progress {
        let State {
            queues: [.., queue],
            owed,
            guest_listens,
            ..
        } = state;
        let mut owe = |message| {
            if !owed.contains(&message) {
                owed.push(message);
            }
        };
        self.serve_queue(queue, |chain| {
            let mut message = [0; CONTROL];
            let mut reader = chain.reader::<()>(&self.memory).ok();
            let read = reader
                .as_mut()
                .map(|reader| reader.read_exact(&mut message));
            let [p0, p1, p2, p3, event0, event1, value0, value1] = message;
            let value = u16::from_le_bytes([value0, value1]);
            match (u16::from_le_bytes([event0, event1]), value) {
                _ if !matches!(read, Some(Ok(()))) => {}
                (DEVICE_READY, 1) => owe(PORT_ADD),
                _ if [p0, p1, p2, p3] != [0; 4] => {}
                (PORT_READY, 1) => {
                    owe(PORT_NAME);
                    owe(PORT_OPEN);
                }
                (PORT_OPEN, open) => *guest_listens = open == 1,
                _ => {}
            }
            Some(0)
        })
    }

    /// What the guest wrote, to the peer; to nobody where that is gone.
    fn send(&self, state: &mut State) -> Progress {
        let State {
            queues: [_, queue, ..],
            owed,
            sent,
            peer_gone,
            ..
        } = state;
        let mut piece = vec![0; PIECE];
        self.serve_queue(queue, |chain| {
            let Ok(mut reader) = chain.reader::<()>(&self.memory) else {
                return Some(0);
            };
            let length = reader.available_bytes();
            // Fails where the guest has made the buffer shorter meanwhile.
            if let Ok(mut rest) = reader.split_at(*sent)
                && let Ok(count) = rest.read(&mut piece)
                && !*peer_gone
            {
                match (&self.socket).write(&piece[..count]) {
                    Ok(written) => *sent += written,
                    Err(error) if is_temporary(&error) => {}
                    Err(_) => lose_peer(peer_gone, owed),
                }
                if *sent < length && !*peer_gone {
                    return None;
                }
            }
            *sent = 0;
            Some(0)
        })
    }

    /// What the peer wrote, to the guest.
    fn receive(&self, state: &mut State) -> Progress {
        let State {
            queues: [queue, ..],
            owed,
            guest_listens: true,
            peer_gone: peer_gone @ false,
            ..
        } = state
        else {
            return Progress::default();
        };
        let mut piece = vec![0; PIECE];
        self.serve_queue(queue, |chain| {
            let Ok(mut writer) = chain.writer::<()>(&self.memory) else {
                return Some(0);
            };
            let room = writer.available_bytes().min(PIECE);
            if room == 0 {
                return Some(0);
            }
            match (&self.socket).read(&mut piece[..room]) {
                Ok(count @ 1..) => {
                    let written = writer.write_all(&piece[..count]);
                    Some(written.map_or(0, |()| count as u32))
                }
                Err(error) if is_temporary(&error) => None,
                Ok(_) | Err(_) => {
                    lose_peer(peer_gone, owed);
                    None
                }
            }
        })
    }

    /// The control messages that are owed to the guest.
    fn tell(&self, state: &mut State) -> Progress {
        let State {
            queues: [_, _, queue, _],
            owed,
            peer_gone,
            ..
        } = state;
        let peer_there = u16::from(!*peer_gone);
        self.serve_queue(queue, |chain| {
            let event = *owed.first()?;
            let (value, name) = match event {
                PORT_OPEN => (peer_there, ""),
                PORT_NAME => (1, self.name.as_str()),
                _ => (1, ""),
            };
            owed.remove(0);
            let head = [[0; 2], [0; 2], event.to_le_bytes(), value.to_le_bytes()];
            let message = [head.as_flattened(), name.as_bytes()].concat();
            let written = chain
                .writer::<()>(&self.memory)
                .is_ok_and(|mut writer| writer.write_all(&message).is_ok());
            Some(if written { message.len() as u32 } else { 0 })
        })
    }

    /// Serves buffers until `serve` cannot go on with one (`None`), else uses each with the bytes that
    /// were written to it. A queue that the guest has broken is left alone until the next reset.
    fn serve_queue(
        &self,
        queue: &mut Queue,
        mut serve: impl FnMut(DescriptorChain<&Memory>) -> Option<u32>,
    ) -> Progress {
        let mut progress = Progress::default();
        for _ in 0..QUEUE_SIZE {
            let mut chains = match queue.iter(&self.memory) {
                Ok(chains) => chains,
                // Not set up yet, or not any more.
                Err(virtio_queue::Error::QueueNotReady) => return progress,
                Err(error) => {
                    self.broken(&error);
                    return progress;
                }
            };
            let Some(chain) = chains.next() else {
                return progress;
            };
            let head = chain.head_index();
            let Some(written) = serve(chain) else {
                chains.go_to_previous_position();
                progress.waits = true;
                return progress;
            };
            if let Err(error) = queue.add_used(&self.memory, head, written) {
                self.broken(&error);
                return progress;
            }
            progress.interrupt |= queue.needs_notification(&self.memory).unwrap_or(false);
        }
        // A guest that is as fast as this thread shall not keep it from the other queues and the end.
        let _ = self.rung.write(1);
        progress
    }

    fn broken(&self, error: &virtio_queue::Error) {
        let why = format!("virtio-console: the guest broke a queue: {error}");
        self.interrupt.broken(&Broken::new(why));
    }

    fn lock(&self) -> Held<'_, State> {
        self.state.lock()
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn lose_peer(peer_gone: &mut bool, owed: &mut Vec<u16>) {
    *peer_gone = true;
    if !owed.contains(&PORT_OPEN) {
        owed.push(PORT_OPEN);
    }
}

/// The registers' side of a channel.
pub struct Registers(pub Arc<Channel>);

impl Backend for Registers {
    fn identity(&self) -> Identity {
        Identity {
            id: VIRTIO_ID_CONSOLE,
            features: 1 << MULTIPORT,
            queue_sizes: vec![QUEUE_SIZE; QUEUES],
            kernel_interrupts: false,
        }
    }

    fn configuration(&self) -> &[u8] {
        &CONFIGURATION
    }

    fn activate(&self, activation: &Activation) -> Result<(), Broken> {
        let mut state = self.0.lock();
        // A driver that knows no ports has a console, which is always open.
        state.guest_listens = activation.features & 1 << MULTIPORT == 0;
        for (queue, setup) in state.queues.iter_mut().zip(&activation.queues) {
            setup.apply(queue);
            if setup.ready && !queue.is_valid(&self.0.memory) {
                return Err(Broken::new(
                    "virtio-console: the guest set a queue up outside its memory",
                ));
            }
        }
        Ok(())
    }

    fn notify(&self, _queue: u32) -> Result<(), Broken> {
        let _ = self.0.rung.write(1);
        Ok(())
    }

    fn reset(&self) {
        let mut state = self.0.lock();
        state.queues.iter_mut().for_each(QueueT::reset);
        state.owed.clear();
        (state.guest_listens, state.sent) = (false, 0);
    }
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;
