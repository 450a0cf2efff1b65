//! What tcpdump writes: a pcap file with times in nanoseconds (draft-ietf-opsawg-pcap).

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use std::net::Ipv4Addr;

const FILE_HEADER_BYTES: usize = 24;
const FRAME_HEADER_BYTES: usize = 16;
/// The first word of a file whose times are in nanoseconds, in the byte order of the writer.
const NANOSECONDS: u32 = 0xa1b2_3c4d;
/// The link type of Ethernet.
const ETHERNET: u32 = 1;

/// The file is none that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// No file of Ethernet frames with times in nanoseconds.
    #[error("the capture is no pcap file of Ethernet frames with times in nanoseconds")]
    Header,
    /// The file ends within a frame.
    #[error("the capture ends within frame {0}")]
    Cut(usize),
}

/// A UDP datagram over IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// When the card's driver had it, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Who sent it.
    pub source: Ipv4Addr,
    /// Who gets it.
    pub destination: Ipv4Addr,
    /// Its data.
    pub payload: &'a [u8],
}

/// The UDP datagrams of a capture, in its order; what is none is left out.
///
/// # Errors
/// Another kind of file, or one that ends within a frame.
pub fn frames(file: &[u8]) -> Result<Vec<Frame<'_>>, CaptureError> {
    let word = |at: usize| {
        let bytes = file.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    // The file is of this machine: its words have this machine's byte order.
    if word(0) != Some(NANOSECONDS) || word(20) != Some(ETHERNET) {
        return Err(CaptureError::Header);
    }
    let mut found = Vec::new();
    let mut at = FILE_HEADER_BYTES;
    for number in 1.. {
        if at == file.len() {
            break;
        }
        let cut = CaptureError::Cut(number);
        let header = (word(at), word(at + 4), word(at + 8));
        let (Some(seconds), Some(ns), Some(bytes)) = header else {
            return Err(cut);
        };
        let begin = at + FRAME_HEADER_BYTES;
        let data = begin
            .checked_add(bytes as usize)
            .and_then(|end| file.get(begin..end));
        let data = data.ok_or(cut)?;
        let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(ns);
        found.extend(datagram(time_ns, data));
        at = begin + data.len();
    }
    Ok(found)
}

fn datagram(time_ns: u64, frame: &[u8]) -> Option<Frame<'_>> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(udp))) = (packet.net, packet.transport)
    else {
        return None;
    };
    Some(Frame {
        time_ns,
        source: ip.header().source_addr(),
        destination: ip.header().destination_addr(),
        payload: udp.payload(),
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    /// A capture of these datagrams: time, source, destination, data.
    pub fn capture(datagrams: &[(u64, Ipv4Addr, Ipv4Addr, &[u8])]) -> Vec<u8> {
        let mut file = Vec::new();
        for word in [NANOSECONDS, 0x0004_0002, 0, 0, 1 << 18, ETHERNET] {
            file.extend(word.to_ne_bytes());
        }
        for (time_ns, source, destination, data) in datagrams {
            let builder = PacketBuilder::ethernet2([0; 6], [1; 6])
                .ipv4(source.octets(), destination.octets(), 64)
                .udp(5060, 5060);
            let mut frame = Vec::new();
            builder.write(&mut frame, data).unwrap();
            let seconds = (time_ns / 1_000_000_000) as u32;
            let length = frame.len() as u32;
            for word in [seconds, (time_ns % 1_000_000_000) as u32, length, length] {
                file.extend(word.to_ne_bytes());
            }
            file.extend(frame);
        }
        file
    }

    #[test]
    fn datagrams_have_their_times_and_ends() {
        let (here, there) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let file = capture(&[
            (5_000_000_007, here, there, b"a"),
            (6_000_000_000, there, here, b"bc"),
        ]);
        let found = frames(&file).unwrap();
        assert_eq!(
            (found[0].time_ns, found[0].source, found[0].payload),
            (5_000_000_007, here, &b"a"[..])
        );
        assert_eq!((found[1].destination, found[1].payload), (here, &b"bc"[..]));
        assert_eq!(frames(&file[..file.len() - 1]), Err(CaptureError::Cut(2)));
        assert_eq!(frames(&file[..FILE_HEADER_BYTES]), Ok(Vec::new()));
        assert_eq!(frames(b"GIF89a"), Err(CaptureError::Header));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(tail in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut file = capture(&[]);
            file.extend(&tail);
            let _ = frames(&file);
            let _ = frames(&tail);
        }
    }
}
