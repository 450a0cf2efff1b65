//! A file of random task sets.

use super::host::Host;
use crate::source::Source;
use crate::{Distribution, Error, HostName, InterfaceName, Placed, SchedulerName, Written};

table! {
    section "Random task sets";
    /// A file of its own, for `steadyvm plan FILE --random`.
    #[serde(expecting = "an object that describes random task sets")]
    pub struct Random {
        /// task sets of each utilisation
        sets: u32 = "needed",
        /// which ones
        #[serde(default)]
        seed: u64 = "0",
        /// or `bimodal`, the dissertation's
        #[serde(default)]
        distribution: Distribution = "`uunifast`",
        /// the least utilisation
        from: f64 = "needed",
        /// the greatest
        to: f64 = "needed",
        /// from one to the next
        step: f64 = "needed",
        /// VMs that the tasks are dealt to
        vms: u32 = "needed",
        /// of a set; with `uunifast`
        #[serde(default)]
        tasks: usize = "0",
        /// `from` and `to`: times, of the tasks
        periods: Periods = "needed",
        /// of the VMs, in turn
        vcpu_periods: Vec<Written> = "needed",
        /// combinations to compare
        columns: Vec<Column> = "needed",
        /// as in steadyvm.toml, with `pcpus`; each column has its own `scheduler`
        host: Placed<Host> = "needed",
    }
}

impl Random {
    /// Reads such a file. `name` is what messages call it.
    ///
    /// # Errors
    /// What is wrong with its form, and where.
    pub fn parse(name: &str, text: &str) -> Result<Self, Error> {
        let source = Source::new(name, text);
        source.read(source.tables()?)
    }
}

table! {
    section "`periods`";
    #[derive(Copy)]
    pub struct Periods {
        /// the shortest
        from: Written = "needed",
        /// the longest
        to: Written = "needed",
    }
}

table! {
    section "`columns`";
    #[derive(Copy)]
    pub struct Column {
        /// as `scheduler` of `[host]`
        host: HostName = "needed",
        /// as `scheduler` of `[[vm]]`
        guest: SchedulerName = "needed",
        /// as `interface` of `[[vm]]`
        interface: InterfaceName = "needed",
    }
}
