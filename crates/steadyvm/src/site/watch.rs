//! `steadyvm watch`: keeps a file in force while VMs, cards and CPUs come and go.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};

use super::events::{Event, Events};
use super::pace::Pace;
use super::{FileArgs, Site};
use crate::host::ControlArgs;

/// Keep a steadyvm.toml in force: bring the host up to date as VMs, cards and CPUs come and go.
///
/// Runs in the foreground, under systemd as steadyvm.service. It acts on KVM's own events, on link and
/// CPU changes, and every 30 seconds; each time it looks for other VMs in the files beside (steadyvm.d).
/// SIGHUP reads the file again; SIGTERM ends it, and what it has set stays in force unless
/// --undo-at-stop is given. If it is killed, what it has set stays too; started again, it goes on from
/// the journal.
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
    // Before the first look, so that nothing that happens during it is missed.
    let mut events = Events::open().context("cannot listen for events of this host")?;
    let control = args.control.open();
    let mut site = Site::read(&args.file)?;
    // A file that is wrong from the start is the caller's to mend; later on the last good one counts.
    site.reconcile(&control)?.log();
    ready();
    let mut pace = Pace::new(Instant::now());
    loop {
        let happened = events.wait(pace.wait(Instant::now()))?;
        if happened.contains(&Event::End) {
            break;
        }
        if happened.contains(&Event::Reload) {
            match Site::read(&args.file) {
                Ok(new) => site = new,
                Err(error) => log(&format!("the file stays as it was read before: {error:#}")),
            }
        }
        for event in happened {
            pace.note(event, Instant::now());
        }
        if pace.take(Instant::now()) {
            if let Err(error) = site.reread_drop_ins(&args.file) {
                log(&format!(
                    "VMs stay as they were described before: {error:#}"
                ));
            }
            match site.reconcile(&control) {
                Ok(done) => done.log(),
                Err(error) => log(&format!("cannot bring this host up to date: {error:#}")),
            }
        }
    }
    if args.undo_at_stop {
        let undone = control.undo_profile()?;
        log(&undone.summary());
        if !undone.failed.is_empty() {
            return Ok(ExitCode::from(3));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Tells systemd that the host is as the file says (`sd_notify(3)`); without systemd, nobody.
fn ready() {
    if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
        log(&format!("cannot tell systemd that it is ready: {error}"));
    }
}

pub(super) fn log(text: &str) {
    eprintln!("steadyvm: {text}");
}
