//! What a kernel says of its own faults.

/// A line that has one of these begins a report.
const MARKS: &[&str] = &[
    "WARNING",
    "BUG",
    "INFO: ",
    "NOHZ tick-stop",
    "refcount",
    "ref_tracker",
    "ODEBUG",
    "KASAN:",
    "possible recursive locking",
    "possible circular locking",
    "possible irq lock inversion",
    "inconsistent lock state",
    "invalid wait context",
    "suspicious RCU usage",
    "sleeping function called",
    "Call Trace",
];
/// Lines that are shown from the first of them on: lockdep's reports are long.
const SHOWN: usize = 200;

/// The log from its first report on; `None` if there is none.
pub fn reports(log: &str) -> Option<String> {
    let lines: Vec<&str> = log.lines().collect();
    let is_report = |line: &&str| MARKS.iter().any(|mark| line.contains(mark));
    let first = lines.iter().position(is_report)?;
    let shown = lines[first..].iter().take(SHOWN);
    Some(shown.copied().collect::<Vec<_>>().join("\n"))
}

/// Whether `/proc/lockdep_stats` says that lockdep still works: it turns itself off with its first
/// report, and when its tables are full.
pub fn lockdep_is_on(stats: &str) -> bool {
    stats.lines().any(|line| {
        let value = line.trim().strip_prefix("debug_locks:");
        value.is_some_and(|value| value.trim() == "1")
    })
}
