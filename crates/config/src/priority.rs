//! Priorities of threads.

use std::fmt;

use serde::de::{self, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The highest FIFO priority that a file may give; 99 is the kernel's own.
pub const HIGHEST_PRIORITY: u32 = 98;

/// How a thread of the receive path is scheduled: `"normal"`, or a FIFO priority of 1 to 98.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadPriority {
    /// `SCHED_OTHER`, nice 0.
    Normal,
    /// `SCHED_FIFO`.
    Fifo(u32),
}

impl ThreadPriority {
    /// A FIFO priority.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn fifo(priority: i64) -> Result<Self, String> {
        match u32::try_from(priority) {
            Ok(priority @ 1..=HIGHEST_PRIORITY) => Ok(Self::Fifo(priority)),
            _ => Err(format!(
                "priority {priority} is not one of 1 to {HIGHEST_PRIORITY}, nor \"normal\" (99 \
                 belongs to the kernel's own threads)"
            )),
        }
    }
}

impl fmt::Display for ThreadPriority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal => formatter.write_str("normal"),
            Self::Fifo(priority) => write!(formatter, "{priority}"),
        }
    }
}

impl Serialize for ThreadPriority {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Normal => serializer.serialize_str("normal"),
            Self::Fifo(priority) => serializer.serialize_u32(*priority),
        }
    }
}

impl<'de> Deserialize<'de> for ThreadPriority {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = ThreadPriority;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(
                    formatter,
                    "a FIFO priority of 1 to {HIGHEST_PRIORITY}, or \"normal\""
                )
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<ThreadPriority, E> {
                ThreadPriority::fifo(value).map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<ThreadPriority, E> {
                self.visit_i64(value.try_into().unwrap_or(i64::MAX))
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<ThreadPriority, E> {
                match value {
                    "normal" => Ok(ThreadPriority::Normal),
                    other => Err(E::invalid_value(Unexpected::Str(other), &self)),
                }
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}
