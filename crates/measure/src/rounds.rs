//! The rounds of a measurement in one boot: makes the host what each row says, and measures.

use std::fs;
use std::path::Path;
use std::time::Duration;

use steadyvm_comparison::CpuTimes;
use steadyvm_fault::{At, Fault};
use steadyvm_host::{HostControl, State, Undone};
use steadyvm_progress::{News, Observer};
use steadyvm_site::guard::{Guard, patiently};

use crate::client::{Client, Limits};
use crate::error::Result;
use crate::order;
use crate::rows::Measured;
use crate::run::Run;
use crate::states::States;
use crate::stop::Stop;

/// How long it may take to make the host what a row says: `sched_ext` is verified for minutes beside computing VCPUs.
const SETTING: Duration = Duration::from_secs(180);

/// The guard waits so much longer than the measurement itself waits for its client.
const MARGIN: Duration = Duration::from_secs(15);

/// How long the kernel may refuse a setting before a measurement ends.
const PATIENCE: Duration = Duration::from_secs(20);

/// The rounds of a measurement.
pub struct Rounds<'a> {
    pub run: &'a mut Run,
    pub client: &'a Client,
    pub control: &'a HostControl,
    pub states: &'a States,
    pub guard: &'a mut Guard,
    pub stop: &'a Stop,
    pub observer: &'a dyn Observer,
    /// How long others that change the host are waited for.
    pub patience: Duration,
    /// Where the run is kept after each round.
    pub save: Option<&'a Path>,
    /// The row that the host was made for last.
    pub set: Option<usize>,
}

/// What is in force, to tell whether others have changed it.
#[derive(PartialEq, Eq)]
struct InForce {
    state: State,
    applied_unix_s: Option<u64>,
    /// Each setting, its value, and whether it holds.
    settings: Vec<(String, String, bool)>,
}

impl Rounds<'_> {
    /// Measures all rounds that are left of this boot's rows.
    ///
    /// # Errors
    /// What went wrong; the run has all rounds before.
    pub fn measure(mut self) -> Result<()> {
        let name = format!("measure {}", self.run.load.service);
        self.observer.tell(News::Begin(name));
        for round in 0..self.run.load.rounds {
            let rows = self.states.keys().copied();
            let rows: Vec<usize> = rows
                .filter(|row| self.run.rows[*row].rounds_over <= round)
                .collect();
            if !rows.is_empty() {
                self.round(round, &rows)?;
            }
        }
        self.observer.tell(News::End);
        Ok(())
    }

    fn round(&mut self, round: u64, rows: &[usize]) -> Result<()> {
        let mut all = Vec::new();
        for (turn, place) in order::of_round(round, rows.len()).into_iter().enumerate() {
            let row = rows[place];
            self.set(row, round)?;
            all.extend(self.one(row, round, turn)?.map(|measured| (row, measured)));
        }
        // A round is one of all rows, or of none.
        if all.len() == rows.len() {
            for (row, measured) in all {
                self.run.rows[row].rounds.push(measured);
            }
        }
        for row in rows {
            self.run.rows[*row].rounds_over = round + 1;
        }
        self.save.map_or(Ok(()), |file| Ok(self.run.write(file)?))
    }

    /// Makes the host what a row says.
    fn set(&mut self, row: usize, round: u64) -> Result<()> {
        self.stop.check()?;
        self.guard.allow(SETTING + self.patience)?;
        let wanted = self.states.get(&row).and_then(Option::as_ref);
        let whose = format!("round {}, {}", round + 1, self.run.rows[row].name);
        if self.set != Some(row) {
            // Of one row into another no setting is taken over.
            let notes = self.take_back()?;
            let notes = notes.into_iter().map(|what| format!("{whose}: {what}"));
            self.run.notes.extend(notes);
        }
        self.set = Some(row);
        let Some(desired) = wanted else {
            return Ok(());
        };
        let reconcile = || self.control.reconcile_each(desired);
        let report = patiently(PATIENCE, |_| true, reconcile)?;
        let failed = report.failed.iter().map(ToString::to_string);
        let refused = report.skipped.iter().cloned().chain(failed);
        let refused = refused.map(|what| format!("{whose}: refused: {what}"));
        self.run.notes.extend(refused);
        if self.control.show()?.has_drifted() {
            let note = format!("{whose}: not all settings held");
            self.run.notes.push(note);
        }
        Ok(())
    }

    /// Takes back all that is in force; what is left of it.
    fn take_back(&self) -> Result<Vec<String>> {
        let none_failed = |undone: &Undone| undone.failed.is_empty();
        let undone = patiently(PATIENCE, none_failed, || self.control.undo())?;
        let left = undone.failed.iter().chain(&undone.postponed);
        let left: Vec<String> = left.chain(&undone.changed_by_others).cloned().collect();
        if !undone.failed.is_empty() {
            return Err(Fault::cannot("take the settings back", left.join("; ")).into());
        }
        Ok(left)
    }

    /// What is in force: since when, and each setting with whether it holds.
    fn in_force(&self) -> Result<InForce> {
        let shown = self.control.show()?;
        let settings = shown.settings.into_iter();
        Ok(InForce {
            state: shown.state,
            applied_unix_s: shown.applied_unix_s,
            settings: settings.map(|it| (it.subject, it.new, it.holds)).collect(),
        })
    }

    /// Measures a row. None if others changed the settings meanwhile.
    fn one(&mut self, row: usize, round: u64, turn: usize) -> Result<Option<Measured>> {
        let load = self.run.load.clone();
        let name = self.run.rows[row].name.clone();
        let samples = order::samples_of_round(load.samples, load.rounds, round);
        let arguments = load.client(load.seed.wrapping_add(round), samples);
        let rows = self.states.len() as u64;
        let before: u64 = (0..round)
            .map(|round| rows * order::samples_of_round(load.samples, load.rounds, round))
            .sum();
        let before = before + turn as u64 * samples;
        let mut advance = |answered: u64| {
            self.observer.tell(News::Advance {
                done: before + answered.min(samples),
                of: rows * load.samples,
                detail: format!("round {} of {}, {name}", round + 1, load.rounds),
            });
        };
        advance(0);
        let limits = Limits::of(samples, load.warmup, load.rate);
        self.guard.allow(limits.whole + MARGIN)?;
        let in_force = self.in_force()?;
        let before = cpu_times()?;
        let netrt = self
            .client
            .run(&arguments, limits, self.stop, &mut advance)?;
        let after = cpu_times()?;
        if self.in_force()? != in_force {
            self.run.notes.push(format!(
                "round {}, {name}: the settings changed while it was measured: the round is left out",
                round + 1,
            ));
            return Ok(None);
        }
        Ok(Some(Measured {
            boot: self.run.boots.len().saturating_sub(1),
            netrt,
            host_cpu_busy_fraction: after.busy_fraction_since(&before),
        }))
    }
}

fn cpu_times() -> Result<CpuTimes> {
    let text = fs::read_to_string("/proc/stat").cannot("read /proc/stat")?;
    let line = text.lines().next().unwrap_or_default();
    CpuTimes::parse(line).ok_or_else(|| {
        let what = "/proc/stat does not begin with the CPU time of all CPUs";
        Fault::machine(what, "").into()
    })
}
