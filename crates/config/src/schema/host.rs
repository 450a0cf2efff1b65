//! `[host]`.

use steadyvm_methods::Method;

use crate::{Count, CpuNumbers, Enforcement, HostName, ServerName, Written};

table! {
    section "`[host]`";
    /// In a cluster a `[[host]]` also has `name` and `memory_mib`, and so have VMs `memory_mib`.
    #[serde(expecting = "an object with \"pcpus\" and \"scheduler\"")]
    pub struct Host {
        /// how many CPUs VMs have, from 0 up; needed in JSON requests
        pcpus: Option<Count> = "those of this host",
        /// which CPUs VMs have, as `"2-15,18"`; where `pcpus` is there too, as many
        cpus: Option<CpuNumbers> = "0 and up",
        /// `pedf`, `gedf`, `pdm`, `gdm`
        scheduler: HostName = "needed",
        /// of VCPUs: `cbs`, `periodic`, `sporadic`, `deferrable`; `sporadic`, and `cbs` under `pdm` or `gdm`, need more
        /// budget: [what such a server supplies](../design/analysis.md#what-a-sporadic-server-supplies)
        #[serde(default)]
        server: ServerName = "`cbs`",
        /// how the host is set up: a [method](../guide/methods.md) by its name; with `vanilla` and `tuned` no service has a
        /// bound
        #[serde(default = "preempt_rt")]
        method: Method = "`preempt-rt`",
        /// `deadline`, `ext`, `none`; with `deadline` what SCHED_DEADLINE would refuse is refused, and what it is not:
        /// another server than `cbs`, fixed priorities. Without it `cbs` is counted as SCHED_DEADLINE's all the same.
        /// `apply` goes by `[sched]`
        enforce: Option<Enforcement> = "`none`",
        /// whether promises hold whatever other guests do; `false` believes that reservations' guests keep their precondition,
        /// and holds more of them on a CPU
        #[serde(default = "yes")]
        isolate: bool = "true",
        /// costs that the plan adds to the budgets it installs: a VCPU pays them each time it starts to run, also after
        /// others have had its CPU
        #[serde(default)]
        overheads: Overheads = "all 0",
    }
}

table! {
    section "`[host.overheads]`";
    #[derive(Default)]
    #[serde(default, expecting = "an object of overheads")]
    pub struct Overheads {
        /// budgets end at its multiples; 0: at exact times
        quantum: Written = "0",
        /// a decision
        scheduler: Written = "0",
        /// a switch
        context_switch: Written = "0",
        /// a VCPU that moves to another CPU
        migration: Written = "0",
        /// what it pays for cold caches
        cache_reload: Written = "0",
        /// times in a period that a guest may make its VCPU run anew; up to 1,000
        wakeups: Option<Count> = "counted from the tasks; 1 with `periodic` servers whose tasks do not suspend themselves, and for VMs without tasks",
    }
}

const fn preempt_rt() -> Method {
    Method::PreemptRt
}

const fn yes() -> bool {
    true
}
