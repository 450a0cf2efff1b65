//! Bodies of fuzz targets: a hostile guest's bytes, and what must hold whatever they are.
//!
//! They are here since what they drive is private. `fuzz/` builds them by the feature `fuzzing`; `cargo
//! test` runs them on the corpora and on mutations of those.

mod boot;
mod devices;
mod guest;
mod shared;

pub use boot::boot;
pub use devices::devices;
pub use shared::shared_memory;

use std::cell::OnceCell;
use std::time::Duration;
use steadyvm_sockets::Limits;

/// Of the sockets: few, so that each limit is reached.
const LIMITS: Limits = Limits {
    priority: 6,
    sockets: 8,
    buffer_bytes: 1 << 24,
    request_bytes: 1 << 12,
    operations: 1,
    longest_wait: Duration::ZERO,
    poll: Duration::ZERO,
};

/// Takes values off the front; zeros when there is nothing left.
struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (now, later) = self.0.split_at(len.min(self.0.len()));
        self.0 = later;
        now
    }

    fn word(&mut self, len: usize) -> u64 {
        let mut word = [0; 8];
        let bytes = self.bytes(len);
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    }

    fn byte(&mut self) -> u8 {
        self.word(1) as u8
    }

    /// A number below `most`.
    fn below(&mut self, most: usize) -> usize {
        usize::from(self.byte()) % most
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A network namespace without a way out, once a thread.
fn enter_namespace() {
    thread_local!(static ENTERED: OnceCell<()> = const { OnceCell::new() });
    ENTERED.with(|entered| {
        entered.get_or_init(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
                .expect("it makes a network namespace: run it as root");
        });
    });
}

#[cfg(test)]
mod tests;
