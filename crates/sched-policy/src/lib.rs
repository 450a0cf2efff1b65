//! The VCPU scheduling policy: servers, priorities, who preempts whom.
//!
//! One core, in C (`policy/*.h`), that the BPF scheduler and the simulator both run; this crate compiles it for user
//! space and wraps it. The rules are in the headers: `types.h` (what a server is), `server.h` (its life), `sporadic.h`,
//! `order.h` (the decision), `event.h` (what a scheduler records). Here a function has the C function's name and meaning.
//!
//! Times are nanoseconds since some fixed instant, below 2^62.

mod error;
mod event;
mod parameters;
mod replay;
mod server;

pub use error::ParametersError;
pub use event::{EVENT_VERSION, Event, EventKind, NO_SERVER};
pub use parameters::{Host, Kind, Order, Parameters};
pub use replay::{Record, ReplayError, Replayed};
pub use server::{CpuSet, Server};

#[cfg(test)]
pub(crate) use server::Replenishment;

// The types of `policy/types.h` and `policy/event.h` are written here again; the test `layout_is_that_of_c` compares them
// with what the C compiler laid out.
unsafe extern "C" {
    // Each reads or writes only what its pointers point to, and keeps no pointer.
    fn steadyvm_policy_at_quantum(time: u64, quantum: u64) -> u64;
    fn steadyvm_policy_preempts(key: u64, holder_key: u64) -> u32;
}

/// Nothing holds the CPU: after every server's key.
pub const KEY_IDLE: u64 = (1 << 63) - 1;

/// Keys from here on are of servers that are not real-time.
pub const KEY_NON_RT: u64 = 1 << 62;

/// A time that never comes.
pub const NEVER: u64 = 1 << 62;

/// The longest period, ns.
pub const MAX_PERIOD_NS: u64 = 0xffff_ffff;

/// CPUs that a mask can name.
pub const MAX_CPUS: u32 = 256;

/// Pieces that a sporadic server's budget may be in.
pub const MAX_REPLENISHMENTS: usize = 16;

/// `time` as the host sees it: the next multiple of `quantum_ns`, or `time` itself for a quantum of 0.
pub fn at_quantum(time: u64, quantum_ns: u64) -> u64 {
    // SAFETY: a function of numbers only.
    unsafe { steadyvm_policy_at_quantum(time, quantum_ns) }
}

/// Whether a server with `key` takes the CPU from a holder with `holder_key` ([`KEY_IDLE`]: nobody).
pub fn preempts(key: u64, holder_key: u64) -> bool {
    // SAFETY: a function of numbers only.
    unsafe { steadyvm_policy_preempts(key, holder_key) != 0 }
}

#[cfg(test)]
mod tests {
    use crate::{Event, Host, Parameters, Server};

    unsafe extern "C" {
        static steadyvm_policy_layout: [u64; 18];
    }

    /// What `exports.c` lists, as Rust lays it out.
    fn layout() -> Vec<u64> {
        use crate::Replenishment;
        use std::mem::{align_of, offset_of, size_of};
        [
            size_of::<Parameters>(),
            align_of::<Parameters>(),
            size_of::<Host>(),
            align_of::<Host>(),
            size_of::<Replenishment>(),
            align_of::<Replenishment>(),
            size_of::<Server>(),
            align_of::<Server>(),
            size_of::<Event>(),
            align_of::<Event>(),
            offset_of!(Server, remaining_ns),
            offset_of!(Server, virtual_runtime_ns),
            offset_of!(Server, cpus),
            offset_of!(Server, ready),
            offset_of!(Server, queue),
            offset_of!(Event, amount_ns),
            offset_of!(Event, parameters),
            offset_of!(Event, cpus),
        ]
        .map(|bytes| bytes as u64)
        .to_vec()
    }

    #[test]
    fn layout_is_that_of_c() {
        // SAFETY: a constant array of `exports.c`; its length is checked by the count below.
        let c = unsafe { steadyvm_policy_layout };
        assert_eq!(layout(), c);
        let listed = include_str!("exports.c");
        let entries =
            listed.matches("\tLAYOUT(").count() * 2 + listed.matches("\toffsetof(").count();
        assert_eq!(entries, c.len());
    }
}
