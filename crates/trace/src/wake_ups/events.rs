//! Wake-ups by two tracepoints through `perf_event_open`, which the kernel filters by the threads.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CString;

use crate::event::{Decoder, Event, Kind};
use crate::perf::{Buffer, Tracepoint};
use crate::record::{Record, records};
use crate::tracefs;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use steadyvm_fault::Fault;

/// The kernel takes a filter of a page at most; a thread takes less than 20 bytes of it.
pub(super) const MOST_THREADS: usize = 200;

/// Buffer for each CPU's events until they are fetched.
const BUFFER_BYTES: usize = 1 << 20;

/// Tracepoint and field that names the thread.
const TRACEPOINTS: [(&str, &str); 2] = [("sched_waking", "pid"), ("sched_switch", "next_pid")];

/// Records the wake-ups of some threads while it lives.
pub(super) struct Events {
    decoder: Decoder,
    cpus: Vec<Cpu>,
    times: Times,
    /// Events that are newer than the last fetch's begin: others may still belong before them.
    later: Vec<Event>,
    lost: u64,
}

struct Cpu {
    buffer: Buffer,
    /// Ends with the descriptors.
    _tracepoints: Vec<Tracepoint>,
}

/// Wake-ups that were seen, by thread. Pure.
#[derive(Debug, Default)]
struct Times {
    woken_ns: HashMap<u32, u64>,
    waits_ns: BTreeMap<u32, Vec<u64>>,
}

impl Times {
    /// Takes events in order of time.
    fn pass(&mut self, event: &Event) {
        match event.kind {
            // Only who sleeps is woken (`try_to_wake_up()`), so an earlier one was not seen to its end.
            Kind::Wake { tid, .. } => {
                self.woken_ns.insert(tid, event.time_ns);
            }
            Kind::Switch { to, .. } => {
                if let Some(woken_ns) = self.woken_ns.remove(&to) {
                    let wait_ns = event.time_ns.saturating_sub(woken_ns);
                    self.waits_ns.entry(to).or_default().push(wait_ns);
                }
            }
            _ => {}
        }
    }
}

impl Events {
    /// Begins to record these threads on these CPUs.
    ///
    /// # Errors
    /// Without the right to trace, without tracefs, and for more than [`MOST_THREADS`] or no threads.
    pub(super) fn open(cpus: &[usize], threads: &BTreeSet<u32>) -> Result<Self, Fault> {
        super::check(threads, MOST_THREADS)?;
        let root = tracefs::root()?;
        let mut decoder = Decoder::default();
        let mut wanted = Vec::new();
        for (name, field) in TRACEPOINTS {
            let lacks = |why: &str| Fault::cannot(format!("use the tracepoint sched:{name}"), why);
            let format = tracefs::format(&root, "sched", name)?;
            let format = format.ok_or_else(|| lacks("it is not in tracefs"))?;
            let known = decoder.add(name, &format);
            known.map_err(|field| lacks(&format!("it has no field `{field}`")))?;
            let filter = CString::new(filter(field, threads)).map_err(|_| lacks("a filter"))?;
            wanted.push((format.id, filter));
        }
        let mut opened = Vec::new();
        for &cpu in cpus {
            let of_cpu = open_on(cpu, &wanted).map_err(|error| {
                Fault::cannot(format!("record wake-ups on CPU {cpu}"), error)
                    .what_to_do("run it as root (sudo)")
            })?;
            opened.push(of_cpu);
        }
        Ok(Self {
            decoder,
            cpus: opened,
            times: Times::default(),
            later: Vec::new(),
            lost: 0,
        })
    }

    /// What was seen since the last call: for each thread, its waits in nanoseconds, in order of time.
    pub(super) fn take(&mut self) -> BTreeMap<u32, Vec<u64>> {
        let begin_ns = monotonic_ns();
        let mut events = std::mem::take(&mut self.later);
        let mut log = Vec::new();
        for cpu in &mut self.cpus {
            log.clear();
            cpu.buffer.drain(&mut log);
            for record in records(&log) {
                match record {
                    Record::Sample { time_ns, payload } => {
                        events.extend(self.decoder.decode(time_ns, payload));
                    }
                    Record::Lost(count) => self.lost += count,
                    Record::Other => {}
                }
            }
        }
        events.sort_by_key(|event: &Event| event.time_ns);
        let known = events.partition_point(|event| event.time_ns < begin_ns);
        self.later = events.split_off(known);
        for event in &events {
            self.times.pass(event);
        }
        std::mem::take(&mut self.times.waits_ns)
    }

    /// Events that found their buffer full, since the beginning.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

fn open_on(cpu: usize, wanted: &[(u16, CString)]) -> std::io::Result<Cpu> {
    let mut tracepoints: Vec<Tracepoint> = Vec::new();
    let mut buffer = None;
    for (id, filter) in wanted {
        let tracepoint = Tracepoint::open(*id, cpu)?;
        tracepoint.set_filter(filter)?;
        match tracepoints.first() {
            None => buffer = Some(Buffer::map(&tracepoint, BUFFER_BYTES)?),
            Some(owner) => tracepoint.write_to_buffer_of(owner)?,
        }
        tracepoints.push(tracepoint);
    }
    for tracepoint in &tracepoints {
        tracepoint.enable()?;
    }
    let buffer = buffer.ok_or_else(|| std::io::Error::other("no tracepoint"))?;
    Ok(Cpu {
        buffer,
        _tracepoints: tracepoints,
    })
}

/// `pid == 1 || pid == 2`: Documentation/trace/events.rst, "Event filtering".
fn filter(field: &str, threads: &BTreeSet<u32>) -> String {
    let each: Vec<String> = threads
        .iter()
        .map(|tid| format!("{field}=={tid}"))
        .collect();
    each.join("||")
}

fn monotonic_ns() -> u64 {
    // Linux has that clock everywhere.
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap_or(TimeSpec::new(0, 0));
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Priority;
    use proptest::prelude::*;

    fn wake(time_ns: u64, tid: u32) -> Event {
        let kind = Kind::Wake {
            tid,
            comm: "vhost-1".into(),
        };
        Event {
            time_ns,
            tid: 0,
            kind,
        }
    }

    fn switch(time_ns: u64, to: u32) -> Event {
        let kind = Kind::Switch {
            from_comm: "x".into(),
            to,
            to_comm: "y".into(),
            to_priority: Priority(49),
        };
        Event {
            time_ns,
            tid: 0,
            kind,
        }
    }

    #[test]
    fn a_wait_is_from_the_wake_up_to_the_switch_and_preemption_is_none() {
        let mut times = Times::default();
        for event in [
            wake(10, 7),
            wake(12, 8),
            switch(15, 7),
            // Preempted and back: it was not woken.
            switch(30, 7),
            switch(40, 8),
            // The end of the first was not seen.
            wake(50, 7),
            wake(60, 7),
            switch(61, 7),
        ] {
            times.pass(&event);
        }
        assert_eq!(times.waits_ns[&7], [5, 1]);
        assert_eq!(times.waits_ns[&8], [28]);
    }

    #[test]
    fn the_longest_filter_fits_a_page() {
        let threads: BTreeSet<u32> = (4_194_304 - MOST_THREADS as u32..4_194_304).collect();
        assert_eq!(threads.len(), MOST_THREADS);
        assert!(filter("next_pid", &threads).len() < 4096);
        assert_eq!(filter("pid", &[1, 2].into()), "pid==1||pid==2");
    }

    proptest! {
        #[test]
        fn no_order_of_events_panics_and_every_wait_has_a_wake_up(
            events in prop::collection::vec((any::<bool>(), 0_u64..100, 0_u32..3), 0..50)
        ) {
            let mut times = Times::default();
            for (is_wake, time_ns, tid) in &events {
                let event = if *is_wake { wake(*time_ns, *tid) } else { switch(*time_ns, *tid) };
                times.pass(&event);
            }
            let waits: usize = times.waits_ns.values().map(Vec::len).sum();
            prop_assert!(waits <= events.iter().filter(|event| event.0).count());
        }
    }
}
