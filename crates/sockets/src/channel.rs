//! A channel: one VCPU's request queue, wait set and event ring, used by one thread at a time.

use crate::abi::{Response, State, WAIT_RECEIVED, op};
use crate::busy_poll::BusyPoll;
use crate::chain::{Exchange, answer, open};
use crate::device::Device;
use crate::handle::Handle;
use crate::memory::Memory;
use crate::operation::{self, Outcome};
use crate::socket::Socket;
use crate::wait::{Filled, Ring, Wait};
use rustix::io::Errno;
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use virtio_queue::{DescriptorChain, Queue, QueueOwnedT, QueueT};
use vm_memory::{GuestAddress, GuestMemory, Permissions};

/// The guest's queue is broken: the device must be reset (virtio's `DEVICE_NEEDS_RESET`).
#[derive(Debug, thiserror::Error)]
#[error("outsourced sockets: the guest broke its request queue: {0}")]
pub struct BrokenQueue(#[from] virtio_queue::Error);

/// What a call of [`Channel::serve`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Requests carried out.
    pub requests: u16,
    /// The guest asks for an interrupt. One that waits in its own request asks for none.
    pub interrupt: bool,
    /// The limit of operations was reached: call again after what is more urgent.
    pub more: bool,
    /// Where nobody asked: the event ring has events of which the guest must be told. It does not look for them
    /// by itself, as it does while it still takes others.
    pub news: bool,
}

/// A request queue with its event ring. A VMM serves it in the VCPU thread that rang it: when
/// [`serve`](Self::serve) returns, the requests are done.
pub struct Channel {
    device: Arc<Device>,
    index: u16,
    queue: Queue,
    ring: Option<Ring>,
    poll: BusyPoll,
}

impl Channel {
    /// Channel `index` of a device.
    ///
    /// # Errors
    /// Where the device has no such channel.
    pub fn new(device: &Arc<Device>, index: u16) -> Result<Self, crate::DeviceError> {
        if device.wait_set(index.into()).is_err() {
            return Err(crate::DeviceError::Limits("the device has no such channel"));
        }
        let queue = Queue::new(device.limits().operations)
            .map_err(|_| crate::DeviceError::Limits("no queue has so many operations"))?;
        Ok(Self {
            device: Arc::clone(device),
            index,
            queue,
            ring: None,
            poll: BusyPoll::new(device.limits().poll),
        })
    }

    /// The request queue, for the transport to set up.
    pub const fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    /// Readable while sockets have events that the ring has not got yet, or the doorbell is rung: for
    /// who serves the channel in a thread of its own. To be watched edge-triggered, since a full ring
    /// leaves events behind.
    pub fn events(&self) -> BorrowedFd<'_> {
        self.device.epoll_of(self.index).as_fd()
    }

    /// As after the making, for a reset of the virtio device.
    pub fn reset(&mut self) {
        self.queue.reset();
        self.ring = None;
    }

    /// Whether the guest has made requests that are not served. None, where it has broken its queue.
    pub fn has_requests(&self, memory: &Memory) -> bool {
        let made = self.queue.avail_idx(memory, Ordering::Acquire);
        made.is_ok_and(|made| made.0 != self.queue.next_avail())
    }

    /// Lets the guest ring for its requests, or tells it that somebody looks at the queue (`VRING_USED_F_NO_NOTIFY`, virtio
    /// 1.2, 2.7.10). Whether requests are there by now, for which it has not rung, perhaps.
    pub fn ring_for_requests(&mut self, memory: &Memory, is_wanted: bool) -> bool {
        if is_wanted {
            return self.queue.enable_notification(memory).unwrap_or(false);
        }
        let _ = self.queue.disable_notification(memory);
        false
    }

    /// Carries out the requests in the queue, then fills the event ring. Sleeps only in
    /// `SVS_OP_WAIT`, for at most the limit; [`Device::wake`] ends that.
    ///
    /// # Errors
    /// Where the queue itself is broken. A bad request is answered by an error number.
    pub fn serve(&mut self, memory: &Memory) -> Result<Served, BrokenQueue> {
        let limit = self.device.limits().operations;
        let mut requests = 0;
        let mut harvested = false;
        let mut news = false;
        while requests < limit {
            let Some(chain) = self.queue.iter(memory)?.next() else {
                break;
            };
            let head = chain.head_index();
            let exchanged = self.exchange(memory, chain);
            self.queue.add_used(memory, head, exchanged.written)?;
            harvested = exchanged.harvested;
            requests += 1;
        }
        if !harvested {
            // A ring that the guest has broken is its own loss, and said when it asks for events.
            let filled = self.harvest(memory, Duration::ZERO, None);
            news = filled.is_ok_and(|filled| filled.are_news);
        }
        Ok(Served {
            requests,
            interrupt: self.queue.needs_notification(memory)?,
            more: requests == limit,
            news,
        })
    }

    /// Carries one request out.
    fn exchange(&mut self, memory: &Memory, chain: DescriptorChain<&Memory>) -> Exchanged {
        let opened = open(memory, chain, self.device.limits().request_bytes);
        let Some(place) = opened.response else {
            return Exchanged::default();
        };
        let (response, harvested) = match opened.exchange {
            Ok(exchange) => {
                let harvests = matches!(exchange.request.op.get(), op::HARVEST | op::WAIT);
                (self.carry_out(memory, &exchange), harvests)
            }
            Err(error) => (failed(error), false),
        };
        Exchanged {
            written: answer(&place, &response),
            harvested,
        }
    }

    fn carry_out(&mut self, memory: &Memory, exchange: &Exchange) -> Response {
        let device = &*self.device;
        device
            .counts_of(self.index)
            .request(exchange.request.op.get());
        let outcome = match exchange.request.op.get() {
            op::SOCKET => operation::open(device, self.index, exchange, memory),
            op::CLOSE => operation::close(device, exchange, memory),
            op::STATE_TABLE => self.set_state_table(memory, exchange),
            op::EVENT_RING => self.set_event_ring(memory, exchange),
            op::HARVEST => self.harvest(memory, Duration::ZERO, None).map(pending),
            op::WAIT => self.wait(memory, exchange),
            op::WAKE => wake(device, exchange),
            _ => match device.table().get(operation::handle_of(exchange)) {
                Ok(socket) => {
                    let outcome = operation::carry_out(device, &socket, exchange, memory);
                    let mut response = outcome.unwrap_or_else(failed);
                    response.ready = device.publish(&socket, memory).into();
                    return response;
                }
                Err(error) => Err(error),
            },
        };
        outcome.unwrap_or_else(failed)
    }

    fn set_state_table(&self, memory: &Memory, exchange: &Exchange) -> Outcome {
        let address = exchange.argument(0);
        if address != u64::MAX {
            let size = self.device.limits().sockets as usize * size_of::<State>();
            if !address.is_multiple_of(8) {
                return Err(Errno::INVAL);
            }
            if !memory.check_range(GuestAddress(address), size, Permissions::Write) {
                return Err(Errno::FAULT);
            }
        }
        self.device.state_table().set(address);
        Ok(Response::default())
    }

    fn set_event_ring(&mut self, memory: &Memory, exchange: &Exchange) -> Outcome {
        let address = exchange.argument(0);
        self.ring = if address == u64::MAX {
            None
        } else {
            let most = self.device.limits().sockets;
            Some(Ring::new(memory, address, exchange.argument(1), most)?)
        };
        Ok(Response::default())
    }

    /// Moves what happened to the event ring; where nothing has, waits for `longest` at most. What
    /// the sockets of the events are ready for is published, but for `later`, which the caller
    /// does.
    fn harvest(
        &mut self,
        memory: &Memory,
        longest: Duration,
        later: Option<&Socket>,
    ) -> Result<Filled, Errno> {
        let device = &*self.device;
        let ring = self.ring.as_mut().ok_or(Errno::INVAL)?;
        let set = device.wait_set(self.index.into())?;
        let later = later.map(|socket| socket.handle().to_guest());
        let publish = |handle| match device.table().get(Handle::from_guest(handle)) {
            Ok(_) if Some(handle) == later => Some(0),
            Ok(socket) => Some(device.publish_event(&socket, memory)),
            Err(_) => None,
        };
        let wait = Wait {
            longest,
            poll: &mut self.poll,
            counts: device.counts_of(self.index),
        };
        ring.fill(memory, set, wait, publish)
    }

    /// Sleeps where there is nothing for the guest to do; then receives for whom it was idle.
    fn wait(&mut self, memory: &Memory, exchange: &Exchange) -> Outcome {
        let device = Arc::clone(&self.device);
        let socket = match exchange.request.handle.get() {
            0 => None,
            _ => Some(device.table().get(operation::handle_of(exchange))?),
        };
        let longest = Duration::from_nanos(exchange.argument(0));
        let longest = longest.min(device.limits().longest_wait);
        // The event is taken first: an edge whose cause was received meanwhile would be none.
        let waited = self
            .harvest(memory, longest, socket.as_deref())
            .map(pending);
        let Some(socket) = socket else {
            return waited;
        };
        let events = waited.as_ref().map_or(0, |waited| waited.value.get());
        if events == 0 {
            // What was published last still holds: all that changes it from outside is an event.
            return waited;
        }
        let received = operation::receive_whole(&socket, exchange);
        let ready = device.publish(&socket, memory);
        match received {
            None => waited,
            Some(outcome) => {
                device.counts_of(self.index).received_by_wait();
                let mut response = outcome.unwrap_or_else(failed);
                response.value = (events | WAIT_RECEIVED).into();
                response.ready = ready.into();
                Ok(response)
            }
        }
    }
}

/// What came of a request.
#[derive(Default)]
struct Exchanged {
    /// The bytes at the beginning of the writable part that are written. That is the head of the
    /// response; what lies behind it may have gaps.
    written: u32,
    /// The event ring has been filled by it.
    harvested: bool,
}

fn pending(filled: Filled) -> Response {
    operation::value(filled.pending.into())
}

fn wake(device: &Device, exchange: &Exchange) -> Outcome {
    device.wait_set(exchange.argument(0))?.ring();
    Ok(Response::default())
}

fn failed(error: Errno) -> Response {
    Response {
        error: (error.raw_os_error() as u32).into(),
        ..Response::default()
    }
}
