//! `[simulate]`.

use crate::Late;

table! {
    section "`[simulate]`";
    #[derive(Default)]
    #[serde(default)]
    pub struct Simulate {
        /// simulated time
        duration: Option<String> = "`10s`" as "time",
        /// of execution times, gaps and offsets
        seed: Option<u64> = "1",
        /// any of the simulator's, more than `[host]` takes; the error lists them
        server: Option<String> = "that of `[host]`" as "word",
        /// `edf`, `dm`, `rm`
        order: Option<String> = "that of the host's scheduler" as "word",
        /// when budgets are looked at
        quantum: Option<String> = "that of `[host.overheads]`" as "time",
        /// a decision at a start; the VCPU that starts pays
        decision: Option<String> = "`scheduler` of `[host.overheads]`" as "time",
        /// a switch; the same
        context_switch: Option<String> = "that of `[host.overheads]`" as "time",
        /// a start on another CPU; the same
        migration: Option<String> = "that of `[host.overheads]`" as "time",
        /// cold caches; the same
        cache_reload: Option<String> = "that of `[host.overheads]`" as "time",
        /// jobs take this share of `c`
        execution_factor_percent: Option<u32> = "100",
        /// jobs come up to this share of `t` apart
        longest_gap_percent: Option<u32> = "100",
        /// whether first releases, and the beginnings of periods, are drawn
        random_offsets: bool = "false",
        /// VMs without tasks wake and sleep at bad moments, and what is drawn is mostly an end of its range
        adversary: bool = "false",
        /// a job that has not finished at its deadline goes on, and the next of its task waits; `drop`: it ends there
        late: Late = "`continue`",
    }
}
