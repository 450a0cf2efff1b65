//! When a guest must be told of events in its ring, where it waits in no request: as virtio's event index says it (virtio
//! 1.2, 2.7.10), with the guest's own count of what it has taken as the index.
//!
//! Who fills the ring counts the events, then a full barrier, then looks at how many were taken. Who takes them counts
//! that, then a full barrier, then looks for more, and ends only where there are none. So one of the two sees the other.
//! `model` visits every order in which that can happen.

#[cfg(test)]
mod model;

/// Whether a guest that has `pending` events to take must be told, where `pushed` of them, or more, are of this fill. Not
/// where older ones are left: it was told of those, and looks again when it has taken them.
pub const fn are_news(pending: u32, pushed: u32) -> bool {
    0 < pending && pending <= pushed
}
