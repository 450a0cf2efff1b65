//! How much others send.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How much the low-priority endpoints send.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Interference {
    /// Nothing.
    #[default]
    Base,
    /// One of them sends.
    Light,
    /// Two of them send.
    Medium,
    /// All three send.
    Heavy,
}

impl Interference {
    /// All of them, in ascending order; the first is what the others are compared with.
    pub const ALL: [Self; 4] = [Self::Base, Self::Light, Self::Medium, Self::Heavy];

    /// The paper's word for it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Base => "Base",
            Self::Light => "Light",
            Self::Medium => "Medium",
            Self::Heavy => "Heavy",
        }
    }

    /// The level's name in files.
    pub fn key(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Light => "light",
            Self::Medium => "medium",
            Self::Heavy => "heavy",
        }
    }

    /// How many of the low-priority endpoints send. The paper has as many on each of three cores.
    pub fn senders(self) -> usize {
        match self {
            Self::Base => 0,
            Self::Light => 1,
            Self::Medium => 2,
            Self::Heavy => 3,
        }
    }
}

impl fmt::Display for Interference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.title())
    }
}
