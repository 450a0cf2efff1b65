//! What a host is to have: the engine's input, and the first line of its journal.

use serde::{Deserialize, Serialize};

use crate::method::{Switches, Target};
use crate::profile::Profile;

/// What a host is to have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Desired {
    /// The preset that made the profile; `rt+profile` for one that was read from a file.
    pub method: Switches,
    /// What the preset was made for; empty for a file.
    pub target: Target,
    /// Ranks, CPUs and other settings, by NIC, VM and process.
    pub profile: Profile,
}

impl Desired {
    /// A profile that was read from a file.
    pub fn of_file(profile: Profile) -> Self {
        Self {
            method: Switches::RT_PROFILE,
            target: Target::default(),
            profile,
        }
    }

    /// Whether it may take the place of another that is in force: it does not by accident. What a
    /// caller asked for by another name is for that caller to undo.
    pub(crate) fn may_follow(&self, earlier: &Self) -> bool {
        self.method == earlier.method || (self.method.profile && earlier.method.profile)
    }
}
