//! The door to this crate: the engine, for methods and for profiles of a file.

use std::path::PathBuf;
use std::time::Duration;

use crate::engine::{
    DEFAULT_STATE_DIRECTORY, Desired, Engine, Failure, MayChange, Plan, Report, Snapshot, Status,
};
use crate::error::HostError;
use crate::method::{Switches, Target};
use crate::planner::preset;
use crate::profile::Profile;
use crate::settings::Machine;
use crate::undone::Undone;

/// A host under steadyvm's control, and the journal of what is in force on it.
#[derive(Clone)]
pub struct HostControl {
    engine: Engine,
}

impl HostControl {
    /// A host, with its journal in a directory.
    pub fn new(machine: Machine, state_directory: impl Into<PathBuf>) -> Self {
        Self::of(Engine::new(machine, state_directory))
    }

    /// The running host, with its journal in [`DEFAULT_STATE_DIRECTORY`].
    pub fn real() -> Self {
        Self::new(Machine::real(), DEFAULT_STATE_DIRECTORY)
    }

    /// By an engine.
    pub fn of(engine: Engine) -> Self {
        Self { engine }
    }

    /// How long to wait for another process that changes the host.
    #[must_use]
    pub fn waiting(self, wait: Duration) -> Self {
        Self::of(self.engine.waiting(wait))
    }

    /// Asks before every change, under the lock of the machine: who acts on the host knows of each other so.
    #[must_use]
    pub fn only_if(self, may_change: MayChange) -> Self {
        Self::of(self.engine.only_if(may_change))
    }

    /// The host.
    pub fn machine(&self) -> &Machine {
        self.engine.machine()
    }

    /// What a method would change. Threads that a step starts are not among it yet. Reads only.
    pub fn plan(&self, target: &Target, method: impl Into<Switches>) -> Result<Plan, HostError> {
        self.engine.plan(&self.desired_of(target, method.into())?)
    }

    /// Puts a method in force, or brings the one in force up to date: see [`Engine::reconcile`].
    pub fn apply(&self, target: &Target, method: impl Into<Switches>) -> Result<Report, HostError> {
        self.engine
            .reconcile(&self.desired_of(target, method.into())?)
    }

    /// What applying a profile would change. Reads only.
    ///
    /// # Errors
    /// As of [`HostControl::apply_profile`], but for what only trying can show.
    pub fn plan_profile(&self, profile: &Profile) -> Result<Plan, HostError> {
        self.engine.plan(&Desired::of_file(profile.clone()))
    }

    /// What [`HostControl::reconcile`] would change. Reads only.
    ///
    /// # Errors
    /// As of it, but for what only trying can show.
    pub fn plan_desired(&self, desired: &Desired) -> Result<Plan, HostError> {
        self.engine.plan(desired)
    }

    /// Puts a profile in force, or brings the one in force up to date: see [`Engine::reconcile`].
    pub fn apply_profile(&self, profile: &Profile) -> Result<Report, HostError> {
        self.engine.reconcile(&Desired::of_file(profile.clone()))
    }

    /// What [`HostControl::apply_profile_each`] would change. Reads only.
    ///
    /// # Errors
    /// As of [`Engine::plan_each`].
    pub fn plan_profile_each(&self, profile: &Profile) -> Result<Plan, HostError> {
        self.engine.plan_each(&Desired::of_file(profile.clone()))
    }

    /// Puts a profile in force group by group: see [`Engine::reconcile_each`].
    pub fn apply_profile_each(
        &self,
        profile: &Profile,
        held_off: &[Failure],
    ) -> Result<Report, HostError> {
        let desired = Desired::of_file(profile.clone());
        self.engine.reconcile_each(&desired, held_off)
    }

    /// What is to be in force in this boot, as it was asked for; none if nothing is.
    ///
    /// # Errors
    /// A journal that cannot be read.
    pub fn desired_in_force(&self) -> Result<Option<Desired>, HostError> {
        self.engine.desired()
    }

    /// Brings the host to a desired state: see [`Engine::reconcile`].
    pub fn reconcile(&self, desired: &Desired) -> Result<Report, HostError> {
        self.engine.reconcile(desired)
    }

    /// Brings the host to a desired state group by group: see [`Engine::reconcile_each`].
    pub fn reconcile_each(&self, desired: &Desired) -> Result<Report, HostError> {
        self.engine.reconcile_each(desired, &[])
    }

    /// Takes the profile back. Nothing in force is no error.
    ///
    /// # Errors
    /// A method that is no profile is in force.
    pub fn undo_profile(&self) -> Result<Undone, HostError> {
        self.engine.undo_if(|journal| {
            let method = journal.header.desired.method;
            if method.profile {
                return Ok(());
            }
            Err(HostError::BadInput {
                what: format!("no network profile is in force, but method {method}"),
                fix: "run `steadyvm undo` to take that back".into(),
            })
        })
    }

    /// Takes back whatever is in force. Nothing in force is no error.
    pub fn undo(&self) -> Result<Undone, HostError> {
        self.engine.undo()
    }

    /// Drops the journal without restoring anything: for settings that can never be restored.
    pub fn forget(&self) -> Result<(), HostError> {
        self.engine.forget()
    }

    /// What is in force. Needs no lock and changes nothing.
    pub fn show(&self) -> Result<Status, HostError> {
        self.engine.status()
    }

    /// A comparable dump of all host state that this crate can change. Reads only.
    pub fn snapshot(&self) -> Result<Snapshot, HostError> {
        Snapshot::take(self.machine())
    }

    /// What a host with a method is to have. Reads only.
    ///
    /// # Errors
    /// A target that makes no sense, a kernel that lacks what the method needs.
    pub fn desired_of(&self, target: &Target, method: Switches) -> Result<Desired, HostError> {
        Ok(Desired {
            method,
            target: target.clone(),
            profile: preset::profile(self.machine(), target, method)?,
        })
    }
}
