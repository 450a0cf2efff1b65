//! `steadyvm watch`: keeps a file in force while VMs, cards and CPUs come and go.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use steadyvm_host::{HostControl, HostError, Status};
use steadyvm_sched::process::ProcessId;

use super::concern::Concern;
use super::drift::{Drift, now_unix_s};
use super::events::{Event, Events};
use super::pace::Pace;
use super::peers::{self, Actor, Held, Role};
use super::{FileArgs, Site};
use crate::host::ControlArgs;
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
    // Before the first look, so that nothing that happens during it is missed.
    let mut events = Events::open(log).context("cannot listen for events of this host")?;
    let control = args.control.open_as(Actor::Keeper);
    let mut site = Site::read(&args.file)?;
    let directory = args.control.state_directory();
    let _only_one = only_one(directory, &args.file)?;
    let mut drift = Drift::read(directory);
    let mut noted = drift.clone();
    let mut kept_off = None;
    // A file that is wrong from the start is the caller's to mend; later on the last good one counts. What this host does
    // not have yet, as a card at boot, may come.
    let mut trouble = String::new();
    if may_act(directory, &mut kept_off) {
        // What it sets at its start had not drifted; what it cannot set has.
        let mut first = Drift::default();
        look(&mut site, &control, &mut first, &mut trouble);
        drift.see(&first.open.into_keys().collect(), now_unix_s());
        note(&drift, &mut noted, directory);
    }
    ready();
    let mut concern = Concern::of(&site.parsed.profile);
    let mut reading = Reading::default();
    let mut pace = Pace::new(Instant::now());
    loop {
        let wait = pace.wait(Instant::now()).min(reading.wait());
        let happened = events.wait(wait, &mut concern)?;
        if happened.contains(&Event::End) {
            break;
        }
        if happened.contains(&Event::Reload) {
            match Site::read(&args.file) {
                Ok(new) => {
                    site.replace(new);
                    concern.follow(&site.parsed.profile);
                }
                Err(error) => log(&format!("the file stays as it was read before: {error:#}")),
            }
        }
        reading.is_wanted |= happened.contains(&Event::VmUnknown);
        if reading.finds_new(|| site.reread_drop_ins(&args.file)) {
            concern.follow(&site.parsed.profile);
            pace.note(Event::VmCreated, Instant::now());
        }
        for event in happened {
            pace.note(event, Instant::now());
        }
        if pace.take(Instant::now()) {
            if !may_act(directory, &mut kept_off) {
                continue;
            }
            match site.reread_drop_ins(&args.file) {
                Ok(true) => concern.follow(&site.parsed.profile),
                Ok(false) => {}
                Err(error) => log(&format!(
                    "VMs stay as they were described before: {error:#}"
                )),
            }
            look(&mut site, &control, &mut drift, &mut trouble);
            if let Some(next) = site.next_try() {
                pace.ask(next);
            }
            note(&drift, &mut noted, directory);
            pace.looked(Instant::now());
        }
    }
    if args.undo_at_stop {
        // Where an undo holds already, this finds nothing.
        let control = args.control.open_as(Actor::Person);
        let undone = control.undo_profile()?;
        log(&undone.summary());
        if !undone.failed.is_empty() {
            return Ok(ExitCode::from(3));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes down what did not hold, if that has changed.
fn note(drift: &Drift, noted: &mut Drift, directory: &Path) {
    if drift == noted {
        return;
    }
    match drift.write(directory) {
        Ok(()) => noted.clone_from(drift),
        Err(error) => log(&format!("cannot write down what did not hold: {error}")),
    }
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

/// A VM that is not named may be described by a file that came since: those are read again, a tenth of the time at most.
#[derive(Default)]
struct Reading {
    is_wanted: bool,
    not_before: Option<Instant>,
}

impl Reading {
    fn wait(&self) -> Duration {
        let now = Instant::now();
        match self.not_before {
            _ if !self.is_wanted => Duration::MAX,
            None => Duration::ZERO,
            Some(then) => then.saturating_duration_since(now),
        }
    }

    /// Whether something new was read now. What is wrong with a file, the next look tells.
    fn finds_new(&mut self, read: impl FnOnce() -> Result<bool>) -> bool {
        if !self.wait().is_zero() {
            return false;
        }
        let begun = Instant::now();
        let is_new = read().unwrap_or(false);
        let ended = Instant::now();
        self.is_wanted = false;
        self.not_before = Some(ended + 10 * (ended - begun));
        is_new
    }
}

/// Takes the role of the watch.
fn only_one(directory: &Path, file: &FileArgs) -> Result<Held> {
    let own = ProcessId::own().context("/proc has no word of this process")?;
    let what = peers::watched_name(&file.file);
    let held = peers::hold(directory, Role::Watch, own, &what);
    let held = held.with_context(|| format!("cannot write to {}", directory.display()))?;
    let Some(held) = held else {
        let other = peers::holder(directory, Role::Watch);
        let other = other.map_or_else(|| "it is not known which".to_owned(), |it| it.to_string());
        return Err(HostError::BadInput {
            what: format!("another `steadyvm watch` runs ({other})"),
            fix: "stop that one first".into(),
        }
        .into());
    };
    Ok(held)
}

/// Whether nobody keeps the watch off. Who does is said once.
fn may_act(directory: &Path, kept_off: &mut Option<String>) -> bool {
    let found = peers::ask(directory, Actor::Keeper).err();
    let found = found.map(|why| why.to_string());
    if found != *kept_off {
        match &found {
            Some(why) => log(&format!("keeping off: {why}")),
            None => log("going on"),
        }
        kept_off.clone_from(&found);
    }
    found.is_none()
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
