//! `steadyvm watch`: keeps a file in force while VMs, cards and CPUs come and go.

use std::process::ExitCode;

use anyhow::Result;
use steadyvm_site::watch::{self, Told};

use crate::arguments::{ControlArgs, FileArgs};
use steadyvm_cli::output;

/// Keep a steadyvm.toml in force: bring the host up to date as VMs, cards and CPUs come and go.
///
/// It runs in the foreground, under systemd as steadyvm.service. It acts on KVM's own events, on changes of links and
/// CPUs, and every 30 seconds; each time it also reads the files in steadyvm.d. SIGHUP reads the file again. SIGTERM ends
/// it; its settings stay in force unless --undo-at-stop is given. If it is killed, its settings stay too, and the next
/// watch goes on from the journal.
///
/// A VM, a card or a file that cannot be served is reported once and tried again, at the next event that concerns it or
/// after 1 to 60 seconds; the others are served. Watch changes nothing while `steadyvm measure` runs, nor between
/// `steadyvm undo` and the next `steadyvm apply`. A second watch is refused with exit code 2. `steadyvm status` shows
/// which settings drifted, and since when.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    file: FileArgs,
    /// Restore all settings when this program is told to stop.
    #[arg(long)]
    undo_at_stop: bool,
    #[command(flatten)]
    control: ControlArgs,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let control = args.control.control();
    watch::run(&args.file.source(), &control, &Terminal)?;
    if args.undo_at_stop {
        let undone = watch::undo_at_stop(&control)?;
        Terminal.say(&undone.summary());
        if !undone.failed.is_empty() {
            return Ok(ExitCode::from(3));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Who is told: whoever reads standard error, and systemd.
pub struct Terminal;

impl Told for Terminal {
    /// By `sd_notify(3)`; without systemd, nobody.
    fn ready(&self) {
        if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
            self.say(&format!("cannot tell systemd that it is ready: {error}"));
        }
    }

    fn say(&self, text: &str) {
        output::say(&format!("steadyvm: {text}"));
    }
}
