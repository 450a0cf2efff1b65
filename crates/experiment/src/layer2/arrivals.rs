//! When frames came: from the subscriber's capture to delays and gaps. Pure.

use pcap_file::pcap::PcapReader;
use steadyvm_lab::{At, Result};
use steadyvm_load::layer2::{marked, stream_name};

/// A guest's clock and the outside's may run apart by this much; what is steeper is a queue that grows.
const MOST_DRIFT: f64 = 100e-6;

/// A frame that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Its stream's name.
    pub stream: String,
    /// When it was sent, by the clock outside.
    pub sent_ns: u64,
    /// When the subscriber had it, by the guest's clock.
    pub received_ns: u64,
}

/// The frames of a capture that are ours, in the order of their coming.
pub(super) fn arrivals(capture: &[u8]) -> Result<Vec<Arrival>> {
    let what = "read the subscriber's capture";
    let mut reader = PcapReader::new(capture).doing(what)?;
    let mut arrivals = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.doing(what)?;
        // The subscriber has counted what is malformed.
        if let Ok(Some((stream, mark))) = marked(&packet.data) {
            arrivals.push(Arrival {
                stream: stream.to_owned(),
                sent_ns: mark.sent_ns,
                received_ns: u64::try_from(packet.timestamp.as_nanos()).unwrap_or(u64::MAX),
            });
        }
    }
    Ok(arrivals)
}

/// How much longer each frame took than the fastest, as the frames are given.
///
/// The clocks of both ends differ by an unknown time and run apart by a little. Both are taken from the fastest frames of the
/// first and the last third. Where all frames of a time wait, their delays are shown too short.
pub(super) fn delays_ns(arrivals: &[Arrival]) -> Vec<u64> {
    let took = |it: &Arrival| i128::from(it.received_ns) - i128::from(it.sent_ns);
    let first = arrivals.iter().min_by_key(|it| it.sent_ns);
    let Some((begun_ns, origin)) = first.map(|it| (it.sent_ns, took(it))) else {
        return Vec::new();
    };
    let point = |it: &Arrival| ((it.sent_ns - begun_ns) as f64, (took(it) - origin) as f64);
    let points: Vec<(f64, f64)> = arrivals.iter().map(point).collect();
    let mut by_sending = points.clone();
    by_sending.sort_by(|one, other| one.0.total_cmp(&other.0));
    let drift = drift(&by_sending);
    let level = |(after, took): &(f64, f64)| took - drift * after;
    let fastest = points.iter().map(level).fold(f64::INFINITY, f64::min);
    // Nothing is below the fastest.
    points
        .iter()
        .map(|it| (level(it) - fastest) as u64)
        .collect()
}

/// The longest time in which no frame of a stream came, from when sending began until it ended, by the clock outside. A frame is
/// taken to have come as long after its sending as its delay says. A stream of which none came was away all the time.
pub(super) fn longest_gap_ns(
    streams: u8,
    sending: (u64, u64),
    arrivals: &[Arrival],
    delays_ns: &[u64],
) -> u64 {
    let gaps = (1..=streams).map(stream_name).map(|name| {
        let of_stream = arrivals.iter().zip(delays_ns);
        let of_stream = of_stream.filter(|(it, _)| it.stream == name);
        let mut came: Vec<u64> = of_stream
            .map(|(it, delay_ns)| it.sent_ns.saturating_add(*delay_ns))
            .collect();
        came.extend([sending.0, sending.1]);
        came.sort_unstable();
        let gaps = came.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.max().unwrap_or(0)
    });
    gaps.max().unwrap_or(0)
}

/// The slope from the fastest frame of the first third to that of the last.
fn drift(points: &[(f64, f64)]) -> f64 {
    let third = points.len() / 3;
    let fastest = |of: &[(f64, f64)]| {
        of.iter()
            .copied()
            .min_by(|one, other| one.1.total_cmp(&other.1))
    };
    let ends = (
        fastest(&points[..third]),
        fastest(&points[points.len() - third..]),
    );
    match ends {
        (Some(first), Some(last)) if last.0 > first.0 => {
            ((last.1 - first.1) / (last.0 - first.0)).clamp(-MOST_DRIFT, MOST_DRIFT)
        }
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Frames of one stream, each sent so long after the first and so long on its way, by a clock that is behind and too fast.
    fn came(frames: &[(u64, u64)], drift: f64) -> Vec<Arrival> {
        let of = |&(after_ns, took_ns): &(u64, u64)| Arrival {
            stream: "steadyvm01".to_owned(),
            sent_ns: 5_000_000_000 + after_ns,
            received_ns: 1_000 + after_ns + (after_ns as f64 * drift) as u64 + took_ns,
        };
        frames.iter().map(of).collect()
    }

    fn steady(took_ns: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
        (0..3000).map(|it| (it * 250_000, took_ns(it))).collect()
    }

    #[test]
    fn delays_are_over_the_fastest_whatever_the_clocks_say() {
        let frames = steady(|it| if it % 100 == 7 { 90_000 } else { 40_000 });
        for drift in [0.0, 20e-6] {
            let delays = delays_ns(&came(&frames, drift));
            assert!(delays[7].abs_diff(50_000) < 10, "{}", delays[7]);
            assert!(delays[2907].abs_diff(50_000) < 10, "{}", delays[2907]);
            assert!(delays[8] < 10 && delays[2999] < 10);
        }
    }

    #[test]
    fn a_queue_that_grows_is_no_clock() {
        let frames = steady(|it| it * 20_000);
        let delays = delays_ns(&came(&frames, 0.0));
        assert!(delays[2999] > 59_000_000, "{}", delays[2999]);
        assert!(delays_ns(&[]).is_empty());
    }

    #[test]
    fn a_burst_after_a_wait_is_a_gap_and_so_is_what_never_comes() {
        let ms = 1_000_000;
        // Sent each 2 ms, and all come when the last is sent, which is the fastest.
        let frames: Vec<(u64, u64)> = (0..400)
            .map(|it| (it * 2 * ms, (399 - it) * 2 * ms + 50_000))
            .collect();
        let arrivals = came(&frames, 0.0);
        let sending = (arrivals[0].sent_ns, arrivals[399].sent_ns + 2 * ms);
        let delays = delays_ns(&arrivals);
        let gap_ns = |streams, of: &[Arrival]| longest_gap_ns(streams, sending, of, &delays);
        assert!(gap_ns(1, &arrivals).abs_diff(798 * ms) < ms);
        assert_eq!(gap_ns(2, &arrivals), 800 * ms);
        assert_eq!(gap_ns(1, &[]), 800 * ms);
        let steady = came(&steady(|_| 40_000), 0.0);
        let sending = (steady[0].sent_ns, steady[2999].sent_ns);
        let gap_ns = longest_gap_ns(1, sending, &steady, &delays_ns(&steady));
        assert_eq!(gap_ns, 250_000);
    }

    proptest! {
        #[test]
        fn no_capture_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = arrivals(&bytes);
        }

        #[test]
        fn one_of_them_is_the_fastest(frames in prop::collection::vec((0..u64::MAX / 4, 0..u64::MAX / 4), 1..50)) {
            let delays = delays_ns(&came(&frames, 0.0));
            prop_assert_eq!(delays.len(), frames.len());
            prop_assert_eq!(delays.iter().min(), Some(&0));
        }
    }
}
