//! Which share of a task's jobs is in time: a statement of a simulation, and no promise.
//!
//! Runs differ in their seeds: first releases, the beginnings of periods, and what the scenario draws otherwise. So they are
//! independent, and a share has an interval ([`Share`]). It holds for what is simulated: the plan's tasks, in the shape that was
//! asked for, beside those of the other VMs.

use serde::Serialize;
use steadyvm_stats::Share;

use crate::plan::Scenario;
use crate::{SystemError, simulate};

/// Of one task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskShare {
    /// Its VM.
    pub vm: String,
    /// Its name.
    pub task: String,
    /// The VM is soft: nothing else is known of the task.
    pub soft: bool,
    /// The jobs that are in time; null if none was due.
    pub in_time: Option<Share>,
}

/// Of every task, over so many runs with seeds from the scenario's on.
///
/// # Errors
/// What cannot be simulated.
pub fn shares(scenario: &Scenario, runs: u32) -> Result<Vec<TaskShare>, SystemError> {
    let guests = &scenario.system.guests;
    let names: Vec<(&str, &str)> = (guests.iter())
        .flat_map(|guest| guest.tasks.iter().map(|task| (&*guest.name, &*task.name)))
        .collect();
    let mut counts = vec![Vec::with_capacity(runs as usize); names.len()];
    for run in 0..u64::from(runs) {
        let played = scenario.clone().with_random_offsets();
        let played = played.with_seed(scenario.seed.wrapping_add(run));
        let outcome = simulate(&played.system, played.seed, played.duration_ns)?;
        for (counts, task) in counts.iter_mut().zip(&outcome.tasks) {
            counts.push((task.due() - task.late(), task.due()));
        }
    }
    let soft = |name: &str| (scenario.report.vms.iter()).any(|vm| vm.name == name && vm.soft);
    let all = names.iter().zip(&counts);
    Ok(all
        .map(|(&(vm, task), counts)| TaskShare {
            vm: vm.to_owned(),
            task: task.to_owned(),
            soft: soft(vm),
            in_time: Share::of(counts),
        })
        .collect())
}
