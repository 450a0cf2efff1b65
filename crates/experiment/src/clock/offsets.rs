//! What `ptp4l -m` tells of its clock.

/// An offset that it told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    /// When, by the monotonic clock, in ms.
    pub at_ms: u64,
    /// The offset's size, in ns.
    pub offset_ns: u64,
    /// The clock is disciplined: neither waited for nor just set.
    pub is_locked: bool,
}

/// `ptp4l[123.456]: master offset       -789 s2 freq   -1011 path delay      2222`.
pub(super) fn told(line: &str) -> Option<Told> {
    let (at, said) = line.trim().strip_prefix("ptp4l[")?.split_once("]:")?;
    let (seconds, rest) = at.split_once('.')?;
    let milliseconds: u64 = rest.get(..3)?.parse().ok()?;
    let mut words = said.split_whitespace();
    // "master offset", in later versions "time transmitter offset".
    words.find(|word| *word == "offset")?;
    let offset: i64 = words.next()?.parse().ok()?;
    let state = words.next()?;
    Some(Told {
        at_ms: seconds
            .trim()
            .parse::<u64>()
            .ok()?
            .checked_mul(1000)?
            .checked_add(milliseconds)?,
        offset_ns: offset.unsigned_abs(),
        is_locked: state == "s2" || state == "s3",
    })
}

/// The offsets that were told in the time after `begun_ms`.
pub(super) fn within(text: &str, begun_ms: u64, length_ms: u64) -> Vec<u64> {
    let told = text.lines().filter_map(told);
    let until_ms = begun_ms.saturating_add(length_ms);
    let within = told.filter(|it| it.at_ms > begun_ms && it.at_ms <= until_ms);
    within.map(|it| it.offset_ns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAID: &str = "\
ptp4l[10.001]: selected /dev/ptp0 as PTP clock
ptp4l[10.250]: port 1 (rt): UNCALIBRATED to SLAVE on MASTER_CLOCK_SELECTED
ptp4l[10.375]: master offset  123456789 s0 freq      +0 path delay      9000
ptp4l[10.500]: master offset      -4500 s2 freq   -1200 path delay      9100
ptp4l[10.625]: master offset        700 s2 freq    -800 path delay      9050
ptp4l[10.750]: master offset         12 s2 freq    -790 path delay      9050
";

    #[test]
    fn the_size_of_each_offset_of_the_time_is_read() {
        let first = told(SAID.lines().nth(2).unwrap()).unwrap();
        assert_eq!(
            (first.at_ms, first.offset_ns, first.is_locked),
            (10_375, 123_456_789, false)
        );
        assert_eq!(within(SAID, 10_375, 250), [4500, 700]);
        assert_eq!(within(SAID, 10_625, 10_000), [12]);
        assert_eq!(within(SAID, 11_000, 10_000), [0; 0]);
    }

    #[test]
    fn what_tells_no_offset_is_left_out() {
        for line in [
            "",
            "ptp4l[10.001]: selected /dev/ptp0 as PTP clock",
            "ptp4l[x.001]: master offset 1 s2",
            "ptp4l[1]: master offset 1 s2",
            "ptp4l[1.5]: master offset 1 s2",
            "ptp4l[1.500]: master offset one s2",
            "ptp4l[1.500]: master offset 1",
        ] {
            assert_eq!(told(line), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read_without_panic(line in "(ptp4l\\[)?\\PC{0,60}") {
            let _ = told(&line);
        }
    }
}
