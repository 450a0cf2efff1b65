//! Control messages in the layout of 64-bit Linux, which guest and host share: those sent are
//! checked against a list, those received are cut down to one.

use crate::chain::Control;
use rustix::io::Errno;

/// `struct cmsghdr`: a length of 8 bytes, level and type of 4.
const HEAD: usize = 16;
const ALIGN: usize = 8;

struct Message<'a> {
    level: i32,
    kind: i32,
    payload: &'a [u8],
    /// With its head, without what aligns the next.
    whole: &'a [u8],
}

/// Walks a control buffer by the rules of `for_each_cmsghdr`.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Errno>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.0;
        let word = |at| <[u8; 4]>::try_from(rest.get(at..at + 4)?).ok();
        let (level, kind) = (word(8)?, word(12)?);
        let len = u64::from_le_bytes(rest.get(..8)?.try_into().ok()?);
        let whole = usize::try_from(len).ok().and_then(|len| rest.get(..len));
        let Some(whole) = whole.filter(|whole| whole.len() >= HEAD) else {
            self.0 = &[];
            return Some(Err(Errno::INVAL));
        };
        self.0 = rest
            .get(whole.len().next_multiple_of(ALIGN)..)
            .unwrap_or(&[]);
        Some(Ok(Message {
            level: i32::from_le_bytes(level),
            kind: i32::from_le_bytes(kind),
            payload: &whole[HEAD..],
            whole,
        }))
    }
}

/// Checks what a guest wants to send. Lengths of payloads are the kernel's to judge.
///
/// # Errors
/// EINVAL for a broken buffer or a message that is not on the list: a message ignored in silence
/// would be a false success.
pub fn check(bytes: &[u8]) -> Result<(), Errno> {
    for message in Messages(bytes) {
        let message = message?;
        let known = match message.level {
            libc::IPPROTO_IP => {
                matches!(message.kind, libc::IP_PKTINFO | libc::IP_TTL | libc::IP_TOS)
            }
            libc::IPPROTO_IPV6 => matches!(
                message.kind,
                libc::IPV6_PKTINFO | libc::IPV6_HOPLIMIT | libc::IPV6_TCLASS | IPV6_DONTFRAG
            ),
            libc::IPPROTO_UDP => message.kind == libc::UDP_SEGMENT,
            libc::SOL_SOCKET => matches!(message.kind, libc::SO_TIMESTAMPING | TIMESTAMPING_NEW),
            _ => false,
        };
        if !known || message.payload.is_empty() {
            return Err(Errno::INVAL);
        }
    }
    Ok(())
}

const IPV6_DONTFRAG: i32 = 62;
const TIMESTAMP_NEW: i32 = 63;
const TIMESTAMPING_NEW: i32 = 65;
const SCM_TIMESTAMPING_OPT_STATS: i32 = 54;
const SCM_TIMESTAMPING_PKTINFO: i32 = 58;
const IP_RECVFRAGSIZE: i32 = 25;
const IPV6_PATHMTU: i32 = 61;
const IPV6_RECVFRAGSIZE: i32 = 77;
const TCP_INQ: i32 = 36;

/// What of received control messages goes to the guest, and whether anything was left out.
pub fn filter(bytes: &[u8]) -> (Control, bool) {
    let mut kept = Control::new();
    let mut left_out = false;
    for message in Messages(bytes) {
        match message {
            Ok(message) if is_received(message.level, message.kind) => {
                kept.resize(kept.len().next_multiple_of(ALIGN), 0);
                kept.extend_from_slice(message.whole);
            }
            _ => left_out = true,
        }
    }
    // The kernel counts what aligns the last message, too, where there is room.
    kept.resize(kept.len().next_multiple_of(ALIGN).min(bytes.len()), 0);
    (kept, left_out)
}

fn is_received(level: i32, kind: i32) -> bool {
    match level {
        libc::SOL_SOCKET => matches!(
            kind,
            libc::SO_TIMESTAMP
                | libc::SO_TIMESTAMPNS
                | libc::SO_TIMESTAMPING
                | libc::SO_RXQ_OVFL
                | SCM_TIMESTAMPING_OPT_STATS
                | SCM_TIMESTAMPING_PKTINFO
                | TIMESTAMP_NEW..=TIMESTAMPING_NEW
        ),
        libc::IPPROTO_IP => matches!(
            kind,
            libc::IP_PKTINFO
                | libc::IP_TTL
                | libc::IP_TOS
                | libc::IP_RECVERR
                | libc::IP_ORIGDSTADDR
                | IP_RECVFRAGSIZE
        ),
        libc::IPPROTO_IPV6 => matches!(
            kind,
            libc::IPV6_PKTINFO
                | libc::IPV6_HOPLIMIT
                | libc::IPV6_TCLASS
                | libc::IPV6_RECVERR
                | libc::IPV6_ORIGDSTADDR
                | IPV6_PATHMTU
                | IPV6_RECVFRAGSIZE
        ),
        libc::IPPROTO_UDP => kind == libc::UDP_GRO,
        libc::IPPROTO_TCP => kind == TCP_INQ,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(level: i32, kind: i32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEAD + payload.len()) as u64).to_le_bytes().to_vec();
        bytes.extend(level.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
        bytes
    }

    #[test]
    fn descriptors_and_unknown_messages_are_not_sent() {
        let ttl = message(libc::IPPROTO_IP, libc::IP_TTL, &[1, 0, 0, 0]);
        assert_eq!(check(&ttl), Ok(()));
        for (level, kind) in [
            (libc::SOL_SOCKET, libc::SCM_RIGHTS),
            (libc::IPPROTO_IP, 7),
            (99, 1),
        ] {
            let mut bytes = ttl.clone();
            bytes.extend(message(level, kind, &[0; 4]));
            assert_eq!(check(&bytes), Err(Errno::INVAL));
        }
    }

    #[test]
    fn broken_lengths_are_refused() {
        for len in [0_u64, 15, 17, u64::MAX, 1 << 32] {
            let mut bytes = message(libc::IPPROTO_IP, libc::IP_TTL, &[]);
            bytes[..8].copy_from_slice(&len.to_le_bytes());
            assert_eq!(check(&bytes), Err(Errno::INVAL), "{len}");
        }
    }

    #[test]
    fn only_known_messages_are_passed_on() {
        let known = message(libc::IPPROTO_IP, libc::IP_TTL, &[64, 0, 0, 0]);
        let mut bytes = message(libc::SOL_SOCKET, libc::SCM_RIGHTS, &[3, 0, 0, 0]);
        bytes.extend(&known);
        let (kept, left_out) = filter(&bytes);
        assert_eq!((&kept[..], left_out), (&known[..], true));
        let (kept, left_out) = filter(&known);
        assert_eq!((&kept[..], left_out), (&known[..], false));
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_nothing_grows(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = check(&bytes);
            prop_assert!(filter(&bytes).0.len() <= bytes.len());
        }

        #[test]
        fn known_messages_come_through_unchanged(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..30), 0..5)
        ) {
            let bytes: Vec<u8> = payloads
                .iter()
                .flat_map(|payload| message(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, payload))
                .collect();
            prop_assert_eq!(check(&bytes), Ok(()));
            let (kept, left_out) = filter(&bytes);
            prop_assert_eq!(&kept[..], &bytes[..]);
            prop_assert!(!left_out);
        }
    }
}
