//! Waits that poll the card: a pair of veth devices with NAPIs of their own, whose other end is in another namespace.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::mem::zeroed;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use steadyvm_sockets::abi::ready;
use steadyvm_sockets::{Limits, can_busy_poll};

use crate::guest::{Guest, Vcpu, enter_namespace, ip, patient};

const ROUNDS: u32 = 300;
/// Longer than an answer takes on a machine that does much else.
const POLL: Duration = Duration::from_millis(200);

/// `ETHTOOL_SGRO` and `ETHTOOL_STSO` of linux/ethtool.h.
const RECEIVE_OFFLOAD: u32 = 0x2c;
const SEGMENTATION: u32 = 0x1f;

/// As `ethtool -K`. A veth device has NAPIs while its receive offload is on, and its peer's datagrams take them where that
/// does not leave segmentation to it.
fn set_feature(device: &str, feature: u32, is_on: bool) {
    let mut value = [feature, u32::from(is_on)];
    // SAFETY: an ifreq of zeros is valid.
    let mut request: libc::ifreq = unsafe { zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    let any = UdpSocket::bind("127.0.0.1:0").unwrap();
    // SAFETY: SIOCETHTOOL takes an ifreq whose data is a `struct ethtool_value`; both outlive the call.
    let done = unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Whoever answers on the CPU of a thread that polls runs only while that does not.
fn stay_on(cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(0), &cpus).unwrap();
}

/// Answers datagrams in a namespace of its own, until it gets an empty one. Tells its thread and then its address.
fn answer(tell: &Sender<String>, has_card: &Receiver<()>) {
    enter_namespace();
    stay_on(1);
    tell.send(nix::unistd::gettid().to_string()).unwrap();
    has_card.recv().unwrap();
    set_feature("far", SEGMENTATION, false);
    ip("address add 10.9.0.2/24 dev far");
    ip("link set far up");
    let socket = UdpSocket::bind("10.9.0.2:0").unwrap();
    tell.send(socket.local_addr().unwrap().to_string()).unwrap();
    let mut bytes = [0; 64];
    loop {
        let (len, from) = socket.recv_from(&mut bytes).unwrap();
        if len == 0 {
            return;
        }
        socket.send_to(&bytes[..len], from).unwrap();
    }
}

/// A guest whose namespace has a card of its own, and who answers there.
struct Setting {
    vcpu: Vcpu,
    socket: u64,
    peer: String,
    answers: JoinHandle<()>,
}

impl Setting {
    fn new(poll: Duration) -> Self {
        let limits = Limits { poll, ..patient() };
        stay_on(0);
        let mut vcpu = Guest::new(limits, 1).vcpu(0);
        vcpu.set_up();
        let (tell, told) = channel();
        let (give_card, has_card) = channel();
        let answers = thread::spawn(move || answer(&tell, &has_card));
        ip("link add eth0 type veth peer name far");
        ip(&format!("link set far netns {}", told.recv().unwrap()));
        set_feature("eth0", RECEIVE_OFFLOAD, true);
        ip("address add 10.9.0.1/24 dev eth0");
        ip("link set eth0 up");
        give_card.send(()).unwrap();
        let peer = told.recv().unwrap();
        let socket = vcpu.datagram();
        vcpu.bind(socket, "10.9.0.1:0").unwrap();
        Self {
            vcpu,
            socket,
            peer,
            answers,
        }
    }

    /// Asks and waits for the answer, again and again; what that took of the host.
    fn play(mut self) -> Played {
        let (sleeps, packets) = (sleeps(), polled_packets());
        for round in 0..ROUNDS {
            let question = round.to_ne_bytes();
            self.vcpu
                .send_to(self.socket, &question, &self.peer)
                .unwrap();
            self.vcpu.idle_until(self.socket, ready::IN);
            let answer = self.vcpu.receive(self.socket, 64, 0).unwrap();
            assert_eq!(answer.data, question);
        }
        let counts = self.vcpu.device.counts();
        let played = Played {
            sleeps: self::sleeps() - sleeps,
            polled_packets: self::polled_packets() - packets,
            found: counts[0].read().get("polls_that_found").copied(),
        };
        self.vcpu.send_to(self.socket, b"", &self.peer).unwrap();
        self.answers.join().unwrap();
        played
    }
}

#[derive(Debug)]
struct Played {
    /// Times that the VCPU's thread gave up its CPU.
    sleeps: i64,
    /// Packets that were taken from the card by a poll.
    polled_packets: u64,
    found: Option<u64>,
}

fn sleeps() -> i64 {
    // SAFETY: a rusage of zeros is valid, and the call fills it.
    unsafe {
        let mut usage: libc::rusage = zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage.ru_nvcsw
    }
}

/// Of the calling thread's namespace.
fn polled_packets() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    let (_, value) = pairs
        .find(|(name, _)| *name == "BusyPollRxPackets")
        .unwrap();
    value.parse().unwrap()
}

/// Who waits takes the answers from the card by itself, and sleeps less often than once a request.
#[test]
fn a_vcpu_that_waits_takes_its_packets_from_the_card_itself() {
    let cpus = thread::available_parallelism().unwrap().get();
    if cpus < 2 || can_busy_poll().is_err() {
        println!("not shown: {cpus} CPUs, {:?}", can_busy_poll());
        return;
    }
    let sleeping = Setting::new(Duration::ZERO).play();
    assert_eq!((sleeping.polled_packets, sleeping.found), (0, None));
    let polling = Setting::new(POLL).play();
    println!(
        "{ROUNDS} requests: {} sleeps without polls, {} with them, which took {} packets",
        sleeping.sleeps, polling.sleeps, polling.polled_packets
    );
    assert!(polling.polled_packets > 0, "{polling:?}");
    assert!(polling.found.is_some(), "{polling:?}");
}

/// A poll of the card does not keep what comes otherwise waiting: a guest whose packets come by loopback, and a doorbell.
#[test]
fn what_comes_by_no_card_ends_a_wait_that_polls() {
    let limits = Limits {
        poll: POLL,
        ..patient()
    };
    let mut vcpu = Guest::new(limits, 1).vcpu(0);
    vcpu.set_up();
    let socket = vcpu.datagram();
    vcpu.bind(socket, "127.0.0.1:0").unwrap();
    let address = vcpu.local(socket).unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for round in 0..100_u32 {
        peer.send_to(&round.to_ne_bytes(), address).unwrap();
        vcpu.idle_until(socket, ready::IN);
        let got = vcpu.receive(socket, 64, 0).unwrap();
        assert_eq!(got.data, round.to_ne_bytes());
        vcpu.events();
        vcpu.device.wake(0);
        assert_eq!(vcpu.wait(None), Ok(0));
    }
    assert_eq!(polled_packets(), 0);
}
