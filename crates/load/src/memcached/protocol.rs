//! Requests and replies of memcached's text protocol.

use super::Kind;

/// The longest line of a reply that is understood; a key has 250 bytes at most.
const LONGEST_LINE: usize = 512;

/// Bytes that no server of this protocol sends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the server answered a {kind:?} with {said:?}")]
pub struct Unexpected {
    /// What was asked.
    pub kind: Kind,
    /// The beginning of the answer.
    pub said: String,
}

/// The key of a number: as many bytes as asked for, digits at its end.
pub fn key(number: u64, bytes: usize) -> String {
    format!("{number:0>bytes$}")
}

/// Adds a request for a key.
pub fn add_get(request: &mut Vec<u8>, key: &str) {
    request.extend_from_slice(format!("get {key}\r\n").as_bytes());
}

/// Adds a request to store a value of so many bytes.
pub fn add_set(request: &mut Vec<u8>, key: &str, value_bytes: usize) {
    request.extend_from_slice(format!("set {key} 0 0 {value_bytes}\r\n").as_bytes());
    request.resize(request.len() + value_bytes, b'v');
    request.extend_from_slice(b"\r\n");
}

/// How many bytes at the beginning of `received` are the whole reply to a request of this kind;
/// `None` if it is not whole yet.
///
/// # Errors
/// They are no such reply, or one that says that it failed or that the key is unknown.
pub fn reply_bytes(
    received: &[u8],
    kind: Kind,
    value_bytes: usize,
) -> Result<Option<usize>, Unexpected> {
    let unexpected = || Unexpected {
        kind,
        said: String::from_utf8_lossy(&received[..received.len().min(80)]).into_owned(),
    };
    let Some(end) = received.windows(2).position(|two| two == b"\r\n") else {
        return if received.len() > LONGEST_LINE {
            Err(unexpected())
        } else {
            Ok(None)
        };
    };
    let line = &received[..end];
    match kind {
        Kind::Set if line == b"STORED" => Ok(Some(end + 2)),
        Kind::Get if line.starts_with(b"VALUE ") => {
            let expected = format!(" {value_bytes}");
            let whole = end + 2 + value_bytes + b"\r\nEND\r\n".len();
            if !line.ends_with(expected.as_bytes()) {
                return Err(unexpected());
            }
            if received.len() < whole {
                return Ok(None);
            }
            if &received[whole - 7..whole] == b"\r\nEND\r\n" {
                Ok(Some(whole))
            } else {
                Err(unexpected())
            }
        }
        Kind::Get | Kind::Set => Err(unexpected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_have_their_size_and_requests_are_the_protocols() {
        assert_eq!(key(7, 4), "0007");
        assert_eq!(key(123, 64).len(), 64);
        let mut request = Vec::new();
        add_get(&mut request, "k");
        add_set(&mut request, "k", 3);
        assert_eq!(request, b"get k\r\nset k 0 0 3\r\nvvv\r\n");
    }

    #[test]
    fn a_reply_is_taken_when_it_is_whole() {
        let value: &[u8] = b"VALUE k 0 3\r\nv\r\r\r\nEND\r\nSTORED\r\n";
        for end in 0..value.len() {
            let whole = (end >= 23).then_some(23);
            assert_eq!(reply_bytes(&value[..end], Kind::Get, 3), Ok(whole), "{end}");
        }
        assert_eq!(reply_bytes(&value[23..], Kind::Set, 3), Ok(Some(8)));
    }

    #[test]
    fn what_is_no_such_reply_is_refused() {
        for (said, kind) in [
            (&b"END\r\n"[..], Kind::Get),
            (b"VALUE k 0 4\r\nvvvv\r\nEND\r\n", Kind::Get),
            (b"VALUE k 0 3\r\nvvv\r\nENDE\r\n", Kind::Get),
            (b"SERVER_ERROR out of memory\r\n", Kind::Set),
            (b"STORED\r\n", Kind::Get),
        ] {
            assert!(reply_bytes(said, kind, 3).is_err(), "{said:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(said: Vec<u8>, value_bytes in 0_usize..2000) {
            for kind in [Kind::Get, Kind::Set] {
                if let Ok(Some(taken)) = reply_bytes(&said, kind, value_bytes) {
                    prop_assert!(taken <= said.len());
                }
            }
        }
    }
}
