//! `steadyvm undo`: restores everything that any verb has set.

use std::process::ExitCode;

use anyhow::Result;

use crate::host::{ControlArgs, report_undone};

/// Restore every setting that `apply`, `watch`, `host apply` or `net apply` has changed.
///
/// What somebody else has changed since is left as it is, and named.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    control: ControlArgs,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    report_undone(&args.control.open().undo()?, args.control.json)
}
