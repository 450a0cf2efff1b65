//! What the kernel counts of a thread.

/// `/proc/PID/task/TID/schedstat`: Documentation/scheduler/sched-stats.rst.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SchedStat {
    /// Time on a CPU.
    pub ran_ns: u64,
    /// Time that it waited for one.
    pub waited_ns: u64,
    /// How often it began to run.
    pub times: u64,
}

impl SchedStat {
    /// Reads the file's text; `None` if it is cut, or if the kernel does not count.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace().map(str::parse);
        let mut next = || words.next()?.ok();
        let found = Self {
            ran_ns: next()?,
            waited_ns: next()?,
            times: next()?,
        };
        (found != Self::default()).then_some(found)
    }
}
