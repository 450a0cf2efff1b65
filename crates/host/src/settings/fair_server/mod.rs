//! How a CPU's fair server gives normal threads their share: a setting, and the way to it.

#[cfg(any(test, feature = "fake"))]
pub(super) mod fake;
mod kind;
mod way;

pub use kind::FairServer;
pub(crate) use way::{LONGEST_PIECE_NS, file, read};
pub use way::{Reservation, longest};
