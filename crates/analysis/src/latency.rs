//! The latency bound of a request/response service.
//!
//! Model: a request crosses the host's receive path at its level, waits for its VCPU, and is answered by
//! a guest task whose release is the request's arrival in the guest. Preconditions: the VM's interface
//! holds on the host; requests come no faster than the task's period.
//!
//! Method: busy windows with jitter propagation (holistic analysis, as in compositional performance analysis),
//! [`crate::path`] on the paths that a service shares:
//! what the receive path may delay one packet more than another, its bound less its best case, is release
//! jitter of the guest's task, and every response in the guest is computed with it.
//!
//! Formula: bound = receive path + VCPU blackout + guest response + guest wake-up + way back, where
//! - receive path, on a shared path: [`crate::path::response`]; else = interrupt latency + (packets of one batch of a lower level in service + packets of
//!   its own and higher levels ahead + 1) packet costs;
//! - blackout = the longest window in which the interface supplies nothing;
//! - guest response = the task's worst-case response time on the interface, less the blackout it begins
//!   with. Fixed priorities on one VCPU: [`crate::guest::fixed_priority`]; EDF on one VCPU:
//!   [`crate::guest::edf_response`]; otherwise the task's deadline.
//!
//! Complexity: that of the response-time analysis. Source: holistic analysis, Tindell and Clark 1994.

use crate::{
    error::{Error, not_negative},
    time::Time,
};

/// The receive path of a level: what can be in front of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceivePath {
    /// From the packet's arrival to the first instruction of its processing, time.
    pub interrupt: Time,
    /// Processing of one packet, time.
    pub packet: Time,
    /// Packets of a lower level that are finished before the level is looked at again, count.
    pub batch: Time,
    /// Packets of the same and higher levels that can be ahead, count.
    pub ahead: Time,
}

impl ReceivePath {
    /// The longest time from a packet's arrival to its delivery.
    ///
    /// # Errors
    /// A negative or too large part or sum.
    pub fn bound(&self) -> Result<Time, Error> {
        let interrupt = not_negative("the interrupt latency", self.interrupt)?;
        let packet = not_negative("the packet cost", self.packet)?;
        let batch = not_negative("the batch", self.batch)?;
        let ahead = not_negative("the number of packets ahead", self.ahead)?;
        let sum = (batch + ahead + 1)
            .checked_mul(packet)
            .and_then(|packets| packets.checked_add(interrupt))
            .unwrap_or(Time::MAX);
        not_negative("the receive path's bound", sum)
    }
}

/// The bound of a service, term by term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatencyBound {
    /// From the wire to the VM.
    pub receive_path: Time,
    /// The VCPU may be away.
    pub blackout: Time,
    /// The guest executes the request, next to its other tasks.
    pub guest_response: Time,
    /// From the guest's wake-up to its task.
    pub guest_wakeup: Time,
    /// The way back.
    pub send_path: Time,
}

impl LatencyBound {
    /// Splits a response time on an interface into its blackout and the rest.
    pub fn new(receive_path: Time, response: Time, blackout: Time) -> Self {
        let blackout = blackout.min(response);
        Self {
            receive_path,
            blackout,
            guest_response: response - blackout,
            guest_wakeup: 0,
            send_path: 0,
        }
    }

    /// The sum of the terms.
    pub const fn total(&self) -> Time {
        self.receive_path + self.blackout + self.guest_response + self.guest_wakeup + self.send_path
    }
}
