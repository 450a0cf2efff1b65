//! The NetRT client: sends requests on schedule, times and counts the replies.

use super::clock::{Reading, monotonic_ns, timespec_ns};
use super::ledger::{Counters, Ledger, Sample};
use super::schedule::{Intervals, Schedule};
use super::wire::{HEADER_BYTES, Header, MAXIMUM_PAYLOAD_BYTES};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, recvmsg, send, setsockopt, sockopt::ReceiveTimestampns,
};
use nix::sys::time::TimeSpec;
use serde::{Deserialize, Serialize};
use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The stop flag is looked at this often while nothing else happens.
const STOP_NOTICED_WITHIN_NS: i64 = 50_000_000;
/// Datagrams received before the schedule is looked at again.
const RECEIVED_AT_ONCE: usize = 256;
/// Progress is told this often at most.
const PROGRESS_INTERVAL_NS: i64 = 100_000_000;

/// When a run has sent enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// After this many counted requests; answered and lost ones together are as many.
    Requests(u64),
    /// When this many counted requests have been answered. Requests under way are still waited
    /// for, or the slow ones would be left out; so there may be a few more samples.
    Samples(u64),
    /// When requests have been sent for this long after the warm-up.
    After(Duration),
}

/// How to run a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientOptions {
    /// Seed of the schedule: the same seed, the same load.
    pub seed: u64,
    /// Time between requests.
    pub intervals: Intervals,
    /// Requests at the beginning that are sent but not counted.
    pub warmup: u64,
    /// When to stop sending.
    pub end: End,
    /// Stop sending after this long, whatever `end` says, warm-up included.
    pub limit: Option<Duration>,
    /// A request without a reply for this long is lost.
    pub timeout: Duration,
    /// Size of requests and replies in bytes, header included.
    pub payload_bytes: usize,
}

impl Default for ClientOptions {
    /// 2,000 requests of 64 bytes at 1 to 10 ms after 200 of warm-up; lost after 1 s.
    fn default() -> Self {
        Self {
            seed: 1,
            intervals: Intervals::default(),
            warmup: 200,
            end: End::Requests(2_000),
            limit: None,
            timeout: Duration::from_secs(1),
            payload_bytes: 64,
        }
    }
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// [`ClientOptions::end`] was reached.
    Done,
    /// [`ClientOptions::limit`] was reached first.
    Limit,
    /// The stop flag was set; requests under way were not waited for.
    Stopped,
}

/// What a client measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRun {
    /// Every counted round trip, in the order of sending.
    pub samples: Vec<Sample>,
    /// Everything else that was counted.
    pub counters: Counters,
    /// Why the run ended.
    pub ended_by: EndedBy,
    /// From the start of the run to its end, in nanoseconds.
    pub duration_ns: u64,
}

/// How far a run is; counted requests only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Counted requests sent.
    pub requests: u64,
    /// Counted requests answered.
    pub answered: u64,
    /// Time since the start of the run, in nanoseconds.
    pub elapsed_ns: u64,
}

/// Why a client could not run, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// An option is out of range.
    #[error("NetRT client: {0}")]
    Options(String),
    /// The socket is not connected.
    #[error(
        "NetRT client: its UDP socket has no peer: {0}; connect it to the server before measuring"
    )]
    NotConnected(#[source] io::Error),
    /// A system call failed for a reason that will not pass.
    #[error("NetRT client: cannot {action}: {source}; check that the network to the server is up")]
    System {
        /// What was tried.
        action: &'static str,
        /// The system's reason.
        #[source]
        source: Errno,
    },
}

/// Sends requests over `socket`, which must be connected to the server, and returns every counted
/// round trip. Blocks until the end, a fatal error or `stop`; `progress` is called about ten times
/// a second, between requests: it must return at once.
///
/// A round trip is the kernel's receive timestamp minus `CLOCK_REALTIME` read right before
/// sending; [`Counters`] says how many were timed by the monotonic clock instead.
///
/// # Errors
/// Options out of range, a socket that is not connected, or a system call that fails for good.
/// Unreachable servers are not errors: requests are then lost, and counted.
pub fn run(
    socket: &UdpSocket,
    options: &ClientOptions,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<ClientRun, ClientError> {
    check(options)?;
    socket.peer_addr().map_err(ClientError::NotConnected)?;
    setsockopt(socket, ReceiveTimestampns, &true)
        .map_err(failed_to("ask the kernel for receive timestamps"))?;

    let mut client = Client::start(socket, options, stop)?;
    let ended_by = client.send_on_schedule(progress)?;
    if ended_by != EndedBy::Stopped {
        client.wait_for_replies()?;
    }
    client.finish(ended_by)
}

fn check(options: &ClientOptions) -> Result<(), ClientError> {
    let wrong = if !(HEADER_BYTES..=MAXIMUM_PAYLOAD_BYTES).contains(&options.payload_bytes) {
        format!(
            "a payload of {} bytes is not possible; choose {HEADER_BYTES} to {MAXIMUM_PAYLOAD_BYTES}",
            options.payload_bytes
        )
    } else if options.intervals.shortest > options.intervals.longest {
        format!(
            "the shortest interval ({:?}) is longer than the longest ({:?}); swap them",
            options.intervals.shortest, options.intervals.longest
        )
    } else if options.intervals.longest.is_zero() {
        "intervals of zero would flood the network; choose at least 1 ns".to_owned()
    } else if options.timeout.is_zero() {
        "a timeout of zero loses every request; choose one well above the expected round trips"
            .to_owned()
    } else if matches!(options.end, End::Requests(0) | End::Samples(0))
        || options.end == End::After(Duration::ZERO)
    {
        "a run without a counted request measures nothing; ask for at least one".to_owned()
    } else {
        return Ok(());
    };
    Err(ClientError::Options(wrong))
}

struct Client<'a> {
    socket: &'a UdpSocket,
    options: &'a ClientOptions,
    stop: &'a AtomicBool,
    run: u64,
    start_ns: i64,
    ledger: Ledger,
    request: Vec<u8>,
    /// One byte longer than a reply may be, so that longer ones show.
    reply: Vec<u8>,
    control: Vec<u8>,
}

impl<'a> Client<'a> {
    fn start(
        socket: &'a UdpSocket,
        options: &'a ClientOptions,
        stop: &'a AtomicBool,
    ) -> Result<Self, ClientError> {
        let start = Reading::now().map_err(failed_to("read the clocks"))?;
        let timeout_ns = clamped_ns(options.timeout) as u64;
        Ok(Self {
            socket,
            options,
            stop,
            // Told apart from runs before and after on the same port, not kept secret.
            run: start.realtime_ns as u64,
            start_ns: start.monotonic_ns,
            ledger: Ledger::new(options.warmup, timeout_ns, start.monotonic_ns),
            request: vec![0; options.payload_bytes],
            reply: vec![0; options.payload_bytes + 1],
            control: cmsg_space!(TimeSpec),
        })
    }

    fn send_on_schedule(
        &mut self,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<EndedBy, ClientError> {
        let schedule = Schedule::new(self.options.seed, self.options.intervals);
        let limit_ns = self.options.limit.map_or(i64::MAX, clamped_ns);
        let mut counting_since_ns = 0;
        let mut progress_due_ns = 0;
        for due_ns in schedule {
            let due_ns = i64::try_from(due_ns).unwrap_or(i64::MAX);
            if self.ledger.next_sequence() == self.options.warmup {
                counting_since_ns = due_ns;
            }
            let reached = match self.options.end {
                End::Requests(requests) => self.ledger.counters.requests >= requests,
                End::Samples(samples) => self.ledger.counters.answered >= samples,
                End::After(duration) => due_ns - counting_since_ns >= clamped_ns(duration),
            };
            if reached && self.ledger.next_sequence() >= self.options.warmup {
                return Ok(EndedBy::Done);
            }
            if due_ns >= limit_ns {
                return Ok(EndedBy::Limit);
            }
            self.receive_until(due_ns, false)?;
            if self.stop.load(Ordering::Relaxed) {
                return Ok(EndedBy::Stopped);
            }
            self.send(due_ns)?;
            if due_ns >= progress_due_ns {
                progress_due_ns = due_ns + PROGRESS_INTERVAL_NS;
                progress(Progress {
                    requests: self.ledger.counters.requests,
                    answered: self.ledger.counters.answered,
                    elapsed_ns: due_ns as u64,
                });
            }
        }
        Ok(EndedBy::Done)
    }

    fn wait_for_replies(&mut self) -> Result<(), ClientError> {
        let end_ns = self
            .elapsed_ns()?
            .saturating_add(clamped_ns(self.options.timeout));
        self.receive_until(end_ns, true)
    }

    fn finish(self, ended_by: EndedBy) -> Result<ClientRun, ClientError> {
        let duration_ns = self.elapsed_ns()?;
        let (samples, counters) = self.ledger.close(self.start_ns + duration_ns);
        Ok(ClientRun {
            samples,
            counters,
            ended_by,
            duration_ns: duration_ns as u64,
        })
    }

    /// Sends the next request; its time is read right before.
    fn send(&mut self, due_ns: i64) -> Result<(), ClientError> {
        let sequence = self.ledger.next_sequence();
        let sent = Reading::now().map_err(failed_to("read the clocks"))?;
        Header {
            run: self.run,
            sequence,
            sent_ns: sent.monotonic_ns as u64,
        }
        .write_request(&mut self.request);
        let mut outcome = send(
            self.socket.as_raw_fd(),
            &self.request,
            MsgFlags::MSG_DONTWAIT,
        );
        if outcome == Err(Errno::ECONNREFUSED) {
            // The socket reports an earlier request's ICMP error instead of sending this one.
            self.ledger.counters.refusals += 1;
            outcome = send(
                self.socket.as_raw_fd(),
                &self.request,
                MsgFlags::MSG_DONTWAIT,
            );
        }
        match outcome {
            Ok(_) => {}
            Err(error) if passes(error) => self.ledger.counters.send_failures += 1,
            Err(source) => {
                return Err(ClientError::System {
                    action: "send a request",
                    source,
                });
            }
        }
        let delay_ns = (sent.monotonic_ns - self.start_ns - due_ns).max(0) as u64;
        self.ledger.sent(sent, delay_ns);
        Ok(())
    }

    /// Receives until `end_ns` after the start of the run, but what has arrived already in any
    /// case; or until stopped; or, if `all_answered_suffices`, until no request waits.
    fn receive_until(
        &mut self,
        end_ns: i64,
        all_answered_suffices: bool,
    ) -> Result<(), ClientError> {
        loop {
            self.receive_arrived()?;
            let left_ns = end_ns - self.elapsed_ns()?;
            if left_ns <= 0
                || self.stop.load(Ordering::Relaxed)
                || (all_answered_suffices && self.ledger.waiting() == 0)
            {
                return Ok(());
            }
            let wait_ns = left_ns.min(STOP_NOTICED_WITHIN_NS);
            let mut readable = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match ppoll(
                &mut readable,
                Some(Duration::from_nanos(wait_ns as u64).into()),
                None,
            ) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(source) => {
                    return Err(ClientError::System {
                        action: "wait for replies",
                        source,
                    });
                }
            }
        }
    }

    /// Receives what has arrived, but not so much that a flood of datagrams delays requests.
    fn receive_arrived(&mut self) -> Result<(), ClientError> {
        for _ in 0..RECEIVED_AT_ONCE {
            let mut buffers = [IoSliceMut::new(&mut self.reply)];
            let received = recvmsg::<()>(
                self.socket.as_raw_fd(),
                &mut buffers,
                Some(&mut self.control),
                MsgFlags::MSG_DONTWAIT,
            );
            let (length, kernel_ns) = match received {
                Ok(message) => (message.bytes, kernel_timestamp_ns(&message)),
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::ECONNREFUSED) => {
                    self.ledger.counters.refusals += 1;
                    continue;
                }
                Err(error) if passes(error) => continue,
                Err(source) => {
                    return Err(ClientError::System {
                        action: "receive a reply",
                        source,
                    });
                }
            };
            let now = Reading::now().map_err(failed_to("read the clocks"))?;
            self.enter_reply(length, kernel_ns, &now);
        }
        Ok(())
    }

    fn enter_reply(&mut self, length: usize, kernel_ns: Option<i64>, now: &Reading) {
        match Header::read_reply(&self.reply[..length]) {
            Some(header) if header.run != self.run => self.ledger.counters.foreign += 1,
            Some(header) if length == self.options.payload_bytes => {
                self.ledger.replied(header.sequence, kernel_ns, now);
            }
            _ => self.ledger.counters.malformed += 1,
        }
    }

    fn elapsed_ns(&self) -> Result<i64, ClientError> {
        Ok(monotonic_ns().map_err(failed_to("read the clocks"))? - self.start_ns)
    }
}

fn kernel_timestamp_ns(message: &nix::sys::socket::RecvMsg<'_, '_, ()>) -> Option<i64> {
    message.cmsgs().ok()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(time) => Some(timespec_ns(time)),
        _ => None,
    })
}

/// Failures that a later request may not meet.
fn passes(error: Errno) -> bool {
    matches!(
        error,
        Errno::EINTR
            | Errno::EAGAIN
            | Errno::ENOBUFS
            | Errno::ECONNREFUSED
            | Errno::EHOSTUNREACH
            | Errno::ENETUNREACH
            | Errno::EHOSTDOWN
            | Errno::EPERM
    )
}

fn failed_to(action: &'static str) -> impl Fn(Errno) -> ClientError {
    move |source| ClientError::System { action, source }
}

/// A duration in nanoseconds, at most 146 years, so that sums of two do not overflow.
fn clamped_ns(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos())
        .unwrap_or(i64::MAX)
        .min(i64::MAX / 2)
}
