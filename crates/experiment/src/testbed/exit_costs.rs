//! What exits from a guest cost its VCPUs' threads on the host, by reason: by the kernel's tracepoints.
//!
//! From `kvm_exit` to `kvm_entry` of one thread, less the time in which it had no CPU (`sched_switch`): a VCPU that waits costs
//! nothing. What tracing costs is in it.

use std::collections::BTreeMap;
use std::time::Duration;
use steadyvm_comparison::{ExitCost, ExitCosts};
use steadyvm_lab::Result;
use steadyvm_lab::agent::Connection;

/// Room for 100,000 events of each CPU.
const BUFFER_KIB: u32 = 16_384;
const PATIENCE: Duration = Duration::from_secs(300);
const INSTANCE: &str = "/sys/kernel/tracing/instances/exits";
const EVENTS: &str = "kvm/kvm_exit kvm/kvm_entry sched/sched_switch";

/// Starts to note what the threads of a monitor do. Threads that it makes later are not among them.
pub fn begin(host: &Connection, monitor: i32) -> Result<()> {
    let script = format!(
        "mkdir -p {INSTANCE}; cd {INSTANCE}; echo {BUFFER_KIB} > buffer_size_kb; echo > trace
         ls /proc/{monitor}/task > set_event_pid
         for event in {EVENTS}; do echo 1 > events/$event/enable; done"
    );
    host.run(&["sh", "-euc", &script]).map(drop)
}

/// Ends it. None if there were more events than there is room for.
pub fn end(host: &Connection, requests: u64) -> Result<Option<ExitCosts>> {
    let script = format!(
        "cd {INSTANCE}; for event in {EVENTS}; do echo 0 > events/$event/enable; done
         cat trace; cd ..; rmdir {INSTANCE}"
    );
    let process = host.spawn(&["sh", "-euc", &script])?;
    process.end_of_input()?;
    let finished = process.finish(PATIENCE)?;
    let reasons = parse(&finished.text());
    Ok(reasons.map(|reasons| ExitCosts { requests, reasons }))
}

/// An event of the trace.
#[derive(Debug, PartialEq, Eq)]
enum Event<'l> {
    Exit { thread: u32, reason: &'l str },
    Entry { thread: u32 },
    Switch { from: u32, to: u32 },
}

/// An exit that no entry has followed yet.
struct Open {
    reason: String,
    cpu_us: u64,
    /// When the thread got its CPU; none while it has none.
    since_us: Option<u64>,
}

impl Open {
    /// The thread has no CPU from now on.
    fn leaves(&mut self, now_us: u64) {
        let since_us = self.since_us.take();
        self.cpu_us += since_us.map_or(0, |since_us| now_us.saturating_sub(since_us));
    }
}

/// The costs by reason. None if events were overwritten, or without any event.
fn parse(trace: &str) -> Option<BTreeMap<String, ExitCost>> {
    let mut open: BTreeMap<u32, Open> = BTreeMap::new();
    let mut found: BTreeMap<String, ExitCost> = BTreeMap::new();
    for line in trace.lines() {
        if let Some((_, counts)) = line.split_once("entries-in-buffer/entries-written: ") {
            let (kept, written) = counts.split_whitespace().next()?.split_once('/')?;
            if kept != written {
                return None;
            }
        }
        let Some((now_us, event)) = event(line) else {
            continue;
        };
        match event {
            Event::Exit { thread, reason } => {
                let reason = reason.to_owned();
                let since_us = Some(now_us);
                let exit = Open {
                    reason,
                    cpu_us: 0,
                    since_us,
                };
                open.insert(thread, exit);
            }
            Event::Entry { thread } => {
                let Some(mut exit) = open.remove(&thread) else {
                    continue;
                };
                exit.leaves(now_us);
                let cost = found.entry(exit.reason).or_default();
                cost.exits += 1;
                cost.cpu_us += exit.cpu_us;
            }
            Event::Switch { from, to } => {
                if let Some(exit) = open.get_mut(&from) {
                    exit.leaves(now_us);
                }
                if let Some(exit) = open.get_mut(&to) {
                    exit.since_us = Some(now_us);
                }
            }
        }
    }
    (!found.is_empty()).then_some(found)
}

/// ` CPU 0/KVM-812  [001] d..1.  93.123456: kvm_exit: vcpu 0 reason hlt rip 0x12 info1 ...`: the time in us, and the event.
fn event(line: &str) -> Option<(u64, Event<'_>)> {
    let (task, rest) = line.split_once(" [")?;
    let thread: u32 = task.trim_end().rsplit_once('-')?.1.parse().ok()?;
    let (before, event) = rest.split_once(": ")?;
    let (seconds, fraction) = before.rsplit_once(' ')?.1.split_once('.')?;
    let (seconds, us): (u64, u64) = (seconds.parse().ok()?, fraction.parse().ok()?);
    let now_us = seconds.checked_mul(1_000_000)?.checked_add(us)?;
    let (name, details) = event.split_once(": ")?;
    let after = |key: &str| {
        let (_, rest) = details.rsplit_once(key)?;
        rest.split_whitespace().next()
    };
    let event = match name {
        "kvm_exit" => Event::Exit {
            thread,
            reason: after("reason ")?,
        },
        "kvm_entry" => Event::Entry { thread },
        "sched_switch" => Event::Switch {
            from: after("prev_pid=")?.parse().ok()?,
            to: after("next_pid=")?.parse().ok()?,
        },
        _ => return None,
    };
    Some((now_us, event))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TRACE: &str = "\
# tracer: nop
# entries-in-buffer/entries-written: 9/9   #P:2
       CPU 0/KVM-812     [001] d..1.    93.000100: kvm_exit: vcpu 0 reason msr rip 0x12 info1 0x1
       CPU 0/KVM-812     [001] d..1.    93.000130: kvm_entry: vcpu 0, rip 0x14
       CPU 0/KVM-812     [001] d..1.    93.000200: kvm_exit: vcpu 0 reason hlt rip 0x12 info1 0x0
       CPU 0/KVM-812     [001] d..2.    93.000220: sched_switch: prev_comm=CPU 0/KVM prev_pid=812 prev_prio=29 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
          <idle>-0       [001] d..2.    93.700000: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=CPU 0/KVM next_pid=812 next_prio=29
       CPU 0/KVM-812     [001] d..1.    93.700035: kvm_entry: vcpu 0, rip 0x14
         vcpu-1-a-9      [000] d..1.    94.000000: kvm_exit: vcpu 1 reason msr rip 0x12 info1 0x1
         vcpu-1-a-9      [000] d..1.    94.000011: kvm_entry: vcpu 1, rip 0x14
         vcpu-1-a-9      [000] d..1.    94.100000: kvm_exit: vcpu 1 reason io rip 0x12 info1 0x1
";

    #[test]
    fn an_exit_costs_its_threads_time_on_a_cpu() {
        let found = parse(TRACE).unwrap();
        let cost = |reason: &str| (found[reason].exits, found[reason].cpu_us);
        assert_eq!(cost("msr"), (2, 30 + 11));
        assert_eq!(cost("hlt"), (1, 20 + 35));
        // Its end was not seen.
        assert!(!found.contains_key("io"));
    }

    #[test]
    fn a_trace_that_lost_events_is_no_trace() {
        assert!(parse(&TRACE.replace("9/9", "9/12")).is_none());
        assert!(parse("").is_none());
    }

    proptest! {
        #[test]
        fn any_line_is_read_without_panic(line in "\\PC*") {
            event(&line);
            event(&format!("a-1 [000] d..1. 1.000001: kvm_exit: {line}"));
            event(&format!("a-1 [000] d..1. {line}: sched_switch: prev_pid={line}"));
        }
    }
}
