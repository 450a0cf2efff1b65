//! `[host]`.

use steadyvm_methods::Method;

use crate::{Count, CpuNumbers, HostName, Mechanism, ServerName, Written};

table! {
    section "`[host]`";
    /// Every key may be left out. In a cluster a `[[host]]` also has `name` and `memory_mib`, and so have VMs `memory_mib`.
    #[serde(default, expecting = "an object that describes a host")]
    pub struct Host {
        /// how many CPUs VMs have, from 0 up; a plan for another host needs it, and so does a JSON request
        pcpus: Option<Count> = "those of this host",
        /// which CPUs VMs have, as `"2-15,18"`; where `pcpus` is there too, as many
        cpus: Option<CpuNumbers> = "0 and up",
        /// what orders VCPUs, on all CPUs (`g`) or each on one CPU (`p`): `pedf`, `gedf` by deadline; `pdm`, `gdm` fixed
        /// priorities by relative deadline. `prm`, `grm` (by period) and `pfp`, `gfp` (by `priority` of the VM) have no plan:
        /// with `ext` VMs get the budgets that they name
        scheduler: HostName = "`pedf`",
        /// of VCPUs: `cbs`, `periodic`, `sporadic`, `deferrable`, `capacity-reclaiming` (periodic, and others get what a guest
        /// leaves of its budget, for VMs that are `soft`); `sporadic`, and `cbs` under `pdm` or `gdm`, need more
        /// budget: [what such a server supplies](../design/analysis.md#what-a-sporadic-server-supplies). `polling`
        /// and `work-conserving` have no plan
        server: ServerName = "`cbs`",
        /// budgets end at its multiples; 0: at exact times
        quantum: Written = "0",
        /// what keeps budgets: `deadline` (SCHED_DEADLINE), `ext` (our sched_ext scheduler), `auto` (`deadline` for EDF with
        /// `cbs`, else `ext` where the kernel has it), `none` (budgets are computed only). With `deadline` what
        /// SCHED_DEADLINE would refuse is refused, and what it is not: another server than `cbs`, fixed priorities
        enforce: Option<Mechanism> = "nothing, and `apply` says so; the plan counts `cbs` as SCHED_DEADLINE's",
        /// how the host is set up: a [method](../guide/methods.md) by its name; with `vanilla` and `tuned` no service has a
        /// bound
        #[serde(default = "preempt_rt")]
        method: Method = "`preempt-rt`",
        /// whether promises hold whatever other guests do; `false` believes that reservations' guests keep their precondition,
        /// and holds more of them on a CPU
        isolate: bool = "true",
        /// costs that the plan adds to the budgets it installs: a VCPU pays them each time it starts to run, also after
        /// others have had its CPU. What is left out is what `steadyvm calibrate` measured on this host; else it counts 0, and
        /// the plan says that its bounds are incomplete
        overheads: Overheads = "calibrated, or 0",
    }
}

table! {
    section "`[host.overheads]`";
    #[derive(Default)]
    #[serde(default, expecting = "an object of overheads")]
    pub struct Overheads {
        /// a decision; with a `quantum` each piece of a budget costs one more
        decision: Option<Written> = "0: it is in `context_switch`",
        /// a switch
        context_switch: Option<Written> = "calibrated, or 0",
        /// a VCPU that moves to another CPU
        migration: Option<Written> = "calibrated where VCPUs move (`gedf`, `gdm`), or 0",
        /// what it pays for cold caches
        cache_reload: Option<Written> = "calibrated, or 0",
        /// times in a period that a guest may make its VCPU run anew; up to 1,000
        wakeups: Option<Count> = "counted from the tasks; 1 with `periodic` servers whose tasks do not suspend themselves, and for VMs without tasks",
    }
}

const fn preempt_rt() -> Method {
    Method::PreemptRt
}

impl Default for Host {
    fn default() -> Self {
        Self {
            pcpus: None,
            cpus: None,
            scheduler: HostName::default(),
            server: ServerName::default(),
            quantum: Written::default(),
            enforce: None,
            method: preempt_rt(),
            isolate: true,
            overheads: Overheads::default(),
        }
    }
}

impl Host {
    /// Why no plan is made for it, in words; none if one is.
    pub fn why_no_plan(&self) -> Option<String> {
        let (key, word) = match (self.scheduler.is_planned(), self.server.is_planned()) {
            (true, true) => return None,
            (false, _) => ("scheduler", self.scheduler.word()),
            (true, false) => ("server", self.server.word()),
        };
        Some(format!("no plan is made for {key} = \"{word}\""))
    }
}
