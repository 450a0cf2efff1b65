//! What the command lines of both programs share: their texts, their output, and how a run was called.
#![forbid(unsafe_code)]

pub mod build;
pub mod command;
pub mod directory;
pub mod generate;
pub mod help;
pub mod machine;
pub mod markdown;
pub mod output;
