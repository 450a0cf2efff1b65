//! The files of the experiment.

use crate::compare::{Disturbance, KernelBuild};
use crate::error::{At, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use steadyvm_latency::report::{ReportMeta, render_rtca};
use steadyvm_latency::rtca::{Endpoints, Interference, Results, RunData};

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
    /// What the packets went between.
    pub endpoints: Endpoints,
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
    /// Seed of the first round's schedule of requests.
    pub seed: u64,
    /// What else the machine did during the rounds.
    pub disturbance: Disturbance,
    /// Rounds that were dropped because a machine died, a sentence each.
    pub dropped_rounds: Vec<String>,
}

/// Writes results.json, meta.json, samples.csv and report.html.
pub fn write_output(
    directory: &Path,
    data: &RunData,
    results: &Results,
    meta: &Meta,
) -> Result<()> {
    let write = |name: &str, content: &str| {
        let path = directory.join(name);
        fs::write(&path, content).at("write", &path)
    };
    let text = serde_json::to_string_pretty(results).doing("write results.json")?;
    write("results.json", &(text + "\n"))?;
    let text = serde_json::to_string_pretty(meta).doing("write meta.json")?;
    write("meta.json", &(text + "\n"))?;
    write("samples.csv", &samples_table(data))?;
    write("report.html", &render_rtca(results, &report_meta(meta)))
}

/// Every counted round trip, a line each.
fn samples_table(data: &RunData) -> String {
    let mut table =
        String::from("configuration,round,interference,sequence,sent_ns,round_trip_ns\n");
    for configuration in &data.configurations {
        for (round, levels) in configuration.rounds.iter().enumerate() {
            for (level, data) in Interference::ALL.into_iter().zip(&levels.0) {
                for sample in &data.round_trips.samples {
                    let (name, title) = (&configuration.name, level.title().to_lowercase());
                    let (sequence, sent, trip) = (sample.sequence, sample.sent_ns, sample.rtt_ns);
                    // Writing to a string cannot fail.
                    let _ = writeln!(
                        table,
                        "{name},{},{title},{sequence},{sent},{trip}",
                        round + 1
                    );
                }
            }
        }
    }
    table
}

fn report_meta(meta: &Meta) -> ReportMeta {
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
        title: "steadyvm lab experiment rtca".to_owned(),
        facts,
        notes: vec![emulated.to_owned()],
    }
}
