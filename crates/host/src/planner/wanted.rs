//! What a profile wants on a machine, group by group.

use std::collections::HashMap;

use super::group::Group;
use super::step::Step;
use super::vms::VmThreads;
use crate::error::HostError;

/// What a profile wants on a machine.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// Every setting, also those that hold already; none of a group that failed.
    pub steps: Vec<Step>,
    /// The groups that could not be planned, and why.
    pub failed: Vec<(Group, HostError)>,
    /// The VMs that it names.
    pub vms: Vec<VmThreads>,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

impl Wanted {
    /// Plans one group: all of its steps, or none of them and why. Returns what planning has found.
    pub(super) fn of_group<T>(
        &mut self,
        group: &Group,
        plan: impl FnOnce(&mut Self) -> Result<T, HostError>,
    ) -> Option<T> {
        let first = self.steps.len();
        match plan(self) {
            Ok(found) => {
                for step in &mut self.steps[first..] {
                    step.group.clone_from(group);
                }
                Some(found)
            }
            Err(error) => {
                self.steps.truncate(first);
                self.failed.push((group.clone(), error));
                None
            }
        }
    }

    /// Fails a group that was planned.
    pub(super) fn fail(&mut self, group: Group, error: HostError) {
        self.steps.retain(|step| step.group != group);
        self.failed.push((group, error));
    }

    /// Whether a group could not be planned.
    pub(crate) fn has_failed(&self, group: &Group) -> bool {
        self.failed.iter().any(|(failed, _)| failed == group)
    }

    /// Fails VMs, processes and services that want different values of one setting: each would undo the other's for ever.
    pub(super) fn fail_contradictions(&mut self) {
        let mut first: HashMap<String, &Step> = HashMap::new();
        let mut contradictions = Vec::new();
        let is_named = |step: &&Step| {
            matches!(
                step.group,
                Group::Vm(_) | Group::Process(_) | Group::HostService(_)
            )
        };
        for step in self.steps.iter().filter(is_named) {
            let subject = step.change.subject();
            let Some(other) = first.get(&subject) else {
                first.insert(subject, step);
                continue;
            };
            if other.group != step.group && other.change.new_text() != step.change.new_text() {
                let (one, two) = (other.change.new_text(), step.change.new_text());
                let what = format!(
                    "{} asks for {one} and {} for {two}",
                    other.group, step.group
                );
                let groups = [other.group.clone(), step.group.clone()];
                contradictions.push((groups, format!("{subject}: {what}")));
            }
        }
        for (groups, what) in contradictions {
            for group in groups {
                if !self.has_failed(&group) {
                    let fix = "two tables mean one VM or service: remove one of them".to_owned();
                    let what = what.clone();
                    self.fail(group, HostError::BadInput { what, fix });
                }
            }
        }
    }
}
