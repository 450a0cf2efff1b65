//! Layer 2 of a substation: Sampled Values and GOOSE (IEC 61850-9-2, IEC 61850-8-1), published and subscribed.
//!
//! A publisher sends up to eight streams by a packet socket ([`PacketSocket`]); each frame carries a sequence number and when it
//! was sent ([`Mark`]). A subscriber counts of each stream what is lost, doubled and out of order, how long frames took and the
//! longest time without one ([`Tally`]). The frames are those of the standards, for others' subscribers, too.
//!
//! What reads frames takes any bytes: [`Frame::parse`], [`SampledValues::parse`], [`Goose::parse`].

mod ber;
mod frame;
mod goose;
mod mark;
mod publisher;
mod sampled_values;
mod socket;
mod subscriber;
mod tally;

pub use ber::Malformed;
pub use frame::{Frame, Protocol, Tag};
pub use goose::{Goose, Retransmission, Transmission};
pub use mark::Mark;
pub(crate) use publisher::slept;
pub use publisher::{MOST_STREAMS, Publication, Published, publish, stream_name};
pub use sampled_values::SampledValues;
pub use socket::PacketSocket;
pub use subscriber::{Limits, marked, subscribe};
pub use tally::{Latency, StreamReport, Tally, TallyReport};
