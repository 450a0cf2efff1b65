//! Requests of a VM whose threads are this test's, on this machine's loopback. Needs root; BPF and BTF of the kernel.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

use std::fs;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use steadyvm_trace::requests::{Cards, Followed, Requests, STAGES, Seen, Stage};

const PATIENCE: Duration = Duration::from_secs(30);
/// The number of `lo` in each network namespace.
const LOOPBACK: u32 = 1;
/// What the guest computes at least.
const WORK: Duration = Duration::from_micros(300);

const REQUEST: u8 = b'r';
const KICK: u8 = b'k';

/// A worker that wakes the VCPU for each request and sends a datagram for each kick, and a VCPU that computes and kicks.
struct Vm {
    worker: u32,
    vcpu: u32,
    to_worker: UnixStream,
    to_vcpu: UnixStream,
    /// A byte for each datagram.
    sent: UnixStream,
}

fn own_tid() -> u32 {
    // SAFETY: it takes nothing and gives a number.
    unsafe { libc::gettid() }.cast_unsigned()
}

/// Waits until a thread is off its CPU: the kernel tells the system call of no other.
fn await_sleep(tid: u32) {
    let until = Instant::now() + PATIENCE;
    let file = format!("/proc/self/task/{tid}/syscall");
    while fs::read_to_string(&file).unwrap().starts_with("running") {
        assert!(Instant::now() < until);
        thread::yield_now();
    }
}

impl Vm {
    fn start() -> Self {
        let (to_worker, mut worker_end) = UnixStream::pair().unwrap();
        let (to_vcpu, mut vcpu_end) = UnixStream::pair().unwrap();
        let (sent, mut tell_sent) = UnixStream::pair().unwrap();
        let (tell, told) = channel();
        let (mut wake_vcpu, tell_worker) = (to_vcpu.try_clone().unwrap(), tell.clone());
        thread::spawn(move || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            tell_worker.send(own_tid()).unwrap();
            let (mut what, to) = ([0], socket.local_addr().unwrap());
            while worker_end.read_exact(&mut what).is_ok() {
                if what[0] == REQUEST {
                    wake_vcpu.write_all(&[0]).unwrap();
                } else {
                    socket.send_to(&[0], to).unwrap();
                    tell_sent.write_all(&[0]).unwrap();
                }
            }
        });
        let worker = told.recv().unwrap();
        let mut kick = to_worker.try_clone().unwrap();
        thread::spawn(move || {
            tell.send(own_tid()).unwrap();
            while vcpu_end.read_exact(&mut [0]).is_ok() {
                let begin = Instant::now();
                while begin.elapsed() < WORK {}
                // A worker that is awake is kicked without a wake-up.
                await_sleep(worker);
                kick.write_all(&[KICK]).unwrap();
            }
        });
        let vcpu = told.recv().unwrap();
        Self {
            worker,
            vcpu,
            to_worker,
            to_vcpu,
            sent,
        }
    }

    fn followed(&self, most_ns: [u64; STAGES]) -> Followed {
        Followed {
            name: "web".to_owned(),
            workers: [self.worker].into(),
            vcpus: [self.vcpu].into(),
            most_ns,
        }
    }

    fn await_answer(&mut self) {
        self.sent.read_exact(&mut [0]).unwrap();
    }

    fn await_idle(&self) {
        await_sleep(self.worker);
        await_sleep(self.vcpu);
    }

    fn request(&mut self) {
        self.await_idle();
        self.to_worker.write_all(&[REQUEST]).unwrap();
        self.await_answer();
    }

    /// The guest sends without a request.
    fn send(&mut self) {
        self.await_idle();
        self.to_vcpu.write_all(&[0]).unwrap();
        self.await_answer();
    }
}

fn seen(requests: &Requests) -> [Seen; STAGES] {
    requests.look().unwrap()["web"]
}

#[test]
fn each_request_is_followed_through_its_stages_and_counted_against_its_limits() {
    let mut vm = Vm::start();
    let mut other = Vm::start();
    let mut requests = Requests::open().unwrap();
    let cards = Cards {
        interfaces: [LOOPBACK].into(),
        ..Cards::default()
    };
    let any = [u64::MAX; STAGES];
    let mut most_ns = any;
    most_ns[Stage::Guest as usize] = 1;
    requests.follow(&[vm.followed(most_ns)], &cards).unwrap();
    for _ in 0..20 {
        vm.request();
        other.request();
    }
    let found = seen(&requests);
    assert_eq!(found.map(|it| it.n), [20; STAGES], "{found:?}");
    assert_eq!(found.map(|it| it.over), [0, 0, 20, 0, 0]);
    let longest = found.map(|it| it.longest_ns);
    assert!(longest[2] >= WORK.as_nanos() as u64, "{longest:?}");
    assert!(
        longest[..4].iter().all(|it| *it <= longest[4]),
        "{longest:?}"
    );

    // What the guest sends by itself is no request's, and has a way back all the same.
    vm.send();
    let after = seen(&requests).map(|it| it.n);
    assert_eq!(after, [20, 20, 20, 21, 20]);

    // A VM that is started again is followed on.
    vm.await_idle();
    requests.follow(&[other.followed(most_ns)], &cards).unwrap();
    vm.request();
    other.request();
    assert_eq!(seen(&requests).map(|it| it.n), [21, 21, 21, 22, 21]);

    // Other limits are another plan.
    other.await_idle();
    requests.follow(&[other.followed(any)], &cards).unwrap();
    assert_eq!(seen(&requests), [Seen::default(); STAGES]);
    other.request();
    assert_eq!(seen(&requests).map(|it| (it.n, it.over)), [(1, 0); STAGES]);

    // Packets that leave by another card are none of its answers.
    other.await_idle();
    let none = Cards::default();
    requests.follow(&[other.followed(any)], &none).unwrap();
    other.request();
    assert_eq!(seen(&requests).map(|it| it.n), [2, 2, 2, 1, 1]);
    requests.follow(&[], &none).unwrap();
    assert!(requests.look().unwrap().is_empty());
}

#[test]
fn more_than_the_maps_hold_is_refused() {
    let vm = Followed {
        name: "web".to_owned(),
        workers: (1..5000).collect(),
        vcpus: [5000].into(),
        most_ns: [1; STAGES],
    };
    let mut requests = Requests::open().unwrap();
    assert!(requests.follow(&[vm], &Cards::default()).is_err());
    assert!(requests.look().unwrap().is_empty());
}
