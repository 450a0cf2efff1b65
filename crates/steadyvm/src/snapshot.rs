//! `steadyvm status --snapshot`: all scheduling state of this host that steadyvm can change.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use steadyvm_host::{HostControl, HostError, Snapshot};

use steadyvm_cli::output;

/// Prints it, or what differs from an earlier one; exit code 1 if anything does.
pub fn run(control: &HostControl, earlier: Option<&Path>) -> Result<ExitCode> {
    let now = control.snapshot()?;
    let Some(path) = earlier else {
        output::json(&now)?;
        return Ok(ExitCode::SUCCESS);
    };
    let earlier = read_snapshot(path)?;
    let differences = now.differences(&earlier);
    for line in &differences {
        output::line(line)?;
    }
    Ok(if differences.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn read_snapshot(path: &Path) -> Result<Snapshot, HostError> {
    let bad = |what: String| HostError::BadInput {
        what,
        fix: "name a file written by `steadyvm status --snapshot > FILE`".into(),
    };
    let text = fs::read_to_string(path)
        .map_err(|error| bad(format!("cannot read {}: {error}", path.display())))?;
    serde_json::from_str(&text)
        .map_err(|error| bad(format!("{} is no snapshot: {error}", path.display())))
}
