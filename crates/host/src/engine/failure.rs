//! A group that could not be served.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::planner::{Group, Step};

/// A group that could not be served, and is as it was before the attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Whose settings are missing.
    pub group: Group,
    /// Why, and what to do.
    pub error: String,
    /// The setting that the kernel refused; none if the group could not be planned, as without its card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

impl Failure {
    /// Whether one of these steps is the one that failed: trying the group again is trying the same.
    pub(crate) fn is_about(&self, steps: &[Step]) -> bool {
        let mut steps = steps.iter().filter(|step| step.group == self.group);
        self.subject
            .as_ref()
            .is_some_and(|subject| steps.any(|step| step.change.subject() == *subject))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.group, self.error)
    }
}
