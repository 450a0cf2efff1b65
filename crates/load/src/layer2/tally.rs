//! What came of each stream: lost, doubled, out of order, how late, and the longest time without a frame. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use steadyvm_stats::PerMille;
use steadyvm_stats::steps::{STEPS, percentile_ns, step_end_ns, step_of};

use super::mark::Mark;

/// Frames that are told apart behind the latest one: 16 s of 4,000 a second. One that comes later counts as out of order.
const WINDOW: u64 = 1 << 16;
const WORDS: usize = (WINDOW / 64) as usize;

/// The counts of all streams.
#[derive(Debug, Default)]
pub struct Tally {
    streams: BTreeMap<String, Stream>,
    received: u64,
    foreign: u64,
    malformed: u64,
}

/// The counts of a stream.
#[derive(Debug)]
struct Stream {
    first: u64,
    latest: u64,
    /// Whether a frame of the window has come, by its number modulo the window.
    seen: Vec<u64>,
    received: u64,
    duplicates: u64,
    out_of_order: u64,
    before_first: u64,
    received_ns: u64,
    longest_gap_ns: u64,
    longest_gap_at_ns: u64,
    begun_ns: u64,
    clock_behind: u64,
    latencies: Vec<u64>,
    longest_latency_ns: u64,
}

/// The counts of all streams, as figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TallyReport {
    /// The version of the format.
    pub schema_version: u32,
    /// Each stream, by name.
    pub streams: Vec<StreamReport>,
    /// Frames of other publishers.
    pub foreign: u64,
    /// Frames that are none of the protocol.
    pub malformed: u64,
}

/// The counts of a stream, as figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamReport {
    /// Its name.
    pub name: String,
    /// Different frames.
    pub received: u64,
    /// Frames from the first to the latest that did not come.
    pub lost: u64,
    /// Frames that came again.
    pub duplicates: u64,
    /// Frames that came after a later one.
    pub out_of_order: u64,
    /// The longest time from one frame to the next, in microseconds.
    pub longest_gap_us: f64,
    /// When that began, in seconds after the first frame.
    pub longest_gap_at_s: f64,
    /// From sending to receiving, where both ends have one clock; none without a frame.
    pub latency: Option<Latency>,
    /// Frames that came before they were sent, by the clocks: these differ, and the latencies mean nothing.
    pub clock_behind: u64,
}

/// How long frames took, in microseconds. Percentiles are the upper ends of steps an eighth wide.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The median.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The 99.9th percentile.
    pub p999_us: f64,
    /// The longest.
    pub longest_us: f64,
    /// How many took so long at most and longer than the step before: upper end of the step, and count.
    pub histogram_us: Vec<(f64, u64)>,
}

impl Tally {
    /// A frame of ours.
    pub fn note(&mut self, name: &str, mark: Mark, received_ns: u64) {
        self.received += 1;
        if let Some(stream) = self.streams.get_mut(name) {
            stream.note(mark, received_ns);
        } else {
            let stream = Stream::new(mark, received_ns);
            self.streams.insert(name.to_owned(), stream);
        }
    }

    /// A frame of somebody else.
    pub fn note_foreign(&mut self) {
        self.foreign += 1;
    }

    /// Bytes that are no frame.
    pub fn note_malformed(&mut self) {
        self.malformed += 1;
    }

    /// Frames of ours, those that came again too.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The figures.
    pub fn report(&self) -> TallyReport {
        let one = |(name, stream): (&String, &Stream)| stream.report(name);
        TallyReport {
            schema_version: 1,
            streams: self.streams.iter().map(one).collect(),
            foreign: self.foreign,
            malformed: self.malformed,
        }
    }
}

impl Stream {
    fn new(mark: Mark, received_ns: u64) -> Self {
        let mut stream = Self {
            first: mark.sequence,
            latest: mark.sequence,
            seen: vec![0; WORDS],
            received: 0,
            duplicates: 0,
            out_of_order: 0,
            before_first: 0,
            received_ns,
            longest_gap_ns: 0,
            longest_gap_at_ns: 0,
            begun_ns: received_ns,
            clock_behind: 0,
            latencies: vec![0; STEPS],
            longest_latency_ns: 0,
        };
        stream.note(mark, received_ns);
        stream
    }

    fn note(&mut self, mark: Mark, received_ns: u64) {
        let gap_ns = received_ns.saturating_sub(self.received_ns);
        if gap_ns > self.longest_gap_ns {
            self.longest_gap_ns = gap_ns;
            self.longest_gap_at_ns = self.received_ns.saturating_sub(self.begun_ns);
        }
        self.received_ns = received_ns;
        if !self.is_new(mark.sequence) {
            self.duplicates += 1;
            return;
        }
        self.received += 1;
        match received_ns.checked_sub(mark.sent_ns) {
            None => self.clock_behind += 1,
            Some(ns) => {
                self.longest_latency_ns = self.longest_latency_ns.max(ns);
                if let Some(count) = self.latencies.get_mut(step_of(ns)) {
                    *count += 1;
                }
            }
        }
    }

    /// Whether a frame has not come before. One from behind the window is taken for new.
    fn is_new(&mut self, sequence: u64) -> bool {
        let latest = self.latest;
        if let Some(ahead) = sequence.checked_sub(latest).filter(|ahead| *ahead > 0) {
            // What the window leaves behind is forgotten.
            for forgotten in 1..=ahead.min(WINDOW) {
                self.set_seen(latest.wrapping_add(forgotten), false);
            }
            self.latest = sequence;
        } else if latest - sequence >= WINDOW {
            self.out_of_order += 1;
            self.before_first += u64::from(sequence < self.first);
            return true;
        } else if self.was_seen(sequence) {
            return false;
        } else if sequence < latest {
            self.out_of_order += 1;
            self.before_first += u64::from(sequence < self.first);
        }
        self.set_seen(sequence, true);
        true
    }

    fn was_seen(&self, sequence: u64) -> bool {
        let place = sequence % WINDOW;
        self.seen[(place / 64) as usize] & (1 << (place % 64)) != 0
    }

    fn set_seen(&mut self, sequence: u64, was_seen: bool) {
        let place = sequence % WINDOW;
        let word = &mut self.seen[(place / 64) as usize];
        let bit = 1 << (place % 64);
        *word = if was_seen { *word | bit } else { *word & !bit };
    }

    fn report(&self, name: &str) -> StreamReport {
        let us = |ns: u64| ns as f64 / 1e3;
        let expected = (self.latest - self.first).saturating_add(1);
        let percentile =
            |which| percentile_ns(&self.latencies, self.longest_latency_ns, which).map(us);
        let counted = self.latencies.iter().enumerate();
        let counted = counted.filter(|(_, count)| **count > 0);
        let latency = || {
            Some(Latency {
                p50_us: percentile(PerMille::P50)?,
                p99_us: percentile(PerMille::P99)?,
                p999_us: percentile(PerMille::P999)?,
                longest_us: us(self.longest_latency_ns),
                histogram_us: counted
                    .map(|(step, count)| (us(step_end_ns(step)), *count))
                    .collect(),
            })
        };
        StreamReport {
            name: name.to_owned(),
            received: self.received,
            lost: expected.saturating_sub(self.received - self.before_first),
            duplicates: self.duplicates,
            out_of_order: self.out_of_order,
            longest_gap_us: us(self.longest_gap_ns),
            longest_gap_at_s: self.longest_gap_at_ns as f64 / 1e9,
            latency: latency(),
            clock_behind: self.clock_behind,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(frames: &[(u64, u64, u64)]) -> StreamReport {
        let mut tally = Tally::default();
        for (sequence, sent_ns, received_ns) in frames {
            let mark = Mark {
                sequence: *sequence,
                sent_ns: *sent_ns,
            };
            tally.note("steadyvm01", mark, *received_ns);
        }
        tally.report().streams.remove(0)
    }

    #[test]
    fn lost_doubled_and_out_of_order_frames_are_counted_each() {
        let frames = [0, 1, 3, 2, 3, 6, 6, 10].map(|sequence| (sequence, 0, 1));
        let report = of(&frames);
        assert_eq!(report.received, 6);
        assert_eq!(
            (report.lost, report.duplicates, report.out_of_order),
            (5, 2, 1)
        );
    }

    #[test]
    fn a_stream_that_is_joined_late_has_lost_nothing_and_earlier_frames_count_for_no_lost_one() {
        let report = of(&[(100, 0, 1), (99, 0, 2), (103, 0, 3)]);
        assert_eq!(
            (report.received, report.lost, report.out_of_order),
            (3, 2, 1)
        );
        let report = of(&[(WINDOW * 2, 0, 1), (5, 0, 2), (WINDOW * 2 + 1, 0, 3)]);
        assert_eq!(
            (report.received, report.lost, report.out_of_order),
            (3, 0, 1)
        );
    }

    #[test]
    fn the_longest_gap_and_its_beginning_are_told() {
        let ms = 1_000_000;
        let report = of(&[(0, 0, ms), (1, 0, 2 * ms), (2, 0, 9 * ms), (3, 0, 10 * ms)]);
        assert!((report.longest_gap_us - 7000.0).abs() < 1e-9);
        assert!((report.longest_gap_at_s - 0.001).abs() < 1e-9);
    }

    #[test]
    fn latencies_have_percentiles_and_a_clock_that_is_behind_is_told() {
        let mut frames: Vec<(u64, u64, u64)> =
            (0..999).map(|n| (n, n * 1000, n * 1000 + 800)).collect();
        frames.push((999, 999_000, 999_000 + 64_000));
        let latency = of(&frames).latency.unwrap();
        assert!(latency.p50_us >= 0.8 && latency.p50_us < 0.9, "{latency:?}");
        assert!((latency.longest_us - 64.0).abs() < 1e-9);
        assert_eq!(
            latency
                .histogram_us
                .iter()
                .map(|(_, count)| count)
                .sum::<u64>(),
            1000
        );
        let behind = of(&[(0, 500, 400)]);
        assert_eq!((behind.clock_behind, behind.latency), (1, None));
    }

    proptest! {
        /// In any order, with any of them twice and others missing: counted as a set counts them.
        #[test]
        fn every_frame_of_the_window_counts_once(
            sequences in prop::collection::vec(0_u64..2000, 1..400),
            start in prop::sample::select(vec![0_u64, 65_000, u64::MAX - 3000]),
        ) {
            let frames: Vec<(u64, u64, u64)> = sequences.iter().map(|it| (start + it, 0, 1)).collect();
            let report = of(&frames);
            let different: std::collections::BTreeSet<u64> = sequences.iter().copied().collect();
            let first = sequences[0];
            let latest = *different.last().unwrap();
            let counted = different.iter().filter(|it| **it >= first).count() as u64;
            prop_assert_eq!(report.received, different.len() as u64);
            prop_assert_eq!(report.duplicates, (sequences.len() - different.len()) as u64);
            prop_assert_eq!(report.lost, latest - first + 1 - counted);
        }

        #[test]
        fn no_marks_panic(frames in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 1..50)) {
            let report = of(&frames);
            prop_assert!(report.received + report.duplicates == frames.len() as u64);
        }
    }
}
