//! What a profile asks of our `sched_ext` scheduler.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use steadyvm_sched::config::{Priority, Queue, Vm};

/// The policy of the host, and VMs that have a budget without a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerProfile {
    /// What orders VCPUs with a budget.
    pub order: Priority,
    /// Which VCPUs a CPU chooses from.
    pub queue: Queue,
    /// Budget events are seen at its multiples; 0: at exact times.
    pub quantum_ns: u64,
    /// The server of VCPUs whose budget is due at the end of its period.
    pub server: String,
    /// VMs whose VCPUs all have this.
    pub vms: BTreeMap<String, Vm>,
}
