//! TCP connections of a machine to itself: many short ones, many at once, one that asks, one that carries much. Benchmarks of
//! gVisor and of libkrun have these shapes.
//!
//! Both ends are threads of one process, so one clock times a request. The protocol: a connection says first how long its
//! requests are, 4 bytes in network order. The server answers each of them, when it is whole, with a byte.

use rustix::event::epoll;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// An answer comes within this time, or the measurement fails.
const PATIENCE: Duration = Duration::from_secs(30);
/// What the server reads at a time.
const CHUNK_BYTES: usize = 1 << 16;
/// The longest request, 1 GiB.
const LONGEST: u32 = 1 << 30;
/// Events taken at a time.
const BATCH: usize = 64;
/// What the listener is among the connections.
const LISTENER: u64 = 0;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Requests, one after the other.
    pub requests: u64,
    /// Bytes of each.
    pub bytes: u32,
    /// Connections that are open at a time; requests go to them in turn. 0: a new one for each request, which is opened and closed
    /// in its time.
    pub open: usize,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// Of each request, from its first byte, or from `connect`, until its answer, or `close`, in nanoseconds.
    pub each_ns: Vec<u64>,
}

/// Starts the server in a thread that lives as long as the process.
///
/// # Errors
/// No free port, or no thread.
pub fn serve() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let mut server = Server::new(listener)?;
    thread::Builder::new()
        .name("connections".to_owned())
        .spawn(move || server.run())?;
    Ok(address)
}

/// Sends the requests to a server, and times each.
///
/// # Errors
/// It cannot be reached, or does not answer within 30 s.
pub fn measure(server: SocketAddr, asked: &Asked) -> io::Result<Answered> {
    let content = vec![0x5a; asked.bytes as usize];
    let open = (0..asked.open).map(|_| connect(server, asked.bytes));
    let mut open = open.collect::<io::Result<Vec<TcpStream>>>()?;
    let mut each_ns = Vec::new();
    for number in 0..asked.requests {
        let began = Instant::now();
        if open.is_empty() {
            let mut stream = connect(server, asked.bytes)?;
            ask(&mut stream, &content)?;
            stream.shutdown(Shutdown::Both)?;
        } else {
            let place = number as usize % open.len();
            ask(&mut open[place], &content)?;
        }
        each_ns.push(began.elapsed().as_nanos() as u64);
    }
    Ok(Answered { each_ns })
}

fn connect(server: SocketAddr, bytes: u32) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&bytes.to_be_bytes())?;
    Ok(stream)
}

fn ask(stream: &mut TcpStream, content: &[u8]) -> io::Result<()> {
    stream.write_all(content)?;
    stream.read_exact(&mut [0])
}

/// All connections, in one thread.
struct Server {
    epoll: std::os::fd::OwnedFd,
    listener: TcpListener,
    connections: BTreeMap<u64, Connection>,
    /// Of the next connection.
    number: u64,
    /// What was read last.
    chunk: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    progress: Progress,
}

/// How far a connection's bytes have come.
#[derive(Debug, Default, PartialEq, Eq)]
struct Progress {
    /// Of the length's 4 bytes, those that have come.
    length: [u8; 4],
    length_bytes: usize,
    /// Of the request.
    request_bytes: u64,
}

impl Progress {
    /// More bytes have come: how many requests are whole by now. `None` for a length that is none.
    fn take(&mut self, mut bytes: &[u8]) -> Option<u64> {
        while self.length_bytes < self.length.len() {
            let Some((first, rest)) = bytes.split_first() else {
                return Some(0);
            };
            self.length[self.length_bytes] = *first;
            self.length_bytes += 1;
            bytes = rest;
        }
        let length = u32::from_be_bytes(self.length);
        if !(1..=LONGEST).contains(&length) {
            return None;
        }
        let all = self.request_bytes + bytes.len() as u64;
        self.request_bytes = all % u64::from(length);
        Some(all / u64::from(length))
    }
}

impl Server {
    fn new(listener: TcpListener) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, data, epoll::EventFlags::IN)?;
        Ok(Self {
            epoll,
            listener,
            connections: BTreeMap::new(),
            number: LISTENER + 1,
            chunk: vec![0; CHUNK_BYTES],
        })
    }

    fn run(&mut self) {
        loop {
            let mut events = [const { MaybeUninit::uninit() }; BATCH];
            let ready: Vec<u64> = match epoll::wait(&self.epoll, &mut events, None) {
                Ok((ready, _)) => {
                    // epoll_event is packed: copied, not borrowed.
                    let number = |event: &epoll::Event| {
                        let data = event.data;
                        data.u64()
                    };
                    ready.iter().map(number).collect()
                }
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
            };
            for number in ready {
                if number == LISTENER {
                    // What one connection fails with is not the others'.
                    let _ = self.accept();
                } else {
                    self.answer(number);
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        let (stream, _) = self.listener.accept()?;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let number = self.number;
        self.number += 1;
        let data = epoll::EventData::new_u64(number);
        epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN)?;
        let progress = Progress::default();
        self.connections
            .insert(number, Connection { stream, progress });
        Ok(())
    }

    /// Reads what has come. A connection that has ended, or that says what it may not, goes.
    fn answer(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        let goes_on = match connection.stream.read(&mut self.chunk) {
            Ok(0) => false,
            Ok(read) => match connection.progress.take(&self.chunk[..read]) {
                // A client waits for an answer before it asks again: a few bytes always find room.
                Some(whole) => (0..whole).all(|_| connection.stream.write_all(&[1]).is_ok()),
                None => false,
            },
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        };
        if !goes_on {
            // Its descriptor leaves the set as it is closed.
            self.connections.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_shape_is_answered_and_timed() {
        let server = serve().unwrap();
        for (requests, bytes, open) in [(20, 1, 0), (20, 64, 1), (100, 64, 50), (3, 1 << 20, 1)] {
            let asked = Asked {
                requests,
                bytes,
                open,
            };
            let answered = measure(server, &asked).unwrap();
            assert_eq!(answered.each_ns.len() as u64, requests, "{asked:?}");
            assert!(answered.each_ns.iter().all(|ns| *ns > 0));
        }
    }

    #[test]
    fn who_says_a_wrong_length_is_closed_and_the_others_are_served() {
        let server = serve().unwrap();
        for length in [0, LONGEST + 1, u32::MAX] {
            let mut stream = connect(server, length).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0, "{length}");
        }
        let asked = Asked {
            requests: 2,
            bytes: 1,
            open: 1,
        };
        assert_eq!(measure(server, &asked).unwrap().each_ns.len(), 2);
    }

    proptest! {
        /// However the bytes are cut into pieces, as many requests are whole as were sent.
        #[test]
        fn requests_are_counted_however_their_bytes_come(
            length in 1_u32..300,
            requests in 0_u64..20,
            pieces in proptest::collection::vec(1_usize..100, 1..20),
        ) {
            let mut sent = length.to_be_bytes().to_vec();
            sent.resize(4 + (u64::from(length) * requests) as usize, 7);
            let mut progress = Progress::default();
            let (mut rest, mut whole) = (&sent[..], 0);
            for piece in pieces.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at((*piece).min(rest.len()));
                whole += progress.take(now).unwrap();
                rest = later;
            }
            prop_assert_eq!(whole, requests);
        }
    }
}
