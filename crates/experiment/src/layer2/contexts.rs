//! Who hands frames to the relay's device on the host: by the kernel's tracepoints.
//!
//! A bridge sends a frame to the VM's tap (`net_dev_start_xmit`). A macvtap gets it by `netif_rx()`, from who received it or from
//! the work queue. Each frame is one event, in the context of who does it.

use std::collections::BTreeMap;
use std::time::Duration;
use steadyvm_lab::Result;
use steadyvm_lab::agent::Connection;

/// The EtherType of Sampled Values, as the kernel's filters have it.
const ETHER_TYPE: &str = "0x88ba";
/// Room for 150,000 frames of each CPU.
const BUFFER_KIB: u32 = 16_384;
/// A slow host reads so many events in this time.
const PATIENCE: Duration = Duration::from_secs(300);
const INSTANCE: &str = "/sys/kernel/tracing/instances/relay";
const EVENTS: &str = "net/netif_rx_entry net/net_dev_start_xmit";

/// Starts to note who hands frames to a device.
pub(super) fn begin(host: &Connection, device: &str) -> Result<()> {
    let script = format!(
        "mkdir -p {INSTANCE}; cd {INSTANCE}; echo {BUFFER_KIB} > buffer_size_kb; echo > trace
         for event in {EVENTS}; do
           echo 'name == \"{device}\" && protocol == {ETHER_TYPE}' > events/$event/filter
           echo 1 > events/$event/enable
         done"
    );
    host.run(&["sh", "-euc", &script]).map(drop)
}

/// Ends it: lines of how many frames, the thread's policy, the context's flags, and the thread's name.
pub(super) fn end(host: &Connection) -> Result<Vec<Handing>> {
    let script = format!(
        "cd {INSTANCE}; for event in {EVENTS}; do echo 0 > events/$event/enable; done
         sed -nE 's/^ *(.*)-([0-9]+) +\\[[0-9]+\\] +([^ ]+) .*/\\2 \\3 \\1/p' trace | sort | uniq -c |
         while read -r count pid flags name; do
           policy=$(chrt -p $pid 2> /dev/null | sed -n 's/.*policy: *\\([A-Z_]*\\).*/\\1/p')
           [ $pid != 0 ] || policy=idle
           echo \"$count ${{policy:-gone}} $flags $name\"
         done; echo > trace"
    );
    let process = host.spawn(&["sh", "-euc", &script])?;
    process.end_of_input()?;
    let finished = process.finish(PATIENCE)?;
    Ok(finished.text().lines().filter_map(Handing::of).collect())
}

/// Frames that one thread handed on in one kind of context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Handing {
    pub frames: u64,
    policy: String,
    flags: String,
    name: String,
}

/// Threads that carry softirqs and work of others; on a kernel without PREEMPT_RT any other thread in a softirq was interrupted.
const CARRIERS: [&str; 3] = ["ksoftirqd/", "kworker/", "napi/"];

impl Handing {
    /// `1200 SCHED_OTHER ..s2. kworker/0:1`.
    fn of(line: &str) -> Option<Self> {
        let mut words = line.trim().splitn(4, ' ');
        Some(Self {
            frames: words.next()?.parse().ok()?,
            policy: words.next()?.to_owned(),
            flags: words.next()?.to_owned(),
            name: words.next()?.to_owned(),
        })
    }

    /// Whether a thread without a rank did it. With PREEMPT_RT every softirq is in a thread.
    pub fn is_by_a_normal_thread(&self, preempt_rt: bool) -> bool {
        // A worker that is gone by now was of a work queue.
        let is_normal = ["SCHED_OTHER", "SCHED_BATCH", "SCHED_IDLE", "gone"];
        let interrupts = !matches!(self.flags.chars().nth(2), Some('.') | None);
        let carries = CARRIERS.iter().any(|it| self.name.starts_with(it));
        is_normal.contains(&&*self.policy) && (preempt_rt || carries || !interrupts)
    }
}

/// The normal threads of several recordings that handed frames on, each with its frames, the most first.
pub(super) fn normal_threads<'h>(
    handings: impl IntoIterator<Item = &'h Handing>,
    preempt_rt: bool,
) -> Vec<(&'h str, u64)> {
    let mut frames: BTreeMap<&str, u64> = BTreeMap::new();
    let handings = handings.into_iter();
    for it in handings.filter(|it| it.is_by_a_normal_thread(preempt_rt)) {
        *frames.entry(&it.name).or_default() += it.frames;
    }
    let mut threads: Vec<(&str, u64)> = frames.into_iter().collect();
    threads.sort_by_key(|(_, frames)| std::cmp::Reverse(*frames));
    threads
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_normal(line: &str, preempt_rt: bool) -> bool {
        Handing::of(line).unwrap().is_by_a_normal_thread(preempt_rt)
    }

    #[test]
    fn a_work_queue_and_a_softirqs_thread_are_normal_and_an_interrupt_is_not() {
        for name in ["kworker/0:1", "kworker/u8:2", "ksoftirqd/0"] {
            assert!(is_normal(&format!("12 SCHED_OTHER ..s2. {name}"), false));
        }
        assert!(is_normal("12 SCHED_OTHER ....1 kworker/0:1", false));
        assert!(is_normal("12 gone ....1 kworker/0:1", false));
        assert!(!is_normal("12 SCHED_OTHER ..s1. CPU 0/KVM", false));
        assert!(!is_normal("12 idle ..s1. <idle>", false));
    }

    #[test]
    fn with_preempt_rt_the_thread_counts() {
        assert!(is_normal("12 SCHED_OTHER ..s1. vhost-512", true));
        assert!(is_normal("12 SCHED_OTHER ..s1. ksoftirqd/1", true));
        assert!(!is_normal("12 SCHED_FIFO ..s1. irq/27-rt-TxRx-", true));
    }

    #[test]
    fn normal_threads_are_named_with_all_their_frames() {
        let lines = [
            "12 SCHED_OTHER ..s1. vhost-512",
            "30 SCHED_OTHER ..s1. ksoftirqd/0",
            "700 SCHED_FIFO ..s1. irq/27-rt-TxRx-",
            "20 SCHED_OTHER d.s2. vhost-512",
        ];
        let handings = lines.map(|it| Handing::of(it).unwrap());
        let expected = [("vhost-512", 32), ("ksoftirqd/0", 30)];
        assert_eq!(normal_threads(&handings, true), expected);
        assert_eq!(normal_threads(&handings, false), [("ksoftirqd/0", 30)]);
    }

    #[test]
    fn a_line_that_is_none_is_left_out() {
        let line = Handing::of("     7 SCHED_OTHER d.s.. CPU 0/KVM").unwrap();
        assert_eq!((line.frames, &*line.name), (7, "CPU 0/KVM"));
        for other in ["", "7", "x SCHED_OTHER d.s.. a", "7 SCHED_OTHER d.s.."] {
            assert_eq!(Handing::of(other), None, "{other}");
        }
    }
}
