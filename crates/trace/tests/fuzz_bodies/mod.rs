//! What the fuzz target does with its bytes.

use std::collections::BTreeMap;
use steadyvm_trace::Recording;
use steadyvm_trace::event::{Decoder, TRACEPOINTS};
use steadyvm_trace::format::Format;
use steadyvm_trace::receive_path::{
    Rank, Report, Setup, VmThreads, Wanted, analyse, render, render_worst,
};
use steadyvm_trace::record::{Record, records};

/// Bytes as the format of a tracepoint, up to the first zero, and then as the content of a ring
/// buffer whose every event is read by it as one of the known tracepoints. Gives the number of
/// events.
pub fn trace_events(bytes: &[u8]) -> usize {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    let Some(format) = Format::parse(&String::from_utf8_lossy(&bytes[..end])) else {
        return 0;
    };
    let mut count = 0;
    for (_, tracepoint, _) in TRACEPOINTS {
        let mut decoder = Decoder::default();
        if decoder.add(tracepoint, &format).is_err() {
            continue;
        }
        let found = records(&bytes[end..]).filter_map(|record| match record {
            Record::Sample { time_ns, payload } => decoder.decode(time_ns, payload),
            Record::Lost(_) | Record::Other => None,
        });
        let mut events: Vec<_> = found.collect();
        events.sort_by_key(|event| event.time_ns);
        count += events.len();
        let recording = Recording {
            cpus: vec![(0, events)],
            ..Recording::default()
        };
        let setup = Setup {
            interrupts: BTreeMap::from([(1, "rt".into())]),
            wanted: Wanted::Device("rt".into()),
            softirq_lock_offset: Some(64),
            vms: vec![VmThreads {
                name: "vm".into(),
                carriers: (0..8).collect(),
                vcpus: (8..16).map(|tid| (tid, tid)).collect(),
            }],
        };
        let findings = analyse(&recording, &setup);
        let report = Report::new(String::new(), 1.0, &findings, 3, Rank::Whole);
        assert!(render(&report).ends_with('\n'));
        assert!(render_worst(&report).ends_with('\n'));
    }
    count
}
