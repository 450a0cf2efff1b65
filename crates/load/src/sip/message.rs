//! The messages of a call that a proxy forwards, by RFC 3261.

use std::fmt;

/// A message that a proxy forwards from one end of a call to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Message {
    /// The caller calls.
    Invite,
    /// The callee's 180 to it.
    Ringing,
    /// The callee's 200 to it.
    Answered,
    /// The caller has the answer.
    Ack,
    /// The caller ends the call.
    Bye,
    /// The callee's 200 to that.
    Ended,
}

/// All of them, in the order of a call.
pub const MESSAGES: [Message; 6] = [
    Message::Invite,
    Message::Ringing,
    Message::Answered,
    Message::Ack,
    Message::Bye,
    Message::Ended,
];

impl fmt::Display for Message {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Invite => "INVITE",
            Self::Ringing => "180 Ringing",
            Self::Answered => "200 OK to INVITE",
            Self::Ack => "ACK",
            Self::Bye => "BYE",
            Self::Ended => "200 OK to BYE",
        })
    }
}

/// Which message of which call a datagram is. `None` for what no proxy forwards (100 Trying), for other
/// messages, and for bytes that are no SIP.
pub fn parse(datagram: &[u8]) -> Option<(Message, &str)> {
    let head = datagram.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&datagram[..head]).ok()?;
    let mut lines = head.split("\r\n");
    let first = lines.next()?;
    let (mut call, mut of) = (None, None);
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let (name, value) = (name.trim(), value.trim());
        // Section 7.3.3 of RFC 3261: i is short for Call-ID.
        if name.eq_ignore_ascii_case("call-id") || name == "i" {
            call = Some(value);
        } else if name.eq_ignore_ascii_case("cseq") {
            of = value.split_ascii_whitespace().nth(1);
        }
    }
    let message = if let Some(status) = first.strip_prefix("SIP/2.0 ") {
        match (status.get(..3)?, of?) {
            ("180", "INVITE") => Message::Ringing,
            ("200", "INVITE") => Message::Answered,
            ("200", "BYE") => Message::Ended,
            _ => return None,
        }
    } else if first.ends_with(" SIP/2.0") {
        match first.split(' ').next()? {
            "INVITE" => Message::Invite,
            "ACK" => Message::Ack,
            "BYE" => Message::Bye,
            _ => return None,
        }
    } else {
        return None;
    };
    Some((message, call?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn datagram(first: &str, method: &str) -> Vec<u8> {
        format!(
            "{first}\r\nVia: SIP/2.0/UDP 10.0.0.1\r\nCall-ID: 7-1@x\r\nCSeq: 1 {method}\r\n\r\nbody"
        )
        .into()
    }

    #[test]
    fn the_six_messages_are_told_apart() {
        let firsts = [
            ("INVITE sip:s@10.0.0.2 SIP/2.0", "INVITE"),
            ("SIP/2.0 180 Ringing", "INVITE"),
            ("SIP/2.0 200 OK", "INVITE"),
            ("ACK sip:s@10.0.0.2 SIP/2.0", "ACK"),
            ("BYE sip:s@10.0.0.2 SIP/2.0", "BYE"),
            ("SIP/2.0 200 OK", "BYE"),
        ];
        for (message, (first, method)) in MESSAGES.into_iter().zip(firsts) {
            assert_eq!(parse(&datagram(first, method)), Some((message, "7-1@x")));
        }
        for (first, method) in [
            (
                "SIP/2.0 100 trying -- your call is important to us",
                "INVITE",
            ),
            ("SIP/2.0 486 Busy", "INVITE"),
            ("OPTIONS sip:s@10.0.0.2 SIP/2.0", "OPTIONS"),
            ("GET / HTTP/1.1", "INVITE"),
        ] {
            assert_eq!(parse(&datagram(first, method)), None, "{first}");
        }
    }

    #[test]
    fn names_of_headers_have_any_case_and_a_short_form() {
        let short = b"BYE sip:s SIP/2.0\r\ni: c\r\ncseq: 2 BYE\r\n\r\n";
        assert_eq!(parse(short), Some((Message::Bye, "c")));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed(bytes in proptest::collection::vec(any::<u8>(), 0..200),
                                cut in 0usize..120) {
            let _ = parse(&bytes);
            let whole = datagram("SIP/2.0 200 OK", "BYE");
            let _ = parse(&whole[..cut.min(whole.len())]);
        }
    }
}
