//! The part of ASN.1's Basic Encoding Rules that Sampled Values and GOOSE use: tags of one byte, definite lengths.
//!
//! The crates for ASN.1 read DER, which refuses lengths that others' publishers write, or bring a framework of parsers.

/// Bytes that are no frame of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The frame ends within a field.
    #[error("the frame ends within {0}")]
    Cut(&'static str),
    /// Another field stands there.
    #[error("{0} is not where it has to be")]
    Missing(&'static str),
    /// A value that cannot be one.
    #[error("{0} has no such value")]
    Value(&'static str),
}

/// The longest length that is read: beyond it, there is no Ethernet frame.
const MOST_LENGTH_BYTES: usize = 2;

/// Appends a field with a value.
pub(super) fn put(bytes: &mut Vec<u8>, tag: u8, value: &[u8]) {
    bytes.push(tag);
    match value.len() {
        short @ 0..=0x7f => bytes.push(short as u8),
        medium @ 0x80..=0xff => bytes.extend([0x81, medium as u8]),
        long => {
            bytes.push(0x82);
            bytes.extend((long as u16).to_be_bytes());
        }
    }
    bytes.extend(value);
}

/// Appends a whole number as `INTEGER`: as short as it goes, with a zero before a leading one.
pub(super) fn put_unsigned(bytes: &mut Vec<u8>, tag: u8, value: u32) {
    let all = value.to_be_bytes();
    let zeros = all.iter().take(3).take_while(|byte| **byte == 0).count();
    let mut short = all[zeros..].to_vec();
    if short[0] & 0x80 != 0 {
        short.insert(0, 0);
    }
    put(bytes, tag, &short);
}

/// Fields one after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    pub fn of(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    /// The next field with its tag; none at the end.
    fn next(&mut self, what: &'static str) -> Result<Option<(u8, &'b [u8])>, Malformed> {
        let [tag, length, rest @ ..] = self.0 else {
            return match self.0 {
                [] => Ok(None),
                _ => Err(Malformed::Cut(what)),
            };
        };
        let (length, rest) = if *length < 0x80 {
            (usize::from(*length), rest)
        } else {
            let count = usize::from(*length & 0x7f);
            let (digits, rest) = rest.split_at_checked(count).ok_or(Malformed::Cut(what))?;
            // 0x80 is the indefinite length, which no publisher may use.
            if !(1..=MOST_LENGTH_BYTES).contains(&count) {
                return Err(Malformed::Value(what));
            }
            let length = digits
                .iter()
                .fold(0, |sum, digit| sum << 8 | usize::from(*digit));
            (length, rest)
        };
        let (value, rest) = rest.split_at_checked(length).ok_or(Malformed::Cut(what))?;
        self.0 = rest;
        Ok(Some((*tag, value)))
    }

    /// The field with this tag; optional ones before it are passed over.
    pub fn find(&mut self, tag: u8, what: &'static str) -> Result<&'b [u8], Malformed> {
        while let Some((found, value)) = self.next(what)? {
            if found == tag {
                return Ok(value);
            }
        }
        Err(Malformed::Missing(what))
    }
}

/// A whole number of a field, of four bytes and a sign at most.
pub(super) fn unsigned(value: &[u8], what: &'static str) -> Result<u32, Malformed> {
    let digits = match value {
        [0, rest @ ..] if rest.len() == 4 => rest,
        all if (1..=4).contains(&all.len()) => all,
        _ => return Err(Malformed::Value(what)),
    };
    Ok(digits
        .iter()
        .fold(0, |sum, digit| sum << 8 | u32::from(*digit)))
}

/// The text of a field, in ASCII.
pub(super) fn text<'b>(value: &'b [u8], what: &'static str) -> Result<&'b str, Malformed> {
    let is_visible = value.iter().all(|byte| (0x20..0x7f).contains(byte));
    let text = std::str::from_utf8(value).ok().filter(|_| is_visible);
    text.ok_or(Malformed::Value(what))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lengths_of_every_form_are_read() {
        for length in [0, 1, 0x7f, 0x80, 0xff, 0x100, 1400] {
            let mut bytes = Vec::new();
            put(&mut bytes, 0x87, &vec![7; length]);
            let value = Fields::of(&bytes).find(0x87, "it").unwrap();
            assert_eq!(value.len(), length);
        }
        // Not the shortest form, which BER allows.
        let value = Fields::of(&[0x80, 0x82, 0, 1, 9]).find(0x80, "it");
        assert_eq!(value, Ok(&[9][..]));
        for (bytes, error) in [
            (&[0x80, 0x80, 0][..], Malformed::Value("it")),
            (&[0x80, 0x83, 0, 0, 1, 9], Malformed::Value("it")),
            (&[0x80, 2, 9], Malformed::Cut("it")),
            (&[0x80], Malformed::Cut("it")),
            (&[0x81, 1, 9], Malformed::Missing("it")),
        ] {
            assert_eq!(Fields::of(bytes).find(0x80, "it"), Err(error), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn a_number_is_read_as_it_is_written(number in any::<u32>(), shift in 0_u32..32) {
            let number = number >> shift;
            let mut bytes = Vec::new();
            put_unsigned(&mut bytes, 0x85, number);
            prop_assert!(bytes[2] & 0x80 == 0, "no negative one");
            let value = Fields::of(&bytes).find(0x85, "it").unwrap();
            prop_assert_eq!(unsigned(value, "it"), Ok(number));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), tag in any::<u8>()) {
            let found = Fields::of(&bytes).find(tag, "it");
            prop_assert!(found.is_err() || found.unwrap().len() < bytes.len());
            let _ = (unsigned(&bytes, "it"), text(&bytes, "it"));
        }
    }
}
