//! `[[host_service]]`.

use super::vm::Users;
use crate::{Placed, ThreadPriority, Written};

table! {
    section "`[[host_service]]`";
    /// A service of the host itself, such as `ptp4l`, `phc2sys` or `ovs-vswitchd`: all threads of its systemd unit get a rank or
    /// a budget, and CPUs. One that starts again gets them again. One of `class`, `rank` and `budget` at most; one key beside
    /// `unit` at least. Without it a VCPU with a rank runs before the service.
    pub struct HostService {
        /// its unit, by its whole name, `"ptp4l.service"`; one twice is refused. Of the system's systemd alone, see above
        unit: Placed<String> = "needed",
        /// whose processes count, and always root's: for a service that gives root's rights up
        user: Option<Placed<Users>> = "none",
        /// a class; its threads get that one's `vcpu`
        class: Option<String> = "none",
        /// of its threads
        rank: Option<ThreadPriority> = "as they are",
        /// CPU time that each of its threads gets in each `period` before all ranks, and no more; not with `cpus`
        budget: Option<Placed<Written>> = "none",
        /// of the budget, `"100us"` to `"4.194304s"`
        period: Option<Placed<Written>> = "none",
        /// where its threads run
        cpus: Option<Placed<Vec<usize>>> = "as they are",
    }
}
