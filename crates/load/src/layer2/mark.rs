//! What a frame of ours carries in its data: which one it is, and when it was sent.

/// Which frame of its stream, and when it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Counts from 0.
    pub sequence: u64,
    /// When it was handed to the kernel, in nanoseconds since 1970 by the sender's clock.
    pub sent_ns: u64,
}

impl Mark {
    /// Its length.
    pub(super) const BYTES: usize = 16;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[8..].copy_from_slice(&self.sent_ns.to_be_bytes());
        bytes
    }

    pub(super) fn of(bytes: [u8; Self::BYTES]) -> Self {
        let number = u128::from_be_bytes(bytes);
        Self {
            sequence: (number >> 64) as u64,
            sent_ns: number as u64,
        }
    }
}
