//! What a run says about itself and the machine it was measured on, whatever was measured.

use super::Disturbance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use steadyvm_report::ReportMeta;

/// What one of our kernels was built from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KernelBuild {
    /// Key of everything that it was built from.
    pub key: String,
    /// SHA-256 of its configuration.
    pub configuration_sha256: String,
}

/// The part of meta.json that every run has: what a reader needs to judge the figures, or to make them
/// again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunRecord {
    /// Version of this file's shape.
    pub schema_version: u32,
    /// Revision of the program, "-dirty" with uncommitted changes.
    pub git_revision: String,
    /// What was typed.
    pub command_line: Vec<String>,
    /// When the run began, in seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// How long it took.
    pub duration_s: f64,
    /// Kernel version by what was measured, and the guests' if there are any.
    pub kernels: BTreeMap<String, String>,
    /// The kernels that we built, by name.
    pub kernel_builds: BTreeMap<String, KernelBuild>,
    /// How the hosts ran.
    pub accelerator: String,
    /// The emulator's version.
    pub qemu: String,
    /// The machine's processor.
    pub cpu_model: String,
    /// Its CPUs.
    pub cpus: usize,
    /// Its kernel.
    pub machine_kernel: String,
    /// Load average over one minute, before and after.
    pub load_average: [f64; 2],
    /// What else the machine did during the rounds.
    pub disturbance: Disturbance,
    /// Rounds that were dropped because a machine died, a sentence each.
    pub dropped_rounds: Vec<String>,
}

impl RunRecord {
    /// Facts of the run, name and value: command, revision, kernels, machine, disturbance, duration.
    pub fn facts(&self) -> Vec<(String, String)> {
        let fact = |name: &str, value: String| (name.to_owned(), value);
        let mut facts = vec![
            fact("Command", self.command_line.join(" ")),
            fact("Revision", self.git_revision.clone()),
        ];
        let kernels = self.kernels.iter();
        facts.extend(kernels.map(|(name, kernel)| (format!("Kernel, {name}"), kernel.clone())));
        let builds = self.kernel_builds.iter();
        facts.extend(builds.map(|(name, build)| (format!("Build key, {name}"), build.key.clone())));
        let machine = format!(
            "{} CPUs, {}, Linux {}",
            self.cpus, self.cpu_model, self.machine_kernel
        );
        let [others, stolen] =
            [self.disturbance.others, self.disturbance.stolen].map(|share| 100.0 * share);
        let [before, after] = self.load_average;
        facts.extend([
            fact(
                "Hosts run by",
                format!("{}, {}", self.accelerator, self.qemu),
            ),
            fact("Machine", machine),
            fact(
                "CPU time of others, stolen",
                format!("{others:.1} %, {stolen:.1} %"),
            ),
            fact(
                "Load average before, after",
                format!("{before:.2}, {after:.2}"),
            ),
            fact("Duration", format!("{:.0} s", self.duration_s)),
        ]);
        facts
    }

    /// The warning that every report of the lab carries. `compared` is what to compare in it.
    pub fn emulated(compared: &str) -> String {
        format!(
            "The hosts under test were emulated: compare {compared} with one another, and never take \
             these microseconds for hardware's."
        )
    }

    /// What the report of `title` says of its run. `compared` is what to compare in it.
    pub fn report_meta(&self, title: String, compared: &str) -> ReportMeta {
        let emulated = Self::emulated(compared);
        let dropped = self.dropped_rounds.iter().cloned();
        ReportMeta {
            title,
            facts: self.facts(),
            notes: std::iter::once(emulated).chain(dropped).collect(),
        }
    }
}
