//! A load for memcached, open loop, in its text protocol.
//!
//! Requests are due at independent random intervals, whatever the replies do, and go to some TCP
//! connections in turn. A reply's time is from when its request was due: what a request waits for in
//! this program or in a full connection is part of it. memcached answers the requests of a
//! connection in order, so each reply belongs to the oldest request that waits there.

mod client;
mod protocol;

pub use client::{ClientError, Options, fill, run};

use serde::{Deserialize, Serialize};

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A value.
    Get,
    /// To store a value.
    Set,
}

/// An answered request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Its number among all requests.
    pub sequence: u64,
    /// What it asked for.
    pub kind: Kind,
    /// When it was due, after the start of the run.
    pub due_ns: u64,
    /// From then to its whole reply.
    pub response_ns: u64,
}

/// What a run measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Every counted request that was answered, in the order of the replies.
    pub samples: Vec<Sample>,
    /// Counted requests.
    pub requests: u64,
    /// Counted requests that were not answered in time.
    pub lost: u64,
    /// Counted requests that were sent more than a millisecond after they were due.
    pub sent_late: u64,
}
