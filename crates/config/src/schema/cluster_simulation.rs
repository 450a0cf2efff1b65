//! A file of a simulated cluster.

use super::vm::Task;
use crate::source::Source;
use crate::{Error, Placed, PlacementPolicy, Written};

table! {
    section "A simulated cluster";
    /// A file of its own, for `steadyvm simulate cluster FILE`: hosts, VMs that come and go, and policies to compare.
    pub struct ClusterSimulation {
        /// simulated time, such as `"86400s"`
        length: Written = "needed",
        /// of the first run; each further one has the next
        #[serde(default)]
        seed: Option<Placed<u64>> = "1",
        /// runs of each policy; all policies see the same arrivals in a run
        #[serde(default)]
        seeds: Option<Placed<u32>> = "1",
        /// what is compared
        policies: Placed<Vec<PlacementPolicy>> = "needed" as "list of words",
        /// VMs that come, in the mean
        #[serde(default)]
        arrivals_per_hour: Option<Placed<f64>> = "0",
        /// kinds of hosts; at equal merit the first in the file gets a VM
        host: Vec<Placed<SimulatedHosts>> = "needed",
        /// flavours of VMs
        vm: Vec<Placed<SimulatedVm>> = "needed",
        /// VMs that come at the beginning, in the order of the file
        #[serde(default)]
        start: Vec<Placed<SimulatedStart>> = "none",
        /// hosts that fail and return
        #[serde(default)]
        failure: Option<Placed<SimulatedFailures>> = "none fails",
        /// hosts that are emptied, one batch after the other
        #[serde(default)]
        maintenance: Option<Placed<SimulatedMaintenance>> = "none is",
    }
}

table! {
    section "`[[host]]` of a simulated cluster";
    pub struct SimulatedHosts {
        /// for messages and results
        name: String = "needed",
        /// how many
        #[serde(default)]
        count: Option<u32> = "1",
        /// CPUs for VMs, 1 to 4096, under `pedf`
        cpus: u32 = "needed",
        /// for VMs
        memory_mib: u64 = "needed",
        /// what real-time VMs may have of each CPU
        #[serde(default)]
        usable_percent: Option<u32> = "90",
        /// VCPUs of all VMs for each CPU
        #[serde(default)]
        vcpus_per_cpu: Option<u32> = "4",
    }
}

table! {
    section "`[[vm]]` of a simulated cluster";
    /// With `tasks`, or `budget` and `period`, a VM is a real-time one; else it gets what is left.
    pub struct SimulatedVm {
        /// for messages and results
        name: String = "needed",
        /// share of arrivals beside the other flavours' weights
        #[serde(default)]
        weight: Option<f64> = "1",
        /// how many
        #[serde(default)]
        vcpus: Option<u32> = "1",
        /// what it takes of a host's
        memory_mib: u64 = "needed",
        /// real-time tasks in it; the analysis computes the budget
        #[serde(default)]
        tasks: Vec<Placed<Task>> = "none",
        /// of each VCPU, whole microseconds
        #[serde(default)]
        budget: Option<Written> = "that of `tasks`",
        /// of each VCPU, whole microseconds
        #[serde(default)]
        period: Option<Written> = "the best of 2 to 30 ms",
        /// mean time that it stays, exponential
        #[serde(default)]
        lifetime: Option<Written> = "to the end",
        /// moves to another host that somebody asks for
        #[serde(default)]
        migrations_per_day: Option<f64> = "0",
        /// changes to one of `resize_to`
        #[serde(default)]
        resizes_per_day: Option<f64> = "0",
        /// flavours by name
        #[serde(default)]
        resize_to: Vec<String> = "none",
    }
}

table! {
    section "`[[start]]` of a simulated cluster";
    pub struct SimulatedStart {
        /// a flavour by name
        vm: String = "needed",
        /// how many
        #[serde(default)]
        count: Option<u32> = "1",
    }
}

table! {
    section "`[failure]` of a simulated cluster";
    #[derive(Copy)]
    pub struct SimulatedFailures {
        /// mean time from a host's return to its next failure, exponential
        every: Written = "needed",
        /// mean time until it returns, exponential
        repair: Written = "needed",
    }
}

table! {
    section "`[maintenance]` of a simulated cluster";
    #[derive(Copy)]
    pub struct SimulatedMaintenance {
        /// when the first batch is emptied
        begin: Written = "needed",
        /// hosts of a batch
        #[serde(default)]
        hosts_at_once: Option<u32> = "1",
        /// how long a batch takes no VM
        each: Written = "needed",
    }
}

impl ClusterSimulation {
    /// Reads such a file. `name` is what messages call it.
    ///
    /// # Errors
    /// What is wrong with its form, and where.
    pub fn parse(name: &str, text: &str) -> Result<Self, Error> {
        let source = Source::new(name, text);
        source.read(source.tables()?)
    }
}
