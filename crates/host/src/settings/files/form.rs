//! The forms of values in files.

use serde::{Deserialize, Serialize};

/// How a file's value is compared with what was written: the kernel prints numbers its own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// As text, without white space at the ends.
    Text,
    /// As a CPU mask.
    CpuMask,
    /// As one of several words, of which the kernel shows all, and the one in force in brackets.
    Choice,
}
