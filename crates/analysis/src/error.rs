//! Errors of the library: what is wrong, with which value.

use crate::time::{MAX_TIME, Time};

/// A parameter that no analysis can be made of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A time that must be greater than zero is not.
    #[error("{what} is {value}: it must be greater than zero")]
    NotPositive {
        /// The parameter.
        what: &'static str,
        /// Its value.
        value: Time,
    },
    /// A time that must not be negative is.
    #[error("{what} is {value}: it must not be negative")]
    Negative {
        /// The parameter.
        what: &'static str,
        /// Its value.
        value: Time,
    },
    /// A time beyond [`MAX_TIME`].
    #[error("{what} is {value}: times go up to {MAX_TIME} (2^53) units; use a coarser unit")]
    TooLong {
        /// The parameter.
        what: &'static str,
        /// Its value.
        value: Time,
    },
    /// A parameter that must not exceed another one does.
    #[error("{what} is {value}, more than {limit_name} ({limit}): {advice}")]
    Exceeds {
        /// The parameter.
        what: &'static str,
        /// Its value.
        value: Time,
        /// The parameter that bounds it.
        limit_name: &'static str,
        /// The bound.
        limit: Time,
        /// What to do.
        advice: &'static str,
    },
    /// A count outside its range.
    #[error("{what} is {value}: it must be between {low} and {high}")]
    OutOfRange {
        /// The parameter.
        what: &'static str,
        /// Its value.
        value: Time,
        /// Smallest accepted value.
        low: Time,
        /// Largest accepted value.
        high: Time,
    },
    /// Nothing to analyse.
    #[error("{what} is empty: {advice}")]
    Empty {
        /// What is empty.
        what: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// Two settings that do not go together.
    #[error("{what}: {advice}")]
    Contradiction {
        /// The settings.
        what: String,
        /// What to do.
        advice: &'static str,
    },
}

impl Error {
    /// The message with times as `show` writes them.
    pub fn shown(&self, show: impl Fn(Time) -> String) -> String {
        match self {
            Self::NotPositive { what, value } => {
                format!("{what} is {}: it must be greater than zero", show(*value))
            }
            Self::Negative { what, value } => {
                format!("{what} is {}: it must not be negative", show(*value))
            }
            Self::Exceeds {
                what,
                value,
                limit_name,
                limit,
                advice,
            } if !what.starts_with("the number of") => format!(
                "{what} is {}, more than {limit_name} ({}): {advice}",
                show(*value),
                show(*limit)
            ),
            other => other.to_string(),
        }
    }
}

pub(crate) fn positive(what: &'static str, value: Time) -> Result<Time, Error> {
    if value <= 0 {
        Err(Error::NotPositive { what, value })
    } else {
        bounded(what, value)
    }
}

pub(crate) fn not_negative(what: &'static str, value: Time) -> Result<Time, Error> {
    if value < 0 {
        Err(Error::Negative { what, value })
    } else {
        bounded(what, value)
    }
}

fn bounded(what: &'static str, value: Time) -> Result<Time, Error> {
    if value > MAX_TIME {
        Err(Error::TooLong { what, value })
    } else {
        Ok(value)
    }
}
