//! Processes that answer a line with a line.

use std::time::Duration;
use steadyvm_lab::Result;
use steadyvm_lab::agent::Process;

/// Writes a line to such a process, as those of `steadyvm-lab load` are, and gives the line that it answers.
///
/// # Errors
/// It has ended, or does not answer in time.
pub(crate) fn ask(process: &mut Process, request: &str, patience: Duration) -> Result<String> {
    process.input(format!("{request}\n").as_bytes())?;
    process.wait_for_line("", patience)
}
