//! A planned change: the change, why, and whether it must succeed.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::group::Group;
use crate::settings::{Change, ChangeOf, File, Form, Machine};

/// A planned or made change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What is changed.
    #[serde(flatten)]
    pub change: Change,
    /// Why.
    pub why: String,
    /// Whose setting it is.
    #[serde(default, skip_serializing_if = "Group::is_host")]
    pub group: Group,
    /// Whether applying fails without it. Others are skipped where the kernel refuses.
    pub required: bool,
    /// Since when it is in force, in seconds after 1970; none if it is only planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_unix_s: Option<u64>,
}

impl Step {
    /// A step without which applying fails.
    pub fn required(change: impl Into<Change>, why: impl Into<String>) -> Self {
        Self {
            change: change.into(),
            why: why.into(),
            group: Group::Host,
            required: true,
            since_unix_s: None,
        }
    }

    /// A file's value, without which applying fails. None where the kernel has no such file.
    pub fn file(machine: &Machine, path: String, form: Form, new: &str, why: &str) -> Option<Self> {
        let old = machine.tree.read(&path).ok()?.trim().to_owned();
        let change = ChangeOf {
            setting: File::new(machine, path, form),
            old,
            new: new.to_owned(),
        };
        Some(Self::required(change, why))
    }

    /// A step that is skipped where the kernel refuses it.
    pub fn optional(change: impl Into<Change>, why: impl Into<String>) -> Self {
        Self {
            required: false,
            ..Self::required(change, why)
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, {}", self.change, self.why)
    }
}
