//! Where a value was written.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// A place in a file. Of a value that was read from JSON: none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// What the file is called in messages; empty where the caller names it.
    pub file: String,
    /// From 1; 0: none.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
}

/// A value and its place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Where it was written; of a table its header.
    pub place: Place,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.file.is_empty() { "" } else { " " };
        let (file, line, column) = (&self.file, self.line, self.column);
        write!(f, "{file}{separator}line {line} column {column}")
    }
}

impl<T> Deref for Placed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// What a [`Placed`] asks for. The reader of this crate gives the place and the value; those of other formats take it for
/// a wrapper, and give the value.
pub(crate) const PLACED: &str = "steadyvm_config::Placed";

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Placed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Parts<T> {
            type Value = Placed<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                deserializer: D,
            ) -> Result<Placed<T>, D::Error> {
                T::deserialize(deserializer).map(|value| Placed {
                    value,
                    place: Place::default(),
                })
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut parts: A) -> Result<Placed<T>, A::Error> {
                let missing = || de::Error::custom("a place has a file, a line and a column");
                let file = parts.next_element()?.ok_or_else(missing)?;
                let line = parts.next_element()?.ok_or_else(missing)?;
                let column = parts.next_element()?.ok_or_else(missing)?;
                let value = parts.next_element()?.ok_or_else(missing)?;
                let place = Place { file, line, column };
                Ok(Placed { value, place })
            }
        }

        deserializer.deserialize_newtype_struct(PLACED, Parts(PhantomData))
    }
}
