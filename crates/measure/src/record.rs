//! What a measurement of one's own host says about itself.

use std::collections::BTreeSet;

use serde::Serialize;
use steadyvm_host::{Desired, HostControl};
use steadyvm_report::ReportMeta;
use steadyvm_report::machine::{cpu_model, load_average};

use steadyvm_site::now_unix_s;

use crate::client::Client;
use crate::rows::{Row, Sets};
use crate::run::{Boot, Run};
use crate::states::States;

/// The heading of its page and report, with and without what is in force.
const TITLE: &str = "A service of this host, with and without steadyvm";
/// The same, of methods and files.
const TITLE_COMPARED: &str = "A service of this host, under several settings";

/// What a reader must know first.
pub const WARNING: &str = "All rows were measured in turn on one host, beside that host's own load: \
    the ratios hold for that host and that load.";

/// meta.json.
#[derive(Debug, Serialize)]
pub struct Meta {
    /// Version of this file's shape.
    schema_version: u32,
    /// Revision of the program, "-dirty" with uncommitted changes.
    git_revision: &'static str,
    /// What was typed.
    command_line: Vec<String>,
    /// When the run began, in seconds since 1970 (UTC).
    started_unix_s: u64,
    /// How long its parts took.
    duration_s: f64,
    /// The service.
    service: String,
    /// Where the client ran.
    client: String,
    /// What "with" means, if that is a row: the method, or what a file makes of it.
    method: Option<String>,
    /// Each row, what it sets, and the kernel that it was measured on.
    settings_of_rows: Vec<RowMeta>,
    /// Settings in force at the start.
    settings: usize,
    /// Whether a watch ran, and kept off.
    watch: bool,
    rounds: u64,
    requests_per_s: f64,
    seed: u64,
    /// The kernels, each once.
    kernel: String,
    cpu_model: String,
    cpus: usize,
    /// The cards that the rows name, with driver and speed.
    cards: Vec<String>,
    /// Load average over one minute, before the first part and after the last.
    load_average: [f64; 2],
    /// The parts, each in one boot.
    boots: Vec<Boot>,
}

/// A row.
#[derive(Debug, Serialize)]
struct RowMeta {
    row: String,
    sets: String,
    kernel: Option<String>,
    /// Rounds that count.
    rounds: usize,
}

/// What the host is as a part of a run begins.
#[derive(Debug)]
pub struct Begun {
    /// Settings in force.
    pub settings: usize,
    /// Whether a watch runs.
    pub watch: bool,
    at: std::time::Instant,
}

impl Begun {
    /// Now: the run has a part more.
    pub fn now(
        run: &mut Run,
        control: &HostControl,
        watch: bool,
    ) -> Result<Self, steadyvm_host::HostError> {
        let load = load_average();
        run.boots.push(Boot {
            id: control.machine().boot_id()?,
            kernel: control.machine().kernel_release().unwrap_or_default(),
            started_unix_s: now_unix_s(),
            duration_s: 0.0,
            load_average: [load, load],
        });
        Ok(Self {
            settings: control.show().unwrap_or_default().settings.len(),
            watch,
            at: std::time::Instant::now(),
        })
    }

    /// The part ends now.
    pub fn end(&self, run: &mut Run) {
        if let Some(boot) = run.boots.last_mut() {
            boot.duration_s = self.at.elapsed().as_secs_f64();
            boot.load_average[1] = load_average();
        }
    }
}

impl Meta {
    /// Of a run as far as it has come; `revision` is the program's.
    pub fn of(
        revision: &'static str,
        run: &Run,
        begun: &Begun,
        client: &Client,
        control: &HostControl,
        states: &States,
    ) -> Self {
        let kernels: BTreeSet<&str> = run.boots.iter().map(|boot| &*boot.kernel).collect();
        let kernels: Vec<&str> = kernels.into_iter().collect();
        let first = run.boots.first().map_or(0.0, |boot| boot.load_average[0]);
        let last = run.boots.last().map_or(0.0, |boot| boot.load_average[1]);
        let row_meta = |row: &Row| RowMeta {
            row: row.name.clone(),
            sets: row.sets.words(),
            kernel: row.release.clone(),
            rounds: row.rounds.len(),
        };
        let with = is_with_and_without(run)
            .then(|| states.values().flatten().next())
            .flatten();
        Self {
            schema_version: 1,
            git_revision: revision,
            command_line: run.command_line.clone(),
            started_unix_s: run.boots.first().map_or(0, |boot| boot.started_unix_s),
            duration_s: run.boots.iter().map(|boot| boot.duration_s).sum(),
            service: run.load.service.clone(),
            client: client.title(),
            method: with.map(|with| with.method.to_string()),
            settings_of_rows: run.rows.iter().map(row_meta).collect(),
            settings: begun.settings,
            watch: begun.watch,
            rounds: run.load.rounds,
            requests_per_s: run.load.rate,
            seed: run.load.seed,
            kernel: kernels.join(", "),
            cpu_model: cpu_model(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            cards: cards(control, states),
            load_average: [first, last],
            boots: run.boots.clone(),
        }
    }

    /// Facts for people, name and value.
    pub fn facts(&self) -> Vec<(String, String)> {
        let [before, after] = self.load_average;
        let watch = if self.watch {
            "a watch ran and kept off"
        } else {
            "none"
        };
        let mut facts = vec![
            ("Command".to_owned(), self.command_line.join(" ")),
            ("Revision".to_owned(), self.git_revision.to_owned()),
            ("Service".to_owned(), self.service.clone()),
            ("Client".to_owned(), self.client.clone()),
        ];
        facts.extend(self.method.clone().map(|with| ("With".to_owned(), with)));
        if self.method.is_none() {
            let of_row = |row: &RowMeta| {
                let kernel = row.kernel.as_deref().unwrap_or("not measured yet");
                (
                    format!("Row {}", row.row),
                    format!("{}; kernel {kernel}; {} rounds", row.sets, row.rounds),
                )
            };
            facts.extend(self.settings_of_rows.iter().map(of_row));
        }
        let cards = match self.cards.as_slice() {
            [] => "none is named".to_owned(),
            cards => cards.join(", "),
        };
        let rest = [
            ("Settings at the start", self.settings.to_string()),
            ("Watch", watch.to_owned()),
            ("Rounds", self.rounds.to_string()),
            ("Requests per second", self.requests_per_s.to_string()),
            ("Kernel", self.kernel.clone()),
            ("Machine", format!("{} CPUs, {}", self.cpus, self.cpu_model)),
            ("Cards", cards),
            (
                "Load average before, after",
                format!("{before:.2}, {after:.2}"),
            ),
            ("Duration", format!("{:.0} s", self.duration_s)),
        ];
        facts.extend(rest.map(|(name, value)| (name.to_owned(), value)));
        facts
    }

    /// What the report says of the run.
    pub fn report_meta(&self) -> ReportMeta {
        let title = match self.method {
            Some(_) => TITLE,
            None => TITLE_COMPARED,
        };
        ReportMeta {
            title: title.to_owned(),
            facts: self.facts(),
            notes: vec![WARNING.to_owned()],
        }
    }
}

/// Whether nothing was named: the host is measured with and without what is in force, or a file.
fn is_with_and_without(run: &Run) -> bool {
    let names = run.rows.iter().map(|row| &*row.name);
    names.eq(["without", "with"]) && run.rows[0].sets == Sets::Nothing
}

/// The cards that the rows name.
fn cards(control: &HostControl, states: &States) -> Vec<String> {
    let of_row = |desired: &Desired| {
        let profile = &desired.profile;
        let nics = profile.nics.iter().map(|nic| nic.name.clone());
        let shared = profile.vms.iter().filter_map(|vm| vm.nic.clone());
        nics.chain(shared).collect::<Vec<String>>()
    };
    let names: BTreeSet<String> = states.values().flatten().flat_map(of_row).collect();
    let tree = &control.machine().tree;
    let describe = |name: String| {
        let of_card = format!("/sys/class/net/{name}");
        let driver = tree.real_path(&format!("{of_card}/device/driver")).ok();
        let driver = driver.and_then(|path| path.rsplit('/').next().map(str::to_owned));
        let driver = driver.unwrap_or_else(|| "no driver of a device".to_owned());
        let speed = tree.read(&format!("{of_card}/speed")).unwrap_or_default();
        match speed.trim().parse::<u32>() {
            Ok(mbit_per_s) => format!("{name} ({driver}, {mbit_per_s} Mbit/s)"),
            Err(_) => format!("{name} ({driver})"),
        }
    };
    names.into_iter().map(describe).collect()
}
