//! When a thread is made, and when somebody sets its policy, by the kernel's own tracepoints.

use std::collections::BTreeMap;

use steadyvm_lab::host::EmulatedHost;

use crate::support::libvirt::inside;

const EVENTS: [&str; 3] = [
    "task/task_newtask",
    "syscalls/sys_enter_sched_setattr",
    "syscalls/sys_exit_sched_setattr",
];

/// Begins anew.
pub fn begin(host: &EmulatedHost) {
    let enable = EVENTS.map(|event| format!("echo 1 > events/{event}/enable; "));
    let enable = enable.concat();
    inside(
        host,
        &format!(
            "cd /sys/kernel/tracing; echo 0 > tracing_on; echo > trace; {enable} echo 1 > tracing_on"
        ),
    );
}

/// What was traced since.
pub fn end(host: &EmulatedHost) -> Trace {
    let text = inside(
        host,
        "cd /sys/kernel/tracing; echo 0 > tracing_on; cat trace; echo 0 > events/enable",
    );
    Trace::of(&text)
}

/// Threads by their numbers; times in seconds of the host's clock.
#[derive(Debug, Default)]
pub struct Trace {
    /// When each was made.
    pub made_s: BTreeMap<u32, f64>,
    /// When its policy was set, and by a thread of which name.
    pub set: BTreeMap<u32, Vec<(f64, String)>>,
    /// When a guest ran its first instruction: KVM starts a thread for each VM then.
    pub ran_s: Option<f64>,
}

impl Trace {
    fn of(text: &str) -> Self {
        let mut trace = Self::default();
        // By the caller.
        let mut begun: BTreeMap<u32, u32> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, caller, time_s, event)) = fields(line) else {
                continue;
            };
            if let Some(rest) = event.strip_prefix("task_newtask: pid=") {
                let thread = rest.split(' ').next().unwrap();
                trace.made_s.insert(thread.parse().unwrap(), time_s);
                if rest.contains(" comm=kvm-nx-lpage-re") {
                    trace.ran_s.get_or_insert(time_s);
                }
            } else if let Some(rest) = event.strip_prefix("sys_sched_setattr(pid: ") {
                let thread = rest.split([',', ')']).next().unwrap();
                let thread = u32::from_str_radix(thread.trim_start_matches("0x"), 16);
                begun.insert(caller, thread.unwrap());
            } else if event == "sys_sched_setattr -> 0x0"
                && let Some(thread) = begun.remove(&caller)
            {
                let sets = trace.set.entry(thread).or_default();
                sets.push((time_s, name.to_owned()));
            }
        }
        trace
    }

    /// When the last of these threads' policies was set.
    pub fn last_set_s(&self, threads: &[u32]) -> f64 {
        let last = |thread: &u32| self.set.get(thread)?.last().map(|it| it.0);
        threads.iter().filter_map(last).fold(0.0, f64::max)
    }

    /// When the first of these threads was made.
    pub fn first_made_s(&self, threads: &[u32]) -> f64 {
        let made = threads.iter().map(|thread| self.made_s[thread]);
        made.fold(f64::INFINITY, f64::min)
    }
}

/// `NAME-THREAD [CPU] FLAGS TIME: EVENT`; a name may have blanks and dashes.
fn fields(line: &str) -> Option<(&str, u32, f64, &str)> {
    let (caller, rest) = line.split_once(" [")?;
    let (name, number) = caller.trim().rsplit_once('-')?;
    let (before, event) = rest.split_once(": ")?;
    let time_s = before.split_whitespace().last()?;
    Some((
        name,
        number.trim().parse().ok()?,
        time_s.parse().ok()?,
        event.trim(),
    ))
}
