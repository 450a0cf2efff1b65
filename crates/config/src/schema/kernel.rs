//! `[kernel]`.

use crate::{Placed, ThreadPriority, Written};

table! {
    section "`[kernel]`";
    /// Keys you leave out change nothing, except `rcu`, `timers` and `device_irq`: these are raised as soon as the file ranks a VCPU.
    #[derive(Default)]
    #[serde(default)]
    pub struct Kernel {
        /// threads `ksoftirqd/N` and `backlog_napi/N`; must stand below `levels_from` and every stage
        ksoftirqd: Option<Placed<ThreadPriority>> = "as it is",
        /// RCU's threads; below all stages, or above vhost and VCPUs
        rcu: Option<ThreadPriority> = "one above all vhost workers and VCPUs",
        /// threads `ktimers/N`; the same
        timers: Option<ThreadPriority> = "the same",
        /// interrupt threads of disks, consoles and other devices that are no NICs are raised to it; the same
        device_irq: Option<ThreadPriority> = "the same",
        /// longest piece of the fair server, `"500us"` to `"50ms"` (Linux 6.12 and later)
        fair_server: Option<Placed<Written>> = "as it is",
    }
}
