//! Short names of the kernel: threads, devices, interrupts.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// How many bytes of a name are kept. Thread and device names have 15 at most.
const LENGTH: usize = 24;

/// A name, cut after 24 bytes; a plain value, because there are several in every event.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name([u8; LENGTH]);

impl Name {
    /// The bytes up to the first zero.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut kept = [0; LENGTH];
        let until_zero = bytes.iter().take_while(|byte| **byte != 0);
        for (to, from) in kept.iter_mut().zip(until_zero) {
            *to = *from;
        }
        Self(kept)
    }

    fn bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|byte| *byte == 0);
        &self.0[..end.unwrap_or(LENGTH)]
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// What follows `prefix`, if the name starts with it.
    pub fn after(&self, prefix: &str) -> Option<&str> {
        str::from_utf8(self.bytes()).ok()?.strip_prefix(prefix)
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self::from_bytes(text.as_bytes())
    }
}

impl fmt::Display for Name {
    /// What is no UTF-8, and control characters, which could move a terminal's cursor, are
    /// replaced.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy(self.bytes());
        let printable = |letter: char| {
            if letter.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                letter
            }
        };
        formatter.pad(&text.chars().map(printable).collect::<String>())
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(text.as_str().into())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.to_string())
    }
}
