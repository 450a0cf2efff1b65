//! The files of a comparison.

use super::disturbance::Disturbance;
use crate::error::{At, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use steadyvm_latency::report::{ReportMeta, render};
use steadyvm_latency::results::{Phase, Results, RunData, Service, hgrm_of_method};

/// What one of our kernels was built from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KernelBuild {
    /// Key of everything that it was built from.
    pub key: String,
    /// SHA-256 of its configuration.
    pub configuration_sha256: String,
}

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
    /// Where the loads were received.
    pub service: Service,
    /// Kernel version by method, and the guests' if there are any.
    pub kernels: BTreeMap<String, String>,
    /// The kernels that we built, by name.
    pub kernel_builds: BTreeMap<String, KernelBuild>,
    /// How often every host was booted, but for hosts that died.
    pub boots: u64,
    /// TCP streams of NetStream, side by side.
    pub streams: u32,
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
    /// Seed of the first round's request schedule.
    pub seed: u64,
    /// The equal rate that the first round found.
    pub equal_rate_mbit_per_s: Option<f64>,
    /// What else the machine did during the rounds.
    pub disturbance: Disturbance,
    /// Rounds that were dropped because a machine died, a sentence each.
    pub dropped_rounds: Vec<String>,
}

/// Writes results.json, meta.json, samples.csv, report.html, a .hgrm a method, and what the hosts
/// traced of their receive paths.
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
    write(
        "results.json",
        &results.to_json().doing("write results.json")?,
    )?;
    let meta_text = serde_json::to_string_pretty(meta).doing("write meta.json")?;
    write("meta.json", &(meta_text + "\n"))?;
    write("samples.csv", &samples_table(data))?;
    for method in &data.methods {
        let text = hgrm_of_method(method).doing(format!("write {}.hgrm", method.name))?;
        write(&format!("{}.hgrm", method.name), &text)?;
    }
    for method in &data.methods {
        for (round, round_data) in method.rounds.iter().enumerate() {
            for phase in Phase::ALL {
                if let Some(traced) = &round_data.phase(phase).receive_path {
                    let (name, key) = (&method.name, phase.wake_up_key());
                    write(&format!("{name}.{key}.{}.json", round + 1), &traced.report)?;
                }
            }
        }
    }
    write("report.html", &render(results, &report_meta(meta)))
}

/// Every counted round trip, a line each.
fn samples_table(data: &RunData) -> String {
    let mut table = String::from("method,round,phase,sequence,sent_ns,round_trip_ns\n");
    for method in &data.methods {
        for (round, round_data) in method.rounds.iter().enumerate() {
            for phase in Phase::ALL {
                for sample in &round_data.phase(phase).netrt.samples {
                    let (name, key) = (&method.name, phase.key());
                    let (sequence, sent, trip) = (sample.sequence, sample.sent_ns, sample.rtt_ns);
                    // Writing to a string cannot fail.
                    let _ = writeln!(table, "{name},{},{key},{sequence},{sent},{trip}", round + 1);
                }
            }
        }
    }
    table
}

fn report_meta(meta: &Meta) -> ReportMeta {
    let mut facts = vec![
        ("Command".to_owned(), meta.command_line.join(" ")),
        ("Revision".to_owned(), meta.git_revision.clone()),
    ];
    facts.extend(
        meta.kernels
            .iter()
            .map(|(name, kernel)| (format!("Kernel, {name}"), kernel.clone())),
    );
    facts.extend(
        meta.kernel_builds
            .iter()
            .map(|(name, build)| (format!("Build key, {name}"), build.key.clone())),
    );
    facts.extend([
        (
            "Hosts run by".to_owned(),
            format!("{}, {}", meta.accelerator, meta.qemu),
        ),
        ("Boots of each host".to_owned(), meta.boots.to_string()),
        (
            "Machine".to_owned(),
            format!(
                "{} CPUs, {}, Linux {}",
                meta.cpus, meta.cpu_model, meta.machine_kernel
            ),
        ),
        (
            "CPU time of others, stolen".to_owned(),
            format!(
                "{:.1} %, {:.1} %",
                100.0 * meta.disturbance.others,
                100.0 * meta.disturbance.stolen
            ),
        ),
        (
            "Load average before, after".to_owned(),
            format!("{:.2}, {:.2}", meta.load_average[0], meta.load_average[1]),
        ),
        ("Duration".to_owned(), format!("{:.0} s", meta.duration_s)),
    ]);
    ReportMeta {
        title: "steadyvm compare".to_owned(),
        facts,
        notes: std::iter::once(
            "The hosts under test were emulated: compare methods with one another, and never take \
             these microseconds for hardware's."
                .to_owned(),
        )
        .chain(meta.dropped_rounds.iter().cloned())
        .collect(),
    }
}
