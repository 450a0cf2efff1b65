//! The thread that comes at every budget event.
//!
//! `bpf_timer` is refused on `PREEMPT_RT`. So a FIFO thread sleeps until the next event and runs the program
//! `control_advance`, which moves what has budget again and calls the CPUs whose VCPU has none left. When a new event comes
//! before the time that is awaited, the scheduler wakes the thread by a ring buffer.
//!
//! It waits by ppoll's timeout, not by a timerfd. On `PREEMPT_RT` that of a FIFO thread ends in the timer's interrupt
//! (`hrtimer_init_sleeper`); a timerfd's ends in ktimers/N, of FIFO priority 1, which any FIFO thread on that CPU holds up.

use crate::abi::{AdvanceRequest, Shared, text};
use crate::error::Error;
use crate::kicks::set_policy;
use crate::program::Program;
use libbpf_rs::{MapHandle, RingBufferBuilder};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use steadyvm_sched_policy::NEVER;

/// Of the loader's timer, and of the kernel's `irq_work/N` while it is at work: above VCPUs and housekeeping, below interrupt
/// and vhost threads of the RT path.
pub const FIFO_PRIORITY: i32 = 49;

/// Gives the calling thread this FIFO priority.
pub(crate) fn become_fifo(priority: i32) -> nix::Result<()> {
    set_policy(0, libc::SCHED_FIFO, priority)
}

/// Starts it. It ends when `stop` can be read, or the scheduler has ended; `over` closes with it.
pub(crate) fn start(
    advance: Program,
    wake: MapHandle,
    stop: OwnedFd,
    over: OwnedFd,
) -> Result<JoinHandle<Result<(), Error>>, Error> {
    let (ready, is_ready) = mpsc::channel();
    let thread = thread::Builder::new()
        .name("sched-timer".into())
        .spawn(move || {
            let _over = over;
            let outcome = become_fifo(FIFO_PRIORITY)
                .map_err(Error::system("give the timer's thread SCHED_FIFO"));
            let failed = outcome.is_err();
            let _ = ready.send(outcome);
            if failed {
                return Ok(());
            }
            run(&advance, &wake, &stop)
        })
        .map_err(Error::io("start the timer's thread"))?;
    is_ready
        .recv()
        .map_err(|_| Error::State("the timer's thread ended at once".into()))??;
    Ok(thread)
}

fn run(advance: &Program, wake: &MapHandle, stop: &OwnedFd) -> Result<(), Error> {
    let mut builder = RingBufferBuilder::new();
    builder
        .add(wake, |_| 0)
        .map_err(Error::bpf("read the wake-up buffer"))?;
    let ring = builder
        .build()
        .map_err(Error::bpf("read the wake-up buffer"))?;
    // The map's own descriptor: the ring buffer's is an epoll instance around it, which costs more to wait for.
    let woken = wake.as_fd();
    loop {
        let mut request = AdvanceRequest::default();
        advance.run(request.bytes_mut())?;
        match request.ended {
            0 => {}
            1 => return Ok(()),
            _ => {
                let (why, more) = (text(&request.reason), text(&request.message));
                let between = if more.is_empty() { "" } else { ": " };
                return Err(Error::Ejected {
                    reason: format!("{why}{between}{more}"),
                });
            }
        }
        let timeout = if request.next_ns >= NEVER {
            None
        } else {
            let now =
                clock_gettime(ClockId::CLOCK_MONOTONIC).map_err(Error::system("read the clock"))?;
            // One that has passed is 0: it ends at once.
            let left = Duration::from_nanos(request.next_ns).saturating_sub(now.into());
            Some(TimeSpec::from_duration(left))
        };
        let mut descriptors = [
            PollFd::new(woken, PollFlags::POLLIN),
            PollFd::new(stop.as_fd(), PollFlags::POLLIN | PollFlags::POLLHUP),
        ];
        match ppoll(&mut descriptors, timeout, None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(Error::system("wait for the next event")(error)),
        }
        if descriptors[1].any().unwrap_or(false) {
            return Ok(());
        }
        if descriptors[0].any().unwrap_or(false) {
            ring.consume()
                .map_err(Error::bpf("read the wake-up buffer"))?;
        }
    }
}
