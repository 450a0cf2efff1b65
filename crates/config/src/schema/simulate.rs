//! simulate.toml.

use crate::source::Source;
use crate::{Error, HostName, Late, ServerName, Written};

table! {
    section "simulate.toml";
    /// A file of its own, for `steadyvm simulate FILE --with simulate.toml`: how the plan of `FILE` is played.
    #[derive(Default)]
    #[serde(default)]
    pub struct Simulate {
        /// simulated time
        duration: Option<Written> = "`10s`",
        /// of execution times, gaps and offsets
        seed: Option<u64> = "1",
        /// another order than the plan's: any that is global, or partitioned, as the plan's is
        scheduler: Option<HostName> = "the plan's",
        /// another server than the plan's
        server: Option<ServerName> = "the plan's",
        /// when budgets are looked at
        quantum: Option<Written> = "the plan's",
        /// a decision at a start; the VCPU that starts pays
        decision: Option<Written> = "that of `[host.overheads]`",
        /// a switch; the same
        context_switch: Option<Written> = "that of `[host.overheads]`",
        /// a start on another CPU; the same
        migration: Option<Written> = "that of `[host.overheads]`",
        /// cold caches; the same
        cache_reload: Option<Written> = "that of `[host.overheads]`",
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

impl Simulate {
    /// Reads such a file. `name` is what messages call it.
    ///
    /// # Errors
    /// What is wrong with its form, and where.
    pub fn parse(name: &str, text: &str) -> Result<Self, Error> {
        let source = Source::new(name, text);
        source.read(source.tables()?)
    }
}
