//! A bulk TCP stream, as fast as it goes, and the sink that counts what arrives.
//!
//! Not iperf3: a measurement's phases begin and end with what another process does, not with the
//! stream's seconds, and what the receiver has got by then is what counts.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// What is written or read at once.
const PIECE_BYTES: usize = 128 << 10;

/// Sends as fast as it goes until `stop`, then waits until the receiver has read everything and
/// closed, so that nothing of this stream is sent during the next one. Gives the bytes sent.
///
/// # Errors
/// The connection's: among them its time limits, if it has some.
pub fn send(mut connection: &TcpStream, stop: &AtomicBool) -> io::Result<u64> {
    let piece = vec![0; PIECE_BYTES];
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        connection.write_all(&piece)?;
        sent += piece.len() as u64;
    }
    connection.shutdown(Shutdown::Write)?;
    match connection.read(&mut [0])? {
        0 => Ok(sent),
        _ => Err(io::Error::other("the receiver sent something")),
    }
}

/// Receives one connection after the other and counts their bytes for ever.
///
/// # Errors
/// The listener's. A connection that breaks gives way to the next.
pub fn count(listener: &TcpListener, received: &AtomicU64) -> io::Result<()> {
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        let (mut connection, _) = listener.accept()?;
        loop {
            match connection.read(&mut buffer) {
                Ok(0) => break,
                Ok(bytes) => {
                    received.fetch_add(bytes as u64, Ordering::Relaxed);
                    // At a SCHED_FIFO priority there are no time slices, and a sender that always has
                    // more keeps this thread from ever sleeping: whoever asks for the count would wait
                    // until the stream ends.
                    thread::yield_now();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn when_a_stream_has_ended_the_sink_has_all_of_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&received);
        thread::spawn(move || count(&listener, &counter));
        let mut expected = 0;
        for _ in 0..2 {
            let connection = TcpStream::connect(address).unwrap();
            let stop = AtomicBool::new(false);
            let sent = thread::scope(|scope| {
                let sender = scope.spawn(|| send(&connection, &stop));
                while received.load(Ordering::Relaxed) == expected {
                    thread::yield_now();
                }
                stop.store(true, Ordering::Relaxed);
                sender.join().unwrap()
            });
            expected += sent.unwrap();
            assert_eq!(received.load(Ordering::Relaxed), expected);
        }
    }

    #[test]
    fn a_receiver_that_breaks_the_connection_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // Closed with something unread: a reset.
        let (mut accepted, _) = listener.accept().unwrap();
        (&connection).write_all(&[1, 2, 3]).unwrap();
        accepted.read_exact(&mut [0]).unwrap();
        drop(accepted);
        assert!(send(&connection, &AtomicBool::new(false)).is_err());
    }
}
