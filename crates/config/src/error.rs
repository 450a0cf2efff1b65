//! What is wrong with a file.

use std::fmt;

use serde::de;

use crate::Place;

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Where; none where no line is at fault.
    pub place: Option<Place>,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Error {
    /// At a place.
    pub fn new(place: Place, message: impl Into<String>) -> Self {
        Self {
            place: Some(place),
            message: message.into(),
        }
    }

    /// The same, at this place if it has none.
    pub(crate) fn or_at(mut self, place: impl FnOnce() -> Place) -> Self {
        self.place.get_or_insert_with(place);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.message),
            None => write!(f, "the file: {}", self.message),
        }
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self {
            place: None,
            message: message.to_string(),
        }
    }
}
