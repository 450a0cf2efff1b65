//! What is in force, and whether it still holds.

use serde::{Deserialize, Serialize};

use super::desired::Desired;
use super::failure::Failure;
use super::reconcile::{self, Engine};
use crate::error::HostError;
use crate::method::Switches;
use crate::planner::Step;
use crate::profile::Profile;
use crate::settings::demux::DemuxState;
use crate::ways::{PacketWay, ways};

/// What is in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Whether anything is, or may be.
    pub state: State,
    /// The method, if one was applied.
    pub method: Option<Switches>,
    /// Since when, in seconds after 1970.
    pub applied_unix_s: Option<u64>,
    /// The CPU that is dedicated, if one is.
    pub dedicated_cpu: Option<usize>,
    /// The profile that is wanted, if one was applied.
    pub profile: Option<Profile>,
    /// What early demultiplexing has counted and knows, if it is in force.
    pub demux: Option<DemuxState>,
    /// The recorded settings.
    pub settings: Vec<Setting>,
    /// What is wanted and neither in force nor recorded: of threads and devices that came later. The
    /// next apply sets it.
    pub pending: Vec<String>,
    /// Threads that may run on the dedicated CPU without being meant to: those that were started
    /// later by the kernel, or moved there by someone.
    pub strays: Vec<String>,
    /// What the kernel refused, and the host does without.
    pub skipped: Vec<String>,
    /// The groups that could not be served when the host was brought up to date last.
    #[serde(default)]
    pub failed: Vec<Failure>,
    /// The way of each VM's packets, and why.
    #[serde(default)]
    pub packet_ways: Vec<PacketWay>,
    /// What hinders finding out what is pending.
    pub warnings: Vec<String>,
    /// Lines of the journal that cannot be read.
    pub unreadable: Vec<String>,
}

/// The state of the journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Nothing is in force.
    #[default]
    None,
    /// A method is in force.
    Applied,
    /// Applying or undoing was interrupted: some of the settings may be in force.
    Incomplete,
    /// The journal is from before a reboot: nothing of it is in force.
    BeforeReboot,
}

/// One recorded setting and what is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// What.
    pub subject: String,
    /// The thread that it is a setting of.
    pub thread: Option<u32>,
    /// The value before.
    pub old: String,
    /// The value that was set.
    pub new: String,
    /// Why.
    pub why: String,
    /// Since when, in seconds after 1970.
    pub since_unix_s: Option<u64>,
    /// The value now; none if the thread or file is gone.
    pub now: Option<String>,
    /// Whether the set value is in force.
    pub holds: bool,
}

impl Status {
    /// Whether the host is not as it was wanted: something does not hold, is pending, or was
    /// interrupted.
    pub fn has_drifted(&self) -> bool {
        let holds = self.settings.iter().all(|setting| setting.holds);
        match self.state {
            State::None | State::BeforeReboot => false,
            State::Incomplete => true,
            State::Applied => {
                !holds
                    || !self.pending.is_empty()
                    || !self.strays.is_empty()
                    || !self.failed.is_empty()
            }
        }
    }
}

impl Engine {
    /// What is in force. Needs no lock and changes nothing.
    pub fn status(&self) -> Result<Status, HostError> {
        let Some(journal) = self.journal.read()? else {
            return Ok(Status::default());
        };
        let header = &journal.header;
        let mut status = Status {
            method: Some(header.desired.method),
            applied_unix_s: Some(header.applied_unix_s),
            dedicated_cpu: header.desired.profile.dedicated_cpu,
            profile: Some(header.desired.profile.clone()),
            skipped: header.skipped.clone(),
            failed: header.failed.clone(),
            unreadable: journal.unreadable.clone(),
            ..Status::default()
        };
        if header.boot_id != self.machine.boot_id()? {
            status.state = State::BeforeReboot;
            return Ok(status);
        }
        status.state = if journal.complete {
            State::Applied
        } else {
            State::Incomplete
        };
        status.demux = self.machine.demux.state().ok().flatten();
        let settings = journal.steps.iter().map(|step| self.setting(step));
        status.settings = settings.collect();
        if journal.complete {
            self.find_pending(&header.desired, &journal.steps, &mut status);
        }
        Ok(status)
    }

    /// What the journal says is to be in force in this boot; none if nothing is.
    ///
    /// # Errors
    /// A journal that cannot be read.
    pub fn desired(&self) -> Result<Option<Desired>, HostError> {
        let Some(journal) = self.journal.read()? else {
            return Ok(None);
        };
        let is_of_this_boot = journal.header.boot_id == self.machine.boot_id()?;
        Ok(is_of_this_boot.then_some(journal.header.desired))
    }

    fn find_pending(&self, desired: &Desired, own: &[Step], status: &mut Status) {
        let wanted = match self.wanted(desired, own, false) {
            Ok(wanted) => wanted,
            Err(error) => {
                status.warnings.push(error.to_string());
                return;
            }
        };
        let failed = wanted.failed.iter();
        status
            .warnings
            .extend(failed.map(|(group, error)| format!("{group}: {error}")));
        status.packet_ways = ways(&self.machine, &desired.profile, &wanted);
        for step in reconcile::to_make(&self.machine, &wanted) {
            let is_recorded = own
                .iter()
                .any(|recorded| recorded.change.same_subject(&step.change));
            let subject = step.change.subject();
            if is_recorded || status.skipped.contains(&subject) {
                continue;
            }
            if step.required {
                status.pending.push(subject);
            } else {
                status.strays.push(subject);
            }
        }
    }

    fn setting(&self, step: &Step) -> Setting {
        let now = step.change.read(&self.machine).ok();
        Setting {
            subject: step.change.subject(),
            thread: step.change.thread(),
            old: step.change.old_text(),
            new: step.change.new_text(),
            why: step.why.clone(),
            since_unix_s: step.since_unix_s,
            holds: now.as_ref().is_some_and(|now| now.is_new),
            now: now.map(|now| now.text),
        }
    }
}
