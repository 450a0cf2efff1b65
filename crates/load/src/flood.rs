//! Floods of UDP packets, on a schedule or as many as go, and the sink that counts what arrives.

use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What was sent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Flooded {
    /// Packets.
    pub sent: u64,
    /// Packets that the sender's own machine had no room for.
    pub refused: u64,
    /// From the first packet's time to the last one's, in seconds.
    pub duration_s: f64,
}

/// The longest the sender sleeps before it looks at the flag.
const STOP_NOTICED_WITHIN: Duration = Duration::from_millis(20);

/// Sends a packet of `bytes` at each of the `schedule`'s times (nanoseconds after the start) to
/// where the socket is connected, until `stop`. A sender that is late sends what is due at once: the
/// schedule does not wait.
///
/// # Errors
/// The socket's, but for a full queue (counted) and a receiver that is not there yet.
pub fn send(
    socket: &UdpSocket,
    schedule: impl Iterator<Item = u64>,
    bytes: usize,
    stop: &AtomicBool,
) -> io::Result<Flooded> {
    let packet = vec![0; bytes];
    let begun = Instant::now();
    let (mut sent, mut refused) = (0, 0);
    for due_ns in schedule {
        let due = Duration::from_nanos(due_ns);
        while let Some(left) = due.checked_sub(begun.elapsed()).filter(|it| !it.is_zero()) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            thread::sleep(left.min(STOP_NOTICED_WITHIN));
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
        match socket.send(&packet) {
            Ok(_) => sent += 1,
            Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => refused += 1,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => refused += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(Flooded {
        sent,
        refused,
        duration_s: begun.elapsed().as_secs_f64(),
    })
}

/// Sends packets as fast as they go whenever it is switched on. Dropping it ends it.
pub struct Flood {
    shared: Arc<Shared>,
    sender: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    is_on: AtomicBool,
    end: AtomicBool,
    sent: AtomicU64,
}

impl Flood {
    /// Of packets of `bytes` to where the socket is connected; off.
    pub fn new(socket: UdpSocket, bytes: usize) -> Self {
        let shared = Arc::<Shared>::default();
        let of_sender = Arc::clone(&shared);
        let sender = thread::spawn(move || of_sender.send(&socket, &vec![0; bytes]));
        Self { shared, sender }
    }

    /// Switches it on.
    pub fn start(&self) {
        self.shared.is_on.store(true, Ordering::Relaxed);
        self.sender.thread().unpark();
    }

    /// Switches it off and tells how many packets it has sent since its beginning.
    pub fn stop(&self) -> u64 {
        self.shared.is_on.store(false, Ordering::Relaxed);
        self.shared.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Relaxed);
        self.sender.thread().unpark();
    }
}

impl Shared {
    fn send(&self, socket: &UdpSocket, packet: &[u8]) {
        while !self.end.load(Ordering::Relaxed) {
            if !self.is_on.load(Ordering::Relaxed) {
                thread::park();
            } else if socket.send(packet).is_ok() {
                // What the socket does not take (no room, nobody there yet) is not sent; it goes on.
                self.sent.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// What a sink has received so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Packets of UDP, bytes of TCP.
    pub received: u64,
    /// When, in nanoseconds after the sink's start: rates do not depend on when the answer comes.
    pub at_ns: u64,
}

impl Count {
    /// The time since an earlier count, in seconds.
    pub fn seconds_since(&self, earlier: &Self) -> f64 {
        self.at_ns.saturating_sub(earlier.at_ns) as f64 / 1e9
    }

    /// What came in a second since an earlier count; 0 if no time has passed.
    pub fn per_s_since(&self, earlier: &Self) -> f64 {
        let passed_s = self.seconds_since(earlier);
        if passed_s > 0.0 {
            self.received.saturating_sub(earlier.received) as f64 / passed_s
        } else {
            0.0
        }
    }
}

/// Receives and counts for ever.
///
/// # Errors
/// The socket's.
pub fn count(socket: &UdpSocket, received: &AtomicU64) -> io::Result<()> {
    let mut buffer = [0; 2048];
    loop {
        match socket.recv(&mut buffer) {
            Ok(_) => {
                received.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_of_the_schedule_is_sent_and_has_its_size() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let schedule = (0..20).map(|number| number * 100_000);
        let flooded = send(&sender, schedule, 18, &AtomicBool::new(false)).unwrap();
        assert_eq!((flooded.sent, flooded.refused), (20, 0));
        let mut buffer = [0; 100];
        for _ in 0..20 {
            assert_eq!(receiver.recv(&mut buffer).unwrap(), 18);
        }
    }

    #[test]
    fn a_flood_flows_when_it_is_on_only() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let flood = Flood::new(sender, 33);
        assert_eq!(flood.stop(), 0);
        let mut buffer = [0; 100];
        for _ in 0..2 {
            flood.start();
            assert_eq!(receiver.recv(&mut buffer).unwrap(), 33);
            flood.stop();
        }
        assert!(flood.stop() >= 1);
        drop(flood);
    }

    #[test]
    fn a_rate_is_that_of_the_time_between_two_counts() {
        let count = |received, at_ns| Count { received, at_ns };
        let earlier = count(100, 1_000_000_000);
        let rate = count(1100, 3_000_000_000).per_s_since(&earlier);
        assert!((rate - 500.0).abs() < 1e-9, "{rate}");
        for same in [earlier, count(200, 1_000_000_000), count(50, 0)] {
            assert!(same.per_s_since(&earlier).abs() < f64::EPSILON, "{same:?}");
        }
    }

    #[test]
    fn the_flag_ends_it_before_the_next_packet() {
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(sender.local_addr().unwrap()).unwrap();
        let never = std::iter::once(u64::MAX);
        let flooded = send(&sender, never, 1, &AtomicBool::new(true)).unwrap();
        assert_eq!(flooded.sent, 0);
    }
}
