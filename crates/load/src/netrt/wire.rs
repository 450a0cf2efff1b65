//! The NetRT datagram: a 32-byte header, then zeros up to the payload size the client chose.
//!
//! ```text
//!  0      4        5     6         8        16         24          32
//!  | SVRT | version| kind| zeros   | run    | sequence | sent_ns   | padding ...
//! ```
//! Numbers are big-endian. A reply is the request with another kind, all else unchanged. The kind
//! keeps two servers that are pointed at each other from echoing for ever; the run keeps a reply
//! to an earlier client on the same port from being taken for one of ours.

/// Size of the header, and so the smallest payload, in bytes.
pub const HEADER_BYTES: usize = 32;

/// The largest UDP payload over IPv4, in bytes.
pub const MAXIMUM_PAYLOAD_BYTES: usize = 65_507;

const MAGIC: [u8; 4] = *b"SVRT";
const VERSION: u8 = 1;
const KIND_OFFSET: usize = 5;
const KIND_REQUEST: u8 = 0;
const KIND_REPLY: u8 = 1;

/// What a header says besides its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Identifies the client run.
    pub run: u64,
    /// Counts requests of the run from 0.
    pub sequence: u64,
    /// The client's monotonic clock at sending, for people reading a packet capture.
    pub sent_ns: u64,
}

impl Header {
    /// Writes this header as a request over the first 32 bytes of `datagram`.
    pub(crate) fn write_request(self, datagram: &mut [u8]) {
        datagram[..4].copy_from_slice(&MAGIC);
        datagram[4..8].copy_from_slice(&[VERSION, KIND_REQUEST, 0, 0]);
        datagram[8..16].copy_from_slice(&self.run.to_be_bytes());
        datagram[16..24].copy_from_slice(&self.sequence.to_be_bytes());
        datagram[24..32].copy_from_slice(&self.sent_ns.to_be_bytes());
    }

    /// Reads a request; `None` if it is not one.
    pub(crate) fn read_request(datagram: &[u8]) -> Option<Self> {
        Self::read(datagram, KIND_REQUEST)
    }

    /// Reads a reply; `None` if it is not one.
    pub(crate) fn read_reply(datagram: &[u8]) -> Option<Self> {
        Self::read(datagram, KIND_REPLY)
    }

    fn read(datagram: &[u8], kind: u8) -> Option<Self> {
        let header = datagram.get(..HEADER_BYTES)?;
        if header[..4] != MAGIC || header[4..8] != [VERSION, kind, 0, 0] {
            return None;
        }
        Some(Self {
            run: number_at(header, 8),
            sequence: number_at(header, 16),
            sent_ns: number_at(header, 24),
        })
    }
}

/// Turns a valid request into its reply, in place.
pub(crate) fn make_reply(request: &mut [u8]) {
    request[KIND_OFFSET] = KIND_REPLY;
}

fn number_at(header: &[u8], offset: usize) -> u64 {
    header[offset..offset + 8]
        .iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_request_reads_back_and_its_reply_too(run: u64, sequence: u64, sent_ns: u64, padding in 0_usize..100) {
            let header = Header { run, sequence, sent_ns };
            let mut datagram = vec![0; HEADER_BYTES + padding];
            header.write_request(&mut datagram);
            prop_assert_eq!(Header::read_request(&datagram), Some(header));
            prop_assert_eq!(Header::read_reply(&datagram), None);
            make_reply(&mut datagram);
            prop_assert_eq!(Header::read_reply(&datagram), Some(header));
            prop_assert_eq!(Header::read_request(&datagram), None);
        }

        #[test]
        fn a_changed_or_short_header_is_refused(bit in 0_usize..64, length in 0..HEADER_BYTES) {
            let mut datagram = vec![0; HEADER_BYTES];
            Header { run: 1, sequence: 2, sent_ns: 3 }.write_request(&mut datagram);
            prop_assert_eq!(Header::read_request(&datagram[..length]), None);
            datagram[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Header::read_request(&datagram), None);
        }

        #[test]
        fn any_bytes_are_read_without_panic(datagram in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Header::read_request(&datagram);
            let _ = Header::read_reply(&datagram);
        }
    }
}
