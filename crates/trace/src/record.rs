//! The records of a perf ring buffer (`perf_event_open(2)`, "Overflow handling"), as
//! `crate::perf` asks for them: samples with time and raw payload, and counts of lost ones.

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// A tracepoint was passed.
    Sample {
        /// When, in nanoseconds of the monotonic clock.
        time_ns: u64,
        /// What it says: laid out as its format file describes.
        payload: &'a [u8],
    },
    /// The buffer was full this many times.
    Lost(u64),
    /// Anything else.
    Other,
}

const LOST: u32 = 2;
const SAMPLE: u32 = 9;
/// Type, misc and size.
const HEADER_BYTES: usize = 8;

/// The records of a buffer's content. What is cut or makes no sense ends the iteration.
pub fn records(mut bytes: &[u8]) -> impl Iterator<Item = Record<'_>> {
    std::iter::from_fn(move || {
        let size = usize::from(u16::from_le_bytes(array(bytes, 6)?));
        let kind = u32::from_le_bytes(array(bytes, 0)?);
        let body = bytes.get(HEADER_BYTES..size)?;
        bytes = bytes.get(size..)?;
        Some(match kind {
            SAMPLE => sample(body).unwrap_or(Record::Other),
            LOST => array(body, 8).map_or(Record::Other, |count| {
                Record::Lost(u64::from_le_bytes(count))
            }),
            _ => Record::Other,
        })
    })
}

/// A body of `PERF_SAMPLE_TIME | PERF_SAMPLE_RAW`.
fn sample(body: &[u8]) -> Option<Record<'_>> {
    let time_ns = u64::from_le_bytes(array(body, 0)?);
    let size = u32::from_le_bytes(array(body, 8)?) as usize;
    let payload = body.get(12..12_usize.checked_add(size)?)?;
    Some(Record::Sample { time_ns, payload })
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bytes of a sample's record.
    pub fn sample_bytes(time_ns: u64, payload: &[u8]) -> Vec<u8> {
        let size = (HEADER_BYTES + 12 + payload.len()) as u16;
        let mut bytes = SAMPLE.to_le_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend(size.to_le_bytes());
        bytes.extend(time_ns.to_le_bytes());
        bytes.extend((payload.len() as u32).to_le_bytes());
        bytes.extend(payload);
        bytes
    }

    fn lost_bytes(count: u64) -> Vec<u8> {
        let mut bytes = LOST.to_le_bytes().to_vec();
        bytes.extend([0, 0, 24, 0]);
        bytes.extend(77_u64.to_le_bytes());
        bytes.extend(count.to_le_bytes());
        bytes
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            samples in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u8>(), 0..40)), 0..20),
            lost in any::<u64>(),
            cut in 0_usize..20,
        ) {
            let mut bytes: Vec<u8> = samples.iter().flat_map(|(time, payload)| sample_bytes(*time, payload)).collect();
            bytes.extend(lost_bytes(lost));
            let expected: Vec<Record<'_>> = samples
                .iter()
                .map(|(time_ns, payload)| Record::Sample { time_ns: *time_ns, payload })
                .chain([Record::Lost(lost)])
                .collect();
            prop_assert_eq!(records(&bytes).collect::<Vec<_>>(), expected.clone());
            // A cut end loses records and invents none.
            let shorter = &bytes[..bytes.len().saturating_sub(cut)];
            let read: Vec<_> = records(shorter).collect();
            prop_assert_eq!(&read[..], &expected[..read.len()]);
        }

        #[test]
        fn no_bytes_panic_and_every_walk_ends(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(records(&bytes).count() <= bytes.len() / HEADER_BYTES);
        }
    }
}
