//! `steadyvm watch`: keeps a file in force while VMs, cards and CPUs come and go.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use steadyvm_host::{HostControl, Status};

use super::drift::{Drift, now_unix_s};
use super::events::{Event, Events};
use super::pace::Pace;
use super::peers::{self, Role};
use super::{FileArgs, Site};
use crate::host::ControlArgs;
use crate::output;

/// Keep a steadyvm.toml in force: bring the host up to date as VMs, cards and CPUs come and go.
///
/// Runs in the foreground, under systemd as steadyvm.service. It acts on KVM's own events, on link and
/// CPU changes, and every 30 seconds; each time it looks for other VMs in the files beside (steadyvm.d).
/// SIGHUP reads the file again; SIGTERM ends it, and what it has set stays in force unless
/// --undo-at-stop is given. If it is killed, what it has set stays too; started again, it goes on from
/// the journal. A VM, a card or a file that cannot be served is told once and tried again, at the next
/// event that concerns it or after 1 to 60 seconds; the others are served. While `steadyvm measure` runs,
/// it keeps off. What did not hold, and since when, `steadyvm status` tells.
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
    let directory = args.control.state_directory();
    let held = peers::hold(directory, Role::Watch);
    let _held = held.with_context(|| format!("cannot write to {}", directory.display()))?;
    let mut drift = Drift::read(directory);
    let mut is_paused = false;
    // A file that is wrong from the start is the caller's to mend; later on the last good one counts. What this host does
    // not have yet, as a card at boot, may come.
    let mut trouble = String::new();
    if !peers::is_held(directory, Role::Measure) {
        look(&mut site, &control, &mut drift, &mut trouble);
    }
    ready();
    let mut pace = Pace::new(Instant::now());
    loop {
        let happened = events.wait(pace.wait(Instant::now()))?;
        if happened.contains(&Event::End) {
            break;
        }
        if happened.contains(&Event::Reload) {
            match Site::read(&args.file) {
                Ok(new) => site.replace(new),
                Err(error) => log(&format!("the file stays as it was read before: {error:#}")),
            }
        }
        for event in happened {
            pace.note(event, Instant::now());
        }
        if pace.take(Instant::now()) {
            if peers::is_held(directory, Role::Measure) {
                if !is_paused {
                    log("`steadyvm measure` runs: keeping off until its end");
                }
                is_paused = true;
                continue;
            }
            is_paused = false;
            if let Err(error) = site.reread_drop_ins(&args.file) {
                log(&format!(
                    "VMs stay as they were described before: {error:#}"
                ));
            }
            let before = drift.clone();
            look(&mut site, &control, &mut drift, &mut trouble);
            if let Some(next) = site.next_try() {
                pace.ask(next);
            }
            if drift != before
                && let Err(error) = drift.write(directory)
            {
                log(&format!("cannot write down what did not hold: {error}"));
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

/// Brings the host up to date once. `trouble` is what kept it from that the last time, which is said once.
fn look(site: &mut Site, control: &HostControl, drift: &mut Drift, trouble: &mut String) {
    let what_drifted = || control.show().map(|status| drifted(&status));
    match site.reconcile(control) {
        Ok(done) => {
            done.log();
            trouble.clear();
            let left = if done.faults().is_empty() {
                BTreeSet::new()
            } else {
                what_drifted().unwrap_or_default()
            };
            drift.see_mended(&done.made(), &left, now_unix_s());
        }
        Err(error) => {
            let error = format!("cannot bring this host up to date: {error:#}");
            if *trouble != error {
                log(&error);
            }
            *trouble = error;
            if let Ok(drifted) = what_drifted() {
                drift.see(&drifted, now_unix_s());
            }
        }
    }
}

/// What does not hold, or is wanted and not in force.
fn drifted(status: &Status) -> BTreeSet<String> {
    let settings = status.settings.iter();
    let drifted = settings.filter(|setting| !setting.holds);
    let drifted = drifted.map(|setting| setting.subject.clone());
    drifted.chain(status.pending.iter().cloned()).collect()
}

/// Tells systemd that the host is as the file says (`sd_notify(3)`); without systemd, nobody.
fn ready() {
    if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
        log(&format!("cannot tell systemd that it is ready: {error}"));
    }
}

pub(super) fn log(text: &str) {
    output::say(&format!("steadyvm: {text}"));
}
