//! Sockets that the guest has closed and the host's kernel still sends the data of.
//!
//! close(2) would leave that data to the kernel, where nobody is charged for it and only limits of the
//! whole host bound it (`tcp_mem`, `tcp_max_orphans`). So a stream with data that its peer has not
//! acknowledged is shut down instead, which looks the same to the peer, and keeps its slot and its charge
//! until the data has gone, the connection has ended, or [`LONGEST_CLOSING_S`](crate::socket::LONGEST_CLOSING_S) are over.

use crate::lock::Lock;
use crate::socket::Socket;
use std::collections::VecDeque;
use std::sync::Arc;

/// So many are looked at in passing.
const GLANCE: usize = 4;

/// The sockets of a VM that are closing.
#[derive(Default)]
pub struct Closing(Lock<VecDeque<Arc<Socket>>>);

impl Closing {
    /// Keeps a socket that has begun to close.
    pub fn keep(&self, socket: Arc<Socket>) {
        self.0.lock().push_back(socket);
    }

    /// Gives up those that are done, of a few that were not looked at for the longest.
    pub fn glance(&self, done: impl Fn(&Socket)) {
        self.look(GLANCE, done);
    }

    /// Gives up all that are done.
    pub fn look_at_all(&self, done: impl Fn(&Socket)) {
        self.look(usize::MAX, done);
    }

    fn look(&self, most: usize, done: impl Fn(&Socket)) {
        let mut ended = Vec::new();
        {
            let mut closing = self.0.lock();
            for _ in 0..closing.len().min(most) {
                let Some(socket) = closing.pop_front() else {
                    break;
                };
                if socket.is_sending() {
                    closing.push_back(socket);
                } else {
                    ended.push(socket);
                }
            }
        }
        for socket in ended {
            done(&socket);
        }
    }
}
