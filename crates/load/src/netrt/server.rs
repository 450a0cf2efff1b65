//! The NetRT server: sends every valid request back.

use super::wire::{Header, MAXIMUM_PAYLOAD_BYTES, make_reply};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long [`serve`] may take to notice that it should stop.
const STOP_NOTICED_WITHIN: Duration = Duration::from_millis(100);

/// What a server did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerCounters {
    /// Requests sent back.
    pub answered: u64,
    /// Datagrams that are no request; not answered.
    pub malformed: u64,
    /// Requests whose reply the kernel did not take.
    pub send_failures: u64,
}

/// Why a server ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The socket could not be set up.
    #[error(
        "NetRT server: cannot set the receive timeout of its UDP socket: {0}; pass a bound UDP socket"
    )]
    SetUp(#[source] io::Error),
    /// The socket cannot receive any more.
    #[error(
        "NetRT server: cannot receive on {address}: {source}; check that its network is still up"
    )]
    Receive {
        /// The address the server is bound to, as far as it is known.
        address: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

/// Answers requests on `socket` until `stop` is set, which is noticed within 100 ms.
///
/// Malformed datagrams are counted and ignored, replies the kernel refuses too: whatever the
/// network does, the server goes on. It changes the socket's read timeout and blocking mode.
///
/// # Errors
/// When the socket cannot be set up, or receiving fails for a reason that will not pass.
pub fn serve(socket: &UdpSocket, stop: &AtomicBool) -> Result<ServerCounters, ServerError> {
    // One blocking call a request, none to wait: polling would add a system call to each.
    socket.set_nonblocking(false).map_err(ServerError::SetUp)?;
    socket
        .set_read_timeout(Some(STOP_NOTICED_WITHIN))
        .map_err(ServerError::SetUp)?;
    let mut counters = ServerCounters::default();
    let mut datagram = vec![0; MAXIMUM_PAYLOAD_BYTES];
    while !stop.load(Ordering::Relaxed) {
        match socket.recv_from(&mut datagram) {
            Ok((length, client)) => {
                answer(socket, &mut datagram[..length], client, &mut counters);
            }
            Err(error) if passes(&error) => {}
            Err(source) => {
                let address = socket
                    .local_addr()
                    .map_or("an unknown address".into(), |it| it.to_string());
                return Err(ServerError::Receive { address, source });
            }
        }
    }
    Ok(counters)
}

fn answer(
    socket: &UdpSocket,
    datagram: &mut [u8],
    client: SocketAddr,
    counters: &mut ServerCounters,
) {
    if Header::read_request(datagram).is_none() {
        counters.malformed += 1;
        return;
    }
    make_reply(datagram);
    match socket.send_to(datagram, client) {
        Ok(_) => counters.answered += 1,
        Err(_) => counters.send_failures += 1,
    }
}

/// Timeouts, signals, and notices about clients that have gone.
fn passes(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock
            | ErrorKind::TimedOut
            | ErrorKind::Interrupted
            | ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
    )
}
