//! Keeps a file in force while VMs, cards and CPUs come and go.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use steadyvm_fault::{At, Fault};
use steadyvm_host::watcher::{Concern, Event, Events};
use steadyvm_host::{HostControl, HostError, Status, Undone};
use steadyvm_sched::process::ProcessId;

use crate::bounds;
use crate::checks::Checker;
use crate::control::Control;
use crate::drift::{Drift, now_unix_s};
use crate::error::Result;
use crate::pace::Pace;
use crate::peers::{self, Actor, Held, Role};
use crate::site::Site;
use crate::source::Source;

/// What a watch says while it runs.
pub trait Told {
    /// The host is as the file says, as far as it can be.
    fn ready(&self);
    /// Something happened, in a sentence.
    fn say(&self, text: &str);
}

/// Keeps a file in force until a signal ends it (SIGTERM, SIGINT).
///
/// # Errors
/// A file that is wrong from the start, another watch that runs, a host that tells no events.
pub fn run(source: &Source, control: &Control, told: &dyn Told) -> Result<()> {
    // Before the first look, so that nothing that happens during it is missed.
    let mut events =
        Events::open(|text| told.say(text)).cannot("listen for events of this host")?;
    let host = control.open_as(Actor::Keeper);
    let site = Site::read(source)?;
    let directory = control.directory.as_path();
    let _only_one = only_one(directory, source)?;
    let drift = Drift::read(directory);
    let noted = drift.clone();
    let mut watch = Watch {
        source,
        host,
        directory,
        site,
        drift,
        noted,
        kept_off: None,
        trouble: String::new(),
        told,
        checker: Checker::new(directory),
    };
    // Rule: hear of all that concerns a profile before the look at the host, so that each thread is found by one or the other.
    let mut concern = Concern::of(&watch.site.parsed.profile);
    events.hear(&concern);
    // A file that is wrong from the start is the caller's to mend; later on the last good one counts. What this host does
    // not have yet, as a card at boot, may come.
    watch.first();
    told.ready();
    let mut reading = Reading::default();
    let mut pace = Pace::new(Instant::now());
    loop {
        let now = Instant::now();
        let wait = pace.wait(now).min(reading.wait());
        let wait = wait.min(watch.checker.wait(now));
        let happened = events
            .wait(wait, &mut concern)
            .cannot("wait for events of this host")?;
        if happened.contains(&Event::End) {
            return Ok(());
        }
        if happened.contains(&Event::Reload) && watch.reload() {
            concern.follow(&watch.site.parsed.profile);
            events.hear(&concern);
        }
        reading.is_wanted |= happened.contains(&Event::VmUnknown);
        if reading.finds_new(|| watch.site.reread_drop_ins(source)) {
            watch.forget_bounds();
            concern.follow(&watch.site.parsed.profile);
            events.hear(&concern);
            pace.note(Event::VmCreated, Instant::now());
        }
        watch.check();
        for event in happened {
            pace.note(event, Instant::now());
        }
        if pace.take(Instant::now()) {
            if !watch.may_act() {
                continue;
            }
            if watch.reread() {
                concern.follow(&watch.site.parsed.profile);
                events.hear(&concern);
            }
            watch.look();
            if let Some(next) = watch.site.next_try() {
                pace.ask(next);
            }
            pace.looked(Instant::now());
        }
    }
}

/// Takes back what a watch kept in force. Where an undo holds already, this finds nothing.
///
/// # Errors
/// Somebody else acts, or the journal cannot be read.
pub fn undo_at_stop(control: &Control) -> Result<Undone> {
    let undone = control.open_as(Actor::Person).undo_profile()?;
    let directory = control.directory.as_path();
    bounds::forget(directory).at("remove a file of", directory)?;
    Ok(undone)
}

/// A watch at work.
struct Watch<'w> {
    source: &'w Source,
    host: HostControl,
    directory: &'w Path,
    site: Site,
    drift: Drift,
    /// What of it is written down.
    noted: Drift,
    /// Who keeps it off, which is said once.
    kept_off: Option<String>,
    /// What kept it from bringing the host up to date the last time, which is said once.
    trouble: String,
    told: &'w dyn Told,
    /// Of the bounds of its services.
    checker: Checker,
}

impl Watch<'_> {
    /// The first look. What it sets had not drifted; what it cannot set has.
    fn first(&mut self) {
        if !self.may_act() {
            return;
        }
        let before = std::mem::take(&mut self.drift);
        self.bring_up_to_date();
        let first = std::mem::replace(&mut self.drift, before);
        self.drift
            .see(&first.open.into_keys().collect(), now_unix_s());
        self.note();
    }

    /// Brings the host up to date once.
    fn look(&mut self) {
        self.bring_up_to_date();
        self.note();
    }

    /// Follows the requests of the services that have a bound, on the threads that there are now.
    fn follow(&mut self) {
        let (planned, profile) = (self.site.checked(), &self.site.parsed.profile);
        if let Some(why) = self.checker.follow(planned, profile, self.host.machine()) {
            self.told.say(&why);
        }
    }

    /// Says which bounds are broken.
    fn check(&mut self) {
        for sentence in self.checker.look(Instant::now()) {
            self.told.say(&sentence);
        }
    }

    /// Reads the owner's file again. Whether it is another one.
    fn reload(&mut self) -> bool {
        match Site::read(self.source) {
            Ok(new) => {
                self.site.replace(new);
                self.forget_bounds();
                true
            }
            Err(error) => {
                let text = format!("the file stays as it was read before: {error}");
                self.told.say(&text);
                false
            }
        }
    }

    /// Reads the files beside the owner's again. Whether they have changed.
    fn reread(&mut self) -> bool {
        let reread = self.site.reread_drop_ins(self.source);
        let is_new = reread.unwrap_or_else(|error| {
            let text = format!("VMs stay as they were described before: {error}");
            self.told.say(&text);
            false
        });
        if is_new {
            self.forget_bounds();
        }
        is_new
    }

    /// What was measured was beside other bounds.
    fn forget_bounds(&self) {
        if let Err(error) = bounds::forget(self.directory) {
            let text = format!("cannot forget what was measured before: {error}");
            self.told.say(&text);
        }
    }

    /// Writes down what did not hold, if that has changed.
    fn note(&mut self) {
        if self.drift == self.noted {
            return;
        }
        match self.drift.write(self.directory) {
            Ok(()) => self.noted.clone_from(&self.drift),
            Err(error) => {
                let text = format!("cannot write down what did not hold: {error}");
                self.told.say(&text);
            }
        }
    }

    fn bring_up_to_date(&mut self) {
        let host = &self.host;
        let what_drifted = || host.show().map(|status| drifted(&status));
        match self.site.reconcile(host) {
            Ok(done) => {
                for sentence in done.news() {
                    self.told.say(&sentence);
                }
                self.trouble.clear();
                let left = if done.faults().is_empty() {
                    BTreeSet::new()
                } else {
                    what_drifted().unwrap_or_default()
                };
                self.drift.see_mended(&done.made(), &left, now_unix_s());
            }
            Err(error) => {
                let error = format!("cannot bring this host up to date: {error}");
                if self.trouble != error {
                    self.told.say(&error);
                }
                self.trouble = error;
                if let Ok(drifted) = what_drifted() {
                    self.drift.see(&drifted, now_unix_s());
                }
            }
        }
        self.follow();
    }

    /// Whether nobody keeps the watch off.
    fn may_act(&mut self) -> bool {
        let found = peers::ask(self.directory, Actor::Keeper).err();
        let found = found.map(|why| why.to_string());
        if found != self.kept_off {
            match &found {
                Some(why) => self.told.say(&format!("keeping off: {why}")),
                None => self.told.say("going on"),
            }
            self.kept_off.clone_from(&found);
        }
        found.is_none()
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
fn only_one(directory: &Path, source: &Source) -> Result<Held> {
    let own =
        ProcessId::own().ok_or_else(|| Fault::machine("/proc has no word of this process", ""))?;
    let what = peers::watched_name(&source.file);
    let held = peers::hold(directory, Role::Watch, own, &what);
    let held = held.at("cannot write to", directory)?;
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

/// What does not hold, or is wanted and not in force.
fn drifted(status: &Status) -> BTreeSet<String> {
    let settings = status.settings.iter();
    let drifted = settings.filter(|setting| !setting.holds);
    let drifted = drifted.map(|setting| setting.subject.clone());
    drifted.chain(status.pending.iter().cloned()).collect()
}
