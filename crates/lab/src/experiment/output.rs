//! The files of experiments that write results.json, meta.json, report.html and tables.

use crate::compare::{Disturbance, KernelBuild};
use crate::error::{At, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use steadyvm_latency::report::ReportMeta;
use steadyvm_latency::rtca::Endpoints;

/// meta.json: what a reader needs to judge the figures, or to make them again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Meta {
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
    /// What the packets went between, in the experiment of RTCA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<Endpoints>,
    /// Kernel version by configuration, and the guests' if there are any.
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
    /// Seed of the first round's schedule of requests, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// What else the machine did during the rounds.
    pub disturbance: Disturbance,
    /// Rounds that were dropped because a machine died, a sentence each.
    pub dropped_rounds: Vec<String>,
}

/// Writes results.json, meta.json, report.html and tables by their file names.
pub(super) fn write_run(
    directory: &Path,
    results: &impl Serialize,
    meta: &Meta,
    report: &str,
    tables: &[(&str, String)],
) -> Result<()> {
    let write = |name: &str, content: &str| {
        let path = directory.join(name);
        fs::write(&path, content).at("write", &path)
    };
    let text = serde_json::to_string_pretty(results).doing("write results.json")?;
    write("results.json", &(text + "\n"))?;
    let text = serde_json::to_string_pretty(meta).doing("write meta.json")?;
    write("meta.json", &(text + "\n"))?;
    for (name, table) in tables {
        write(name, table)?;
    }
    write("report.html", report)
}

/// What a report says of the run of a verb of `steadyvm lab experiment`.
pub(super) fn report_meta(verb: &str, meta: &Meta) -> ReportMeta {
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let mut facts = vec![
        fact("Command", meta.command_line.join(" ")),
        fact("Revision", meta.git_revision.clone()),
    ];
    let kernels = meta.kernels.iter();
    facts.extend(kernels.map(|(name, kernel)| (format!("Kernel, {name}"), kernel.clone())));
    let builds = meta.kernel_builds.iter();
    facts.extend(builds.map(|(name, build)| (format!("Build key, {name}"), build.key.clone())));
    facts.extend([
        fact(
            "Hosts run by",
            format!("{}, {}", meta.accelerator, meta.qemu),
        ),
        fact(
            "Machine",
            format!(
                "{} CPUs, {}, Linux {}",
                meta.cpus, meta.cpu_model, meta.machine_kernel
            ),
        ),
        fact(
            "Load average before, after",
            format!("{:.2}, {:.2}", meta.load_average[0], meta.load_average[1]),
        ),
        fact("Duration", format!("{:.0} s", meta.duration_s)),
    ]);
    let emulated = "The hosts under test were emulated: compare configurations with one another, and \
                    never take these microseconds for hardware's.";
    ReportMeta {
        title: format!("steadyvm lab experiment {verb}"),
        facts,
        notes: vec![emulated.to_owned()],
    }
}
