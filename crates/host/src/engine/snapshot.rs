//! A comparable dump of all host state that this crate can change.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::HostError;
use crate::settings::{self, Entries, Machine};

/// The host's settings at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The version of the format.
    pub schema_version: u32,
    /// By kind: each subject that the host has, and its value.
    pub settings: BTreeMap<String, Entries>,
}

impl Snapshot {
    /// Reads a host.
    pub fn take(machine: &Machine) -> Result<Self, HostError> {
        Ok(Self {
            schema_version: 2,
            settings: settings::snapshot(machine)?,
        })
    }

    /// What differs from an earlier snapshot, a line each. What is in only one of the two is left
    /// out: threads and devices come and go.
    pub fn differences(&self, earlier: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for (kind, entries) in &self.settings {
            for (subject, now) in entries {
                let before = earlier.settings.get(kind);
                let old = before.and_then(|entries| entries.get(subject));
                if let Some(old) = old.filter(|old| *old != now) {
                    found.push(format!("{kind} of {subject}: {old} -> {now}"));
                }
            }
        }
        found
    }
}
