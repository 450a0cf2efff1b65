//! The device of outsourced sockets in shared memory: each channel is served by a thread of its own, which
//! sleeps until its doorbell rings or a socket has an event. While a guest asks often it looks at the queue
//! instead (`polling`), and the guest need not ring.
//!
//! Guest and front end are hostile. Where things are is ours to say (`memory`); what the guest writes there
//! is judged by `steadyvm_sockets`. A doorbell carries no data, and rings at most the thread of its own VM.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use steadyvm_sockets::abi::Shared as Head;
use steadyvm_sockets::{Channel, Counts, Device, Held, Limits, Lock, Memory, Polling};
use virtio_queue::QueueT;
use vm_memory::{Bytes, GuestAddress};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::EventFd;

use super::memory::{Layout, MOST_DATA};
use crate::output::{Limiter, Messages};
use crate::vcpu::{End, Ending};
use steadyvm_fault::{At, Fault as Error, Result};

/// What wakes a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    /// The end.
    End,
    /// The driver asks to begin anew.
    Anew,
    /// A doorbell.
    Request,
    /// A socket's event.
    Event,
    /// The front end has gone, or says something.
    FrontEnd,
}

impl Token {
    const ALL: [Self; 5] = [
        Self::End,
        Self::Anew,
        Self::Request,
        Self::Event,
        Self::FrontEnd,
    ];

    fn of(data: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|token| *token as u64 == data)
    }
}

/// Looks at the queue between two at what else may come, which is a system call.
const LOOKS: u32 = 32;

/// A channel, and how far it is.
struct Lane {
    channel: Channel,
    /// Requests since the beginning, modulo 2^32.
    served: u32,
    /// The driver has asked for the queue, and not broken it since.
    ready: bool,
    /// The driver is told not to ring.
    is_silent: bool,
}

impl Lane {
    /// Tells the guest not to ring. False where it has broken its queue, or not begun: it rings to begin anew.
    fn look_without_bell(&mut self, memory: &Memory) -> bool {
        if self.ready {
            self.channel.ring_for_requests(memory, false);
            self.is_silent = true;
        }
        self.ready
    }

    /// Lets it ring again, if it was told not to. Whether it has made requests for which it did not ring.
    fn let_ring(&mut self, memory: &Memory) -> bool {
        let was_silent = std::mem::take(&mut self.is_silent);
        was_silent && self.channel.ring_for_requests(memory, true) && self.ready
    }

    fn has_requests(&self, memory: &Memory) -> bool {
        self.ready && self.channel.has_requests(memory)
    }
}

/// The device, and the events by which guest and device ring each other.
pub struct Server {
    device: Arc<Device>,
    /// One a channel.
    counts: Arc<[Counts]>,
    memory: Memory,
    layout: Layout,
    lanes: Vec<Lock<Lane>>,
    /// Rung by the guest: one for [`Self::begin_anew`], then one a channel.
    pub kicks: Vec<EventFd>,
    /// Interrupts, numbered alike. The first is never raised.
    pub calls: Vec<EventFd>,
    messages: Messages,
    limiter: Limiter,
}

impl Server {
    /// A device in the network namespace of the calling thread. It never sleeps in a request.
    ///
    /// # Errors
    /// Limits that make no sense; what the host lacks.
    pub fn new(limits: Limits, layout: Layout, memory: Memory, messages: Messages) -> Result<Self> {
        let what = "make the sockets device";
        let limits = Limits {
            longest_wait: Duration::ZERO,
            request_bytes: limits.request_bytes.min(MOST_DATA),
            ..limits
        };
        let refused = |why: steadyvm_sockets::DeviceError| Error::cannot(what, why);
        let device = Device::new(limits, layout.channels()).map_err(refused)?;
        let lane = |index| {
            let channel = Channel::new(&device, index).map_err(refused)?;
            Ok(Lock::new(Lane {
                channel,
                served: 0,
                ready: false,
                is_silent: false,
            }))
        };
        let lanes: Vec<_> = (0..layout.channels()).map(lane).collect::<Result<_>>()?;
        let events = || {
            let flags = libc::EFD_NONBLOCK | libc::EFD_CLOEXEC;
            let all = (0..=lanes.len()).map(|_| EventFd::new(flags));
            all.collect::<std::io::Result<Vec<_>>>().cannot(what)
        };
        let (kicks, calls) = (events()?, events()?);
        Ok(Self {
            counts: device.counts(),
            device,
            memory,
            layout,
            lanes,
            kicks,
            calls,
            messages,
            limiter: Limiter::default(),
        })
    }

    /// The memory that is shared.
    #[cfg(test)]
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// What all channels did, by name.
    pub fn counted(&self) -> BTreeMap<&'static str, u64> {
        let mut all = BTreeMap::new();
        for (name, count) in self.counts.iter().flat_map(Counts::read) {
            *all.entry(name).or_default() += count;
        }
        all
    }

    fn counts_of(&self, index: u16) -> &Counts {
        &self.counts[usize::from(index)]
    }

    fn lane(&self, index: u16) -> Held<'_, Lane> {
        self.lanes[usize::from(index)].lock()
    }

    /// What channel `index` waits in. The first one's thread also looks after the whole.
    ///
    /// # Errors
    /// The kernel's.
    pub fn watch(&self, index: u16, ending: &Ending, front_end: &impl AsRawFd) -> Result<Epoll> {
        let what = "wait for the guest";
        let epoll = Epoll::new().cannot(what)?;
        let add = |descriptor, token, set| {
            let event = EpollEvent::new(set, token as u64);
            epoll
                .ctl(ControlOperation::Add, descriptor, event)
                .cannot(what)
        };
        // An edge each time that somebody rings: no need to read it. And a full event ring leaves events.
        let edge = EventSet::IN | EventSet::EDGE_TRIGGERED;
        let kick = &self.kicks[usize::from(index) + 1];
        add(ending.event.as_raw_fd(), Token::End, EventSet::IN)?;
        add(kick.as_raw_fd(), Token::Request, edge)?;
        add(
            self.lane(index).channel.events().as_raw_fd(),
            Token::Event,
            edge,
        )?;
        if index == 0 {
            add(self.kicks[0].as_raw_fd(), Token::Anew, edge)?;
            add(front_end.as_raw_fd(), Token::FrontEnd, EventSet::IN)?;
        }
        Ok(epoll)
    }

    /// Serves channel `index` until the end; polls for `poll` at most before it sleeps.
    pub fn run(&self, index: u16, epoll: &Epoll, ending: &Ending, poll: Duration) {
        let mut events = [EpollEvent::default(); Token::ALL.len()];
        let mut polling = Polling::new(poll);
        loop {
            let waited = match self.poll(index, epoll, &mut events, &mut polling) {
                Ok(Some(found)) => Ok(found),
                Ok(None) => sleep(epoll, &mut events, &mut polling, self.counts_of(index)),
                Err(error) => Err(error),
            };
            let count = match waited {
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    ending.come(End::Failed(format!("nobody can wait for it: {error}")));
                    return;
                }
            };
            let came = |token| has(&events[..count], token);
            if came(Token::End) {
                return;
            }
            if came(Token::FrontEnd) {
                ending.come(End::Asked("the front end, which has gone".into()));
                return;
            }
            if came(Token::Anew) {
                self.begin_anew();
            }
            self.serve(index, ending);
        }
    }

    /// Looks for a request for as long as that promises to be shorter than a sleep, and for what else may come. Nothing,
    /// where the thread may sleep: the guest rings then, and no request is there that it did not ring for.
    fn poll(
        &self,
        index: u16,
        epoll: &Epoll,
        events: &mut [EpollEvent],
        polling: &mut Polling,
    ) -> std::io::Result<Option<usize>> {
        let began = Instant::now();
        let window = polling.window(began);
        if window.is_zero() {
            return Ok(self.lane(index).let_ring(&self.memory).then_some(0));
        }
        if !self.lane(index).look_without_bell(&self.memory) {
            return Ok(None);
        }
        let until = began + window;
        let mut count = 0;
        let mut is_found = false;
        while !is_found && count == 0 && Instant::now() < until {
            for _ in 0..LOOKS {
                is_found = self.lane(index).has_requests(&self.memory);
                if is_found {
                    break;
                }
                std::hint::spin_loop();
            }
            // Also where a request is there: a guest that asks without a pause keeps nobody else from this thread.
            count = epoll.wait(0, events)?;
        }
        // What else came says nothing of how often the guest asks.
        if count == 0 {
            polling.polled(is_found, Instant::now());
        }
        if is_found || count > 0 {
            return Ok(Some(count));
        }
        Ok(self.lane(index).let_ring(&self.memory).then_some(0))
    }

    /// Closes all sockets and gives the driver empty queues.
    pub fn begin_anew(&self) {
        let at = |offset: usize| GuestAddress(offset as u64);
        let asked = at(std::mem::offset_of!(Head, asked));
        // Inside the memory: none of these fails.
        let asked: u32 = self
            .memory
            .load(asked, Ordering::Acquire)
            .unwrap_or_default();
        // All channels are held until the sockets are closed, so that none serves meanwhile.
        let channels = 0..self.layout.channels();
        let mut lanes: Vec<_> = channels.clone().map(|index| self.lane(index)).collect();
        for lane in &mut lanes {
            lane.channel.reset();
        }
        self.device.reset(&self.memory);
        for (index, lane) in channels.zip(&mut lanes) {
            Layout::queue(index).apply(lane.channel.queue());
            lane.served = 0;
            lane.ready = lane.channel.queue().is_valid(&self.memory);
            self.count(index, 0);
        }
        let done = at(std::mem::offset_of!(Head, done));
        let _ = self.memory.store(asked, done, Ordering::Release);
    }

    /// Carries out what is in a channel's queue, and fills its event ring. Where nobody asked, the guest is
    /// interrupted for events that are news to it. While it takes others it looks for more by itself.
    pub fn serve(&self, index: u16, ending: &Ending) {
        let mut lane = self.lane(index);
        if !lane.ready {
            return;
        }
        loop {
            let served = match lane.channel.serve(&self.memory) {
                Ok(served) => served,
                Err(why) => {
                    lane.ready = false;
                    self.say(&format!("{why}; it must begin anew"));
                    return;
                }
            };
            if served.requests == 0 {
                // Nobody asked: the ring was filled, perhaps, while the guest did something else. Fails only
                // where it was raised 2^64 - 2 times without the kernel taking it.
                if served.news {
                    let _ = self.calls[usize::from(index) + 1].write(1);
                    self.counts_of(index).interrupted();
                }
                return;
            }
            lane.served = lane.served.wrapping_add(served.requests.into());
            self.count(index, lane.served);
            if !served.more || ending.stopping.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    fn count(&self, index: u16, served: u32) {
        let place = Layout::served(index);
        let _ = self.memory.store(served.to_le(), place, Ordering::Release);
    }

    /// Says what a guest can cause at any rate.
    fn say(&self, line: &str) {
        if let Some(left_out) = self.limiter.allows(Instant::now()) {
            let more = match left_out {
                0 => String::new(),
                more => format!(" ({more} messages before are left out)"),
            };
            self.messages.say(&format!("{line}{more}"));
        }
    }
}

fn has(events: &[EpollEvent], token: Token) -> bool {
    let mut tokens = events.iter().filter_map(|event| Token::of(event.data()));
    tokens.any(|one| one == token)
}

/// Until something comes. How long that took tells whether to poll the next time.
fn sleep(
    epoll: &Epoll,
    events: &mut [EpollEvent],
    polling: &mut Polling,
    counts: &Counts,
) -> std::io::Result<usize> {
    let began = Instant::now();
    let count = epoll.wait(-1, events)?;
    if has(&events[..count], Token::Request) {
        counts.rung();
        polling.slept(began.elapsed());
    }
    Ok(count)
}
