//! Softirq handlers of real threads on this machine. Needs root; BPF and BTF of the kernel.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

use std::net::UdpSocket;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use steadyvm_trace::softirqs::{Counts, Softirqs, VECTORS};

const SENDS: usize = 200;

/// A thread that sends datagrams on loopback when it is asked to. The kernel receives them in that thread, as it leaves
/// the section in which it sent.
struct Sending {
    tid: u32,
    ask: Sender<()>,
    done: Receiver<()>,
}

impl Sending {
    fn start() -> Self {
        let (ask, asked) = channel::<()>();
        let (tell, done) = channel();
        let (say, said) = channel();
        thread::spawn(move || {
            // SAFETY: it takes nothing and gives a number.
            say.send(unsafe { libc::gettid() }.cast_unsigned()).unwrap();
            let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
            let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
            for () in asked {
                for _ in 0..SENDS {
                    sender
                        .send_to(b"x", receiver.local_addr().unwrap())
                        .unwrap();
                    receiver.recv(&mut [0]).unwrap();
                }
                tell.send(()).unwrap();
            }
        });
        Self {
            tid: said.recv().unwrap(),
            ask,
            done,
        }
    }

    fn send(&self) {
        self.ask.send(()).unwrap();
        self.done.recv().unwrap();
    }
}

fn received(counts: &Counts) -> u64 {
    let vector = VECTORS.iter().position(|name| *name == "NET_RX").unwrap();
    assert_eq!(counts.handlers[vector] > 0, counts.ns[vector] > 0);
    counts.handlers[vector]
}

#[test]
fn what_a_thread_receives_for_its_own_datagrams_is_counted_in_it_and_in_no_other() {
    let (one, other) = (Sending::start(), Sending::start());
    let mut softirqs = Softirqs::open(&[one.tid, other.tid].into()).unwrap();
    one.send();
    let counts = softirqs.take().unwrap();
    let of_one = received(&counts[&one.tid]);
    // Where ksoftirqd of the CPU runs, it takes some of them; one handler may take several.
    assert!((1..=2 * SENDS as u64).contains(&of_one), "{of_one}");
    // The other thread slept. A timer's interrupt may have run handlers in it before that, but no packet came.
    assert_eq!(received(&counts[&other.tid]), 0);

    // An interval's figures do not come twice, and threads come and go.
    assert_eq!(received(&softirqs.take().unwrap()[&one.tid]), 0);
    softirqs.retrace(&[other.tid].into()).unwrap();
    one.send();
    other.send();
    let counts = softirqs.take().unwrap();
    assert_eq!(counts.len(), 1);
    assert!(received(&counts[&other.tid]) > 0);
}

#[test]
fn more_threads_than_there_is_room_for_are_refused() {
    let most = u32::try_from(steadyvm_trace::softirqs::MOST_THREADS).unwrap();
    assert!(Softirqs::open(&(0..=most).collect()).is_err());
}
