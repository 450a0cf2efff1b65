//! A run of a measurement, as far as it has come: what `--save` keeps, so that it goes on after a reboot. It knows what is left,
//! and on which kernel.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use steadyvm_comparison::{MethodData, PhaseData, RoundData, RunData, Service, assemble};
use steadyvm_fault::At;
use steadyvm_host::HostError;
use steadyvm_report::results::Record;
use steadyvm_site::TargetNames;
use steadyvm_stats::bootstrap::BootstrapOptions;

use crate::client::Ask;
use crate::kernel::Kernel;
use crate::rows::{Measured, Row};

/// The version of the file's shape.
const SCHEMA_VERSION: u32 = 1;

/// A run as far as it has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    schema_version: u32,
    /// What was typed.
    pub command_line: Vec<String>,
    /// Where it is measured.
    pub host: Host,
    /// What is sent.
    pub load: Load,
    /// What methods are for.
    pub target: TargetNames,
    /// The VMs that methods are for, as they were asked for.
    pub vms: Vec<String>,
    /// The service of a file whose bound counts.
    #[serde(default)]
    pub bound: Option<String>,
    /// Where the results go.
    pub out: PathBuf,
    /// Where its page goes, if it was asked for.
    pub markdown: Option<PathBuf>,
    /// The parts of the run, one after the other: a new one each time it goes on.
    pub boots: Vec<Boot>,
    /// What is compared.
    pub rows: Vec<Row>,
    /// What readers must know.
    pub notes: Vec<String>,
}

/// The host of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The kernel's name of it.
    pub name: String,
    /// Of /etc/machine-id; empty where there is none.
    pub machine_id: String,
}

/// What is sent, and from where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The service, as the client reaches it: HOST:PORT.
    pub service: String,
    /// The namespace of `ip netns` that the client runs in.
    pub netns: Option<String>,
    /// The command that runs the client on another machine.
    pub remote: Option<String>,
    /// Counted requests under each row, over all rounds.
    pub samples: u64,
    /// Rounds.
    pub rounds: u64,
    /// Requests per second, on average.
    pub rate: f64,
    /// Requests before the counted ones of each round.
    pub warmup: u64,
    /// The first round's seed; each has another.
    pub seed: u64,
}

/// What the host was while a part of the run was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Boot {
    /// Which boot it is, of the kernel.
    pub id: String,
    /// The kernel's release.
    pub kernel: String,
    /// When it began, in seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// How long it took.
    pub duration_s: f64,
    /// Load average over one minute, before and after.
    pub load_average: [f64; 2],
}

impl Host {
    /// This one.
    pub fn this() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self {
            name: read("/proc/sys/kernel/hostname").trim().to_owned(),
            machine_id: read("/etc/machine-id").trim().to_owned(),
        }
    }
}

impl Load {
    /// What a client is told.
    pub fn client(&self, seed: u64, samples: u64) -> Ask {
        Ask {
            service: self.service.clone(),
            samples,
            rate: self.rate,
            warmup: self.warmup,
            seed,
        }
    }
}

impl Run {
    /// One that begins.
    pub fn new(command_line: Vec<String>, load: Load, rows: Vec<Row>) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            command_line,
            host: Host::this(),
            load,
            target: TargetNames::default(),
            vms: Vec::new(),
            bound: None,
            out: PathBuf::new(),
            markdown: None,
            boots: Vec::new(),
            rows,
            notes: Vec::new(),
        }
    }

    /// One that was saved.
    ///
    /// # Errors
    /// No saved run of this version, one of another host, one whose files have changed, and one that has ended.
    pub fn read(file: &Path) -> Result<Self, HostError> {
        let bad = |what: String, fix: &str| HostError::BadInput {
            what: format!("{}: {what}", file.display()),
            fix: fix.to_owned(),
        };
        let save = "name a file that `steadyvm measure --save` has written";
        let text = fs::read_to_string(file).map_err(|error| bad(error.to_string(), save))?;
        let run: Self = serde_json::from_str(&text)
            .map_err(|error| bad(format!("no saved run: {error}"), save))?;
        if run.schema_version != SCHEMA_VERSION {
            let what = format!("a saved run of version {}", run.schema_version);
            return Err(bad(what, "go on with the steadyvm that has written it"));
        }
        run.must_be_of(&Host::this())
            .map_err(|what| bad(what, "go on there: a run is of one host"))?;
        for row in &run.rows {
            row.sets.must_be_as_begun()?;
        }
        if run.rows_left().next().is_none() {
            let what = format!(
                "all rounds are measured; the report is in {}",
                run.out.display()
            );
            return Err(bad(what, "begin another run with --save"));
        }
        Ok(run)
    }

    fn must_be_of(&self, host: &Host) -> Result<(), String> {
        let is_same = match (&*self.host.machine_id, &*host.machine_id) {
            ("", _) | (_, "") => self.host.name == host.name,
            (then, now) => then == now,
        };
        if is_same {
            return Ok(());
        }
        let (then, now) = (&self.host.name, &host.name);
        Err(format!(
            "the run is of another host ({then}), not of this one ({now})"
        ))
    }

    /// Writes it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, file: &Path) -> Result<(), steadyvm_fault::Fault> {
        let text = serde_json::to_string(self).doing("keep the run")?;
        steadyvm_files::write(file, text + "\n").at("write", file)
    }

    fn rows_left(&self) -> impl Iterator<Item = &Row> {
        let rounds = self.load.rounds;
        let rows = self.rows.iter();
        rows.filter(move |row| row.rounds_over < rounds)
    }

    /// The places of the rows that this kernel is to measure.
    ///
    /// # Errors
    /// There is none: which kernel to boot.
    pub fn rows_for(&self, kernel: &Kernel) -> Result<Vec<usize>, HostError> {
        let rows = self.rows.iter().enumerate();
        let here = rows.filter(|(_, row)| row.rounds_over < self.load.rounds && row.fits(kernel));
        let here: Vec<usize> = here.map(|(place, _)| place).collect();
        if here.is_empty() {
            let left: Vec<String> = self.left_after(kernel).map(|left| left.words()).collect();
            return Err(HostError::BadInput {
                what: format!(
                    "no row is for the kernel that runs, {} ({}): {}",
                    kernel.release,
                    kernel.name(),
                    left.join(", ")
                ),
                fix: "reboot into another one first".into(),
            });
        }
        Ok(here)
    }

    /// The rows that wait for another kernel than this one.
    pub fn left_after(&self, kernel: &Kernel) -> impl Iterator<Item = Waiting> {
        self.rows_left()
            .filter(|row| !row.fits(kernel))
            .map(|row| Waiting {
                row: row.name.clone(),
                kernel: row.wanted_kernel(kernel),
            })
    }

    /// All rows that have rounds, as a comparison has them.
    pub fn data(&self) -> RunData {
        let of_round = |measured: &Measured| RoundData {
            idle: PhaseData {
                netrt: measured.netrt.clone(),
                host_cpu_busy_fraction: measured.host_cpu_busy_fraction,
                ..PhaseData::not_measured()
            },
            full: PhaseData::not_measured(),
            equal: PhaseData::not_measured(),
        };
        let rows = self.rows.iter().filter(|row| !row.rounds.is_empty());
        let methods = rows.map(|row| MethodData {
            name: row.name.clone(),
            rounds: row.rounds.iter().map(of_round).collect(),
        });
        RunData {
            service: Service::Own,
            methods: methods.collect(),
        }
    }

    /// The figures of these data, with all that readers must know.
    pub fn figures(&self, data: &RunData) -> Record {
        let mut figures = assemble(data, BootstrapOptions::default());
        let of_bounds = self.rows.iter().flat_map(Row::notes_of_bound);
        let notes = self.notes.iter().cloned().chain(self.notes_of_boots());
        figures.notes.extend(notes.chain(of_bounds));
        figures
    }

    /// What readers must know of the boots, a sentence each.
    pub fn notes_of_boots(&self) -> Vec<String> {
        let mut kernels: Vec<&str> = self.boots.iter().map(|boot| &*boot.kernel).collect();
        kernels.sort_unstable();
        kernels.dedup();
        let mut notes = Vec::new();
        if kernels.len() > 1 {
            let why = "intervals do not cover what differs between boots";
            notes.push(format!(
                "rows of different kernels were measured in different boots: {why}"
            ));
        }
        let left: Vec<&str> = self.rows_left().map(|row| &*row.name).collect();
        if !left.is_empty() {
            notes.push(format!("not all is measured yet: {}", left.join(", ")));
        }
        notes
    }
}

/// A row that waits for another kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Its name.
    pub row: String,
    /// Which kernel, in words.
    pub kernel: String,
}

impl Waiting {
    /// In words.
    pub fn words(&self) -> String {
        format!("{} waits for {}", self.row, self.kernel)
    }
}

#[cfg(test)]
mod tests;
