//! What one VM may use of the host.

use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Limits of one VM. What is beyond them fails with an error number, as on a host that is short of
/// the same thing.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Sockets at a time; beyond: ENOBUFS. The process's own limit of descriptors (EMFILE) must
    /// leave room for them.
    pub sockets: u32,
    /// Bytes that the buffers of all sockets may hold, as they are by default or were set
    /// (`SO_SNDBUF` + `SO_RCVBUF` as the host reports them); beyond: ENOBUFS. What TCP adds by its
    /// own autotuning is bounded by the namespace's `tcp_rmem` and `tcp_wmem`, not here.
    pub buffer_bytes: u64,
    /// Bytes of data in one request, each way; beyond: EMSGSIZE.
    pub request_bytes: u32,
    /// Requests outstanding in one queue, a power of two: the queue's largest size, and how many
    /// one call of `serve` carries out before it returns.
    pub operations: u16,
    /// The highest `SO_PRIORITY` that the guest may set; beyond: EPERM, as without `CAP_NET_ADMIN` for
    /// more than 6.
    pub priority: u8,
    /// The longest sleep in one `SVS_OP_WAIT`, which may return early.
    pub longest_wait: Duration,
    /// How long a wait polls the card before it sleeps, at most; zero for never. Only for who has the queues of the
    /// network namespace's cards for itself: else it would take others' packets at its own expense.
    pub poll: Duration,
}

impl Default for Limits {
    /// 4,096 sockets, 1 GiB of buffers, 1 MiB in a request, 256 requests a queue, priority 6, 1 s,
    /// no polling.
    fn default() -> Self {
        Self {
            sockets: 4096,
            buffer_bytes: 1 << 30,
            request_bytes: 1 << 20,
            operations: 256,
            priority: 6,
            longest_wait: Duration::from_secs(1),
            poll: Duration::ZERO,
        }
    }
}

/// Bytes that are left of [`Limits::buffer_bytes`].
pub struct Budget(AtomicU64);

impl Budget {
    /// A budget of `bytes`.
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(bytes)))
    }

    fn take(&self, bytes: u64) -> Result<(), Errno> {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(bytes)
            })
            .map(drop)
            .map_err(|_| Errno::NOBUFS)
    }
}

/// A part of a budget, given back when dropped.
pub struct Charge {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Charge {
    /// Nothing yet.
    pub const fn none(budget: Arc<Budget>) -> Self {
        Self { budget, bytes: 0 }
    }

    /// Makes this charge `bytes`.
    ///
    /// # Errors
    /// ENOBUFS where the budget has less; the charge stays.
    pub fn change_to(&mut self, bytes: u64) -> Result<(), Errno> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.budget.take(more)?,
            None => drop(
                self.budget
                    .0
                    .fetch_add(self.bytes - bytes, Ordering::Relaxed),
            ),
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_charged_is_bounded_and_comes_back() {
        let budget = Budget::new(10);
        let mut one = Charge::none(Arc::clone(&budget));
        let mut two = Charge::none(Arc::clone(&budget));
        assert_eq!(one.change_to(7), Ok(()));
        assert_eq!(two.change_to(4), Err(Errno::NOBUFS));
        assert_eq!(one.change_to(6), Ok(()));
        assert_eq!(two.change_to(4), Ok(()));
        drop(one);
        assert_eq!(two.change_to(10), Ok(()));
        assert_eq!(two.change_to(11), Err(Errno::NOBUFS));
    }
}
