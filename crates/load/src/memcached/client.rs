//! The client: one thread that sends when a request is due and reads in between.

use super::protocol::{Unexpected, add_get, add_set, key, reply_bytes};
use super::{Kind, Run, Sample};
use crate::netrt::{Intervals, Schedule};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A request that is sent this long after it was due is counted as late.
const LATE: Duration = Duration::from_millis(1);

/// What to send.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Requests before the counted ones.
    pub warmup: u64,
    /// Counted requests.
    pub requests: u64,
    /// The times between them.
    pub intervals: Intervals,
    /// Seed of their times and keys.
    pub seed: u64,
    /// A reply that takes longer is lost.
    pub timeout: Duration,
    /// Keys, all of them [`fill`]ed first.
    pub keys: u64,
    /// Size of a key.
    pub key_bytes: usize,
    /// Size of a value.
    pub value_bytes: usize,
    /// One request in so many is a SET.
    pub sets_one_in: u64,
}

impl Default for Options {
    /// As in section 4.3 of Garcia, Shinjo and Pu 2018: 100 to 1,000 requests per second, keys of 64
    /// and values of 1,024 bytes, nine GETs to a SET.
    fn default() -> Self {
        Self {
            warmup: 0,
            requests: 1000,
            intervals: Intervals::default(),
            seed: 1,
            timeout: Duration::from_secs(2),
            keys: 1000,
            key_bytes: 64,
            value_bytes: 1024,
            sets_one_in: 10,
        }
    }
}

/// The load could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Options out of range.
    #[error("{0}")]
    Options(String),
    /// A connection failed.
    #[error("memcached's connection: {0}")]
    Connection(#[from] io::Error),
    /// The server ended a connection.
    #[error("memcached ended a connection while requests waited")]
    Ended,
    /// The server said what it should not.
    #[error(transparent)]
    Unexpected(#[from] Unexpected),
}

/// Stores a value for every key.
///
/// # Errors
/// The connection fails, or the server does not store.
pub fn fill(connection: &TcpStream, options: &Options) -> Result<(), ClientError> {
    check(options)?;
    connection.set_read_timeout(Some(options.timeout.max(Duration::from_secs(60))))?;
    let mut connection = connection;
    let mut reply = [0; 8];
    for number in 0..options.keys {
        let mut request = Vec::new();
        add_set(
            &mut request,
            &key(number, options.key_bytes),
            options.value_bytes,
        );
        connection.write_all(&request)?;
        connection.read_exact(&mut reply)?;
        if reply_bytes(&reply, Kind::Set, options.value_bytes)?.is_none() {
            return Err(ClientError::Ended);
        }
    }
    Ok(())
}

/// Sends requests over the connections in turn, and returns every counted reply. Blocks until all are
/// answered or lost.
///
/// # Errors
/// Options out of range, a connection that fails or ends, and replies that are none.
pub fn run(connections: Vec<TcpStream>, options: &Options) -> Result<Run, ClientError> {
    check(options)?;
    let connections: Vec<Connection> = connections
        .into_iter()
        .map(Connection::new)
        .collect::<io::Result<_>>()?;
    if connections.is_empty() {
        return Err(ClientError::Options("there is no connection".to_owned()));
    }
    let mut client = Client {
        connections,
        options,
        start: Instant::now(),
        run: Run::default(),
    };
    let schedule = Schedule::new(options.seed, options.intervals);
    for (sequence, due_ns) in (0..options.warmup + options.requests).zip(schedule) {
        client.read_until(due_ns, false)?;
        client.send(sequence, due_ns)?;
    }
    let end_ns = client.now_ns() + options.timeout.as_nanos() as u64;
    client.read_until(end_ns, true)?;
    Ok(client.finish())
}

fn check(options: &Options) -> Result<(), ClientError> {
    let wrong = if options.requests == 0 {
        "a run without a counted request measures nothing"
    } else if options.keys == 0 || options.sets_one_in == 0 {
        "there must be at least one key, and a SET in some number of requests"
    } else if options.key_bytes == 0 || options.key_bytes > 250 {
        "a key of memcached has 1 to 250 bytes"
    } else if key(options.keys - 1, options.key_bytes).len() > options.key_bytes {
        "the keys are too short for their number"
    } else {
        return Ok(());
    };
    Err(ClientError::Options(wrong.to_owned()))
}

/// A request that waits for its reply.
struct Waiting {
    sequence: u64,
    kind: Kind,
    due_ns: u64,
}

/// A connection with what is on its way.
struct Connection {
    stream: TcpStream,
    waiting: VecDeque<Waiting>,
    unsent: Vec<u8>,
    received: Vec<u8>,
}

impl Connection {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            waiting: VecDeque::new(),
            unsent: Vec::new(),
            received: Vec::new(),
        })
    }

    /// Sends as much as the connection takes now.
    fn flush(&mut self) -> Result<(), ClientError> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Takes what has arrived.
    fn receive(&mut self) -> Result<(), ClientError> {
        let mut piece = [0; 1 << 14];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(ClientError::Ended),
                Ok(count) => self.received.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

struct Client<'a> {
    connections: Vec<Connection>,
    options: &'a Options,
    start: Instant,
    run: Run,
}

impl Client<'_> {
    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn send(&mut self, sequence: u64, due_ns: u64) -> Result<(), ClientError> {
        let options = self.options;
        // A key of its own for each request in a row, from another one on with each seed.
        let number = options.seed.wrapping_add(sequence) % options.keys;
        let key = key(number, options.key_bytes);
        let is_set = (sequence + 1).is_multiple_of(options.sets_one_in);
        let kind = if is_set { Kind::Set } else { Kind::Get };
        if sequence >= options.warmup {
            self.run.requests += 1;
            let late = self.now_ns().saturating_sub(due_ns) > LATE.as_nanos() as u64;
            self.run.sent_late += u64::from(late);
        }
        let count = self.connections.len() as u64;
        let connection = &mut self.connections[(sequence % count) as usize];
        match kind {
            Kind::Get => add_get(&mut connection.unsent, &key),
            Kind::Set => add_set(&mut connection.unsent, &key, options.value_bytes),
        }
        connection.waiting.push_back(Waiting {
            sequence,
            kind,
            due_ns,
        });
        connection.flush()
    }

    /// Reads until `end_ns` after the start, or until nothing waits if that suffices.
    fn read_until(&mut self, end_ns: u64, all_answered_suffices: bool) -> Result<(), ClientError> {
        loop {
            self.take_replies()?;
            let nothing_waits = self.connections.iter().all(|it| it.waiting.is_empty());
            let left_ns = end_ns.saturating_sub(self.now_ns());
            if left_ns == 0 || (all_answered_suffices && nothing_waits) {
                return Ok(());
            }
            let mut polled: Vec<PollFd> = self
                .connections
                .iter()
                .map(|it| {
                    let writes = if it.unsent.is_empty() {
                        PollFlags::empty()
                    } else {
                        PollFlags::POLLOUT
                    };
                    PollFd::new(it.stream.as_fd(), PollFlags::POLLIN | writes)
                })
                .collect();
            let left = TimeSpec::from_duration(Duration::from_nanos(left_ns));
            match ppoll(&mut polled, Some(left), None) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
    }

    fn take_replies(&mut self) -> Result<(), ClientError> {
        let (warmup, timeout) = (self.options.warmup, self.options.timeout);
        for connection in &mut self.connections {
            connection.flush()?;
            connection.receive()?;
            let now_ns = self.start.elapsed().as_nanos() as u64;
            let mut taken = 0;
            while let Some(waiting) = connection.waiting.front() {
                let received = &connection.received[taken..];
                let Some(bytes) = reply_bytes(received, waiting.kind, self.options.value_bytes)?
                else {
                    break;
                };
                taken += bytes;
                let response_ns = now_ns.saturating_sub(waiting.due_ns);
                let in_time = u128::from(response_ns) <= timeout.as_nanos();
                if waiting.sequence >= warmup && in_time {
                    self.run.samples.push(Sample {
                        sequence: waiting.sequence,
                        kind: waiting.kind,
                        due_ns: waiting.due_ns,
                        response_ns,
                    });
                }
                connection.waiting.pop_front();
            }
            connection.received.drain(..taken);
        }
        Ok(())
    }

    fn finish(mut self) -> Run {
        self.run.lost = self.run.requests - self.run.samples.len() as u64;
        self.run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// Answers like memcached, each reply this long after its request.
    fn serve(mut stream: TcpStream, value_bytes: usize, delay: Duration) {
        let mut received = Vec::new();
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut piece) {
            received.extend_from_slice(&piece[..count]);
            while let Some(end) = received.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8(received[..end].to_vec()).unwrap();
                let key = line.split(' ').nth(1).unwrap();
                let (whole, reply) = if line.starts_with("set ") {
                    (end + 2 + value_bytes + 2, "STORED\r\n".to_owned())
                } else {
                    let value = "v".repeat(value_bytes);
                    let reply = format!("VALUE {key} 0 {value_bytes}\r\n{value}\r\nEND\r\n");
                    (end + 2, reply)
                };
                if received.len() < whole {
                    break;
                }
                received.drain(..whole);
                thread::sleep(delay);
                if stream.write_all(reply.as_bytes()).is_err() {
                    return;
                }
            }
        }
    }

    fn connections(count: usize, delay: Duration) -> Vec<TcpStream> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (0..count)
            .map(|_| {
                let client = TcpStream::connect(address).unwrap();
                let (server, _) = listener.accept().unwrap();
                thread::spawn(move || serve(server, 1024, delay));
                client
            })
            .collect()
    }

    fn quick(requests: u64) -> Options {
        Options {
            requests,
            intervals: Intervals {
                shortest: Duration::from_micros(100),
                longest: Duration::from_micros(200),
            },
            keys: 20,
            ..Options::default()
        }
    }

    #[test]
    fn every_request_is_answered_and_one_in_ten_is_a_set() {
        let connections = connections(3, Duration::ZERO);
        let options = Options {
            warmup: 10,
            ..quick(100)
        };
        fill(&connections[0], &options).unwrap();
        let run = run(connections, &options).unwrap();
        assert_eq!((run.requests, run.lost, run.samples.len()), (100, 0, 100));
        let sets = run.samples.iter().filter(|it| it.kind == Kind::Set).count();
        assert_eq!(sets, 10);
        assert!(
            run.samples
                .iter()
                .all(|it| (10..110).contains(&it.sequence))
        );
    }

    #[test]
    fn what_a_request_waits_behind_others_is_part_of_its_time() {
        let options = Options {
            sets_one_in: 1000,
            ..quick(20)
        };
        let slow = Duration::from_millis(5);
        let run = run(connections(1, slow), &options).unwrap();
        // All are due within 4 ms, and each takes the server 5 ms.
        let last = run.samples.iter().max_by_key(|it| it.sequence).unwrap();
        assert!(last.response_ns >= 20 * 5_000_000 - 4_000_000, "{last:?}");
        assert_eq!(run.lost, 0);
    }

    #[test]
    fn replies_that_come_too_late_are_lost() {
        let options = Options {
            timeout: Duration::from_millis(1),
            ..quick(5)
        };
        let run = run(connections(1, Duration::from_secs(5)), &options).unwrap();
        assert_eq!((run.requests, run.lost, run.samples.len()), (5, 5, 0));
    }

    #[test]
    fn a_server_that_ends_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop(listener.accept().unwrap());
        assert!(run(vec![client], &quick(5)).is_err());
    }

    #[test]
    fn impossible_options_are_refused() {
        for spoil in [
            |it: &mut Options| it.requests = 0,
            |it: &mut Options| it.keys = 0,
            |it: &mut Options| it.sets_one_in = 0,
            |it: &mut Options| it.key_bytes = 251,
            |it: &mut Options| (it.keys, it.key_bytes) = (1000, 2),
        ] {
            let mut options = Options::default();
            spoil(&mut options);
            assert!(check(&options).is_err(), "{options:?}");
        }
    }
}
