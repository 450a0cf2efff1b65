//! A guest's name for a socket.

/// A guest's name for a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(u64);

impl Handle {
    pub const fn new(index: u32, generation: u32) -> Self {
        Self((generation as u64) << 32 | index as u64)
    }

    /// What a guest sent: anything.
    pub const fn from_guest(handle: u64) -> Self {
        Self(handle)
    }

    /// As it goes to the guest.
    pub const fn to_guest(self) -> u64 {
        self.0
    }

    /// The slot and the place in the state table.
    pub const fn index(self) -> u32 {
        self.0 as u32
    }

    /// Never 0 for a socket that exists.
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}
