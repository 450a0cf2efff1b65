//! A run of a measurement, as far as it has come: what `--save` keeps, so that it goes on after a reboot. It knows what is left,
//! and on which kernel.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use steadyvm_comparison::{MethodData, PhaseData, RoundData, RunData, Service};
use steadyvm_fault::At;
use steadyvm_host::HostError;
use steadyvm_site::TargetNames;

use super::kernel::Kernel;
use super::rows::{Measured, Row};
use crate::netrt::ClientArgs;

/// The version of the file's shape.
const SCHEMA_VERSION: u32 = 1;

/// All of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    schema_version: u32,
    /// What was typed.
    pub command_line: Vec<String>,
    pub host: Host,
    pub load: Load,
    /// What methods are for.
    pub target: TargetNames,
    pub vms: Vec<String>,
    /// The service of a file whose bound counts.
    #[serde(default)]
    pub bound: Option<String>,
    /// Where the results go.
    pub out: PathBuf,
    pub markdown: Option<PathBuf>,
    /// The parts of the run, one after the other: a new one each time it goes on.
    pub boots: Vec<Boot>,
    pub rows: Vec<Row>,
    /// What readers must know.
    pub notes: Vec<String>,
}

/// The host of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    pub name: String,
    /// Of /etc/machine-id; empty where there is none.
    pub machine_id: String,
}

/// What is sent, and from where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    pub service: String,
    pub netns: Option<String>,
    pub remote: Option<String>,
    pub samples: u64,
    pub rounds: u64,
    pub rate: f64,
    pub warmup: u64,
    pub seed: u64,
}

/// What the host was while a part of the run was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Boot {
    /// Which boot it is, of the kernel.
    pub id: String,
    /// The kernel's release.
    pub kernel: String,
    pub started_unix_s: u64,
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
    pub fn client(&self, seed: u64, samples: u64) -> ClientArgs {
        ClientArgs {
            service: self.service.clone(),
            samples,
            rate: self.rate,
            warmup: self.warmup,
            seed,
            json: true,
            until_input_ends: true,
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
mod tests {
    use super::super::rows;
    use super::*;
    use steadyvm_load::netrt::{ClientRun, Counters, EndedBy, Sample};

    const STOCK: &str = "6.12.1-amd64";
    const RT: &str = "6.12.1-rt-amd64";

    fn kernel(release: &str) -> Kernel {
        Kernel {
            release: release.to_owned(),
            is_preempt_rt: release == RT,
            has_levels: false,
        }
    }

    /// `vanilla` and `preempt-rt`, in two rounds.
    fn run() -> Run {
        let load = Load {
            service: "192.0.2.10:7700".to_owned(),
            netns: None,
            remote: Some("ssh client".to_owned()),
            samples: 4,
            rounds: 2,
            rate: 181.8,
            warmup: 1,
            seed: 3,
        };
        let methods = ["vanilla", "preempt-rt"].map(|it| it.parse().unwrap());
        let rows = rows::named(&methods, &[], &[]).unwrap();
        Run::new(vec!["steadyvm".to_owned()], load, rows)
    }

    /// Both rounds of a row.
    fn measured(run: &mut Run, row: usize, release: &str) {
        let boot = run.boots.len();
        run.boots.push(Boot {
            id: release.to_owned(),
            kernel: release.to_owned(),
            started_unix_s: 1,
            duration_s: 0.1,
            load_average: [0.3, 1.7],
        });
        let round = Measured {
            boot,
            netrt: ClientRun {
                samples: vec![Sample {
                    sequence: 1,
                    sent_ns: 2,
                    rtt_ns: 3,
                }],
                counters: Counters::default(),
                ended_by: EndedBy::Done,
                duration_ns: 1,
            },
            host_cpu_busy_fraction: 1.0 / 3.0,
        };
        run.rows[row].release = Some(release.to_owned());
        run.rows[row].rounds = vec![round.clone(), round];
        run.rows[row].rounds_over = 2;
    }

    #[test]
    fn a_run_goes_on_with_the_rows_of_the_kernel_that_runs() {
        let mut run = run();
        assert_eq!(run.rows_for(&kernel(STOCK)).unwrap(), [0]);
        let left: Vec<String> = run
            .left_after(&kernel(STOCK))
            .map(|it| it.words())
            .collect();
        assert_eq!(left, ["preempt-rt waits for a kernel with PREEMPT_RT"]);
        measured(&mut run, 0, STOCK);
        assert_eq!(run.data().methods.len(), 1);
        assert!(run.notes_of_boots()[0].contains("not all is measured yet: preempt-rt"));
        let error = run.rows_for(&kernel(STOCK)).unwrap_err().to_string();
        let told = "no row is for the kernel that runs, 6.12.1-amd64 (6.12): preempt-rt waits for";
        assert!(error.contains(told), "{error}");

        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("run.json");
        run.write(&file).unwrap();
        let mut again = Run::read(&file).unwrap();
        assert_eq!(again, run);
        assert_eq!(again.rows_for(&kernel(RT)).unwrap(), [1]);
        measured(&mut again, 1, RT);
        assert!(again.notes_of_boots()[0].contains("different boots"));
        let data = again.data();
        let rounds: Vec<usize> = data.methods.iter().map(|it| it.rounds.len()).collect();
        assert_eq!(rounds, [2, 2]);
        again.write(&file).unwrap();
        let error = Run::read(&file).unwrap_err().to_string();
        assert!(error.contains("all rounds are measured"), "{error}");
    }

    #[test]
    fn a_run_of_another_host_or_version_and_what_is_no_run_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("run.json");
        let refused = |run: &Run| {
            run.write(&file).unwrap();
            Run::read(&file).unwrap_err().to_string()
        };
        let mut moved = run();
        moved.host = Host {
            name: "other".to_owned(),
            machine_id: "0".to_owned(),
        };
        let error = refused(&moved);
        assert!(error.contains("of another host (other)"), "{error}");
        let mut newer = run();
        newer.schema_version = 2;
        assert!(refused(&newer).contains("a saved run of version 2"));
        fs::write(&file, "{}").unwrap();
        let error = Run::read(&file).unwrap_err().to_string();
        assert!(error.contains("no saved run: missing field"), "{error}");
        let error = Run::read(&directory.path().join("no")).unwrap_err();
        assert!(error.to_string().contains("No such file"), "{error}");
    }

    #[test]
    fn a_host_without_a_machine_id_is_known_by_its_name() {
        let host = |name: &str, id: &str| Host {
            name: name.to_owned(),
            machine_id: id.to_owned(),
        };
        let mut run = run();
        for (then, now, is_same) in [
            (host("a", ""), host("a", "1"), true),
            (host("a", ""), host("b", ""), false),
            (host("a", "1"), host("b", "1"), true),
            (host("a", "1"), host("a", "2"), false),
        ] {
            run.host = then;
            assert_eq!(run.must_be_of(&now).is_ok(), is_same, "{now:?}");
        }
    }
}
