//! `[sched]`.

use std::collections::BTreeMap;

use crate::{Mechanism, Placed, Priority, Queue};

table! {
    section "`[sched]`";
    #[derive(Default)]
    #[serde(default)]
    pub struct Sched {
        /// `deadline`: SCHED_DEADLINE; `ext`: our sched_ext scheduler; `auto`: `deadline` for EDF, else `ext` where the kernel
        /// has it; `none` (`apply` only): budgets are computed and not kept
        mechanism: Mechanism = "`auto`",
        /// with `ext`: of VMs that name none; `polling`, `sporadic`, `deferrable`, `cbs`, `periodic`, `work-conserving`,
        /// `capacity-reclaiming`. Under fixed priorities a plan's `cbs` is `sporadic`
        server: Option<String> = "that of `[host]`; `cbs` without one" as "word",
        /// with `ext`: `earliest-deadline`, `deadline-monotonic`, `rate-monotonic`, `explicit`
        order: Option<Priority> = "the plan's; `earliest-deadline`",
        /// with `ext`: `global`, or `partitioned`, for which each VM needs one CPU
        queue: Option<Queue> = "the plan's; `global`",
        /// with `ext`: budgets end at its multiples; 0: at exact times
        quantum_us: Option<u64> = "0" as "microseconds",
        /// with `ext`: what each VCPU of a VM gets
        vm: BTreeMap<String, Placed<Reserved>> = "none",
    }
}

table! {
    section "`[sched.vm.NAME]`";
    pub struct Reserved {
        /// CPU time in each period
        budget_us: u64 = "needed" as "microseconds",
        /// the period; one below `quantum_us` is refused
        period_us: u64 = "needed" as "microseconds",
        /// from a period's start
        deadline_us: Option<u64> = "the period" as "microseconds",
        /// as there
        server: Option<String> = "that of `[sched]`" as "word",
        /// for the order `explicit`; 0 is first
        #[serde(default)]
        priority: u32 = "0",
        /// a mask without a CPU that is online is refused
        #[serde(default)]
        cpus: Vec<u32> = "all",
    }
}
