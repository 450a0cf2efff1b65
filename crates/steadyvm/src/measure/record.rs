//! What a measurement of one's own host says about itself.

use serde::Serialize;
use steadyvm_host::{Desired, HostControl};
use steadyvm_report::ReportMeta;

use steadyvm_cli::build;
use steadyvm_cli::machine::{command_line, cpu_model, load_average};
use steadyvm_site::peers::{self, Role};

use super::Args;
use super::client::Client;

/// The heading of its page and report.
pub const TITLE: &str = "A service of this host, with and without steadyvm";

/// What a reader must know first.
pub const WARNING: &str = "Both conditions were measured in turn on one host, beside that host's own load: \
    the ratios hold for that host and that load.";

/// meta.json.
#[derive(Debug, Serialize)]
pub struct Run {
    /// Version of this file's shape.
    schema_version: u32,
    /// Revision of the program, "-dirty" with uncommitted changes.
    git_revision: &'static str,
    /// What was typed.
    command_line: Vec<String>,
    /// When the run began, in seconds since 1970 (UTC).
    started_unix_s: u64,
    /// How long it took.
    duration_s: f64,
    /// The service.
    service: String,
    /// Where the client ran.
    client: String,
    /// What "with" means: the method, or what a file makes of it.
    method: String,
    /// Settings in force at the start.
    settings: usize,
    /// Whether a watch ran, and kept off.
    watch: bool,
    rounds: u64,
    requests_per_s: f64,
    seed: u64,
    kernel: String,
    cpu_model: String,
    cpus: usize,
    /// Load average over one minute, before and after.
    load_average: [f64; 2],
    #[serde(skip)]
    begun: std::time::Instant,
}

impl Run {
    /// The run that begins now.
    pub fn begin(args: &Args, client: &Client, control: &HostControl, with: &Desired) -> Self {
        let since = std::time::UNIX_EPOCH.elapsed();
        let shown = control.show().unwrap_or_default();
        let load = load_average();
        Self {
            schema_version: 1,
            git_revision: build::REVISION,
            command_line: command_line("steadyvm"),
            started_unix_s: since.map_or(0, |since| since.as_secs()),
            duration_s: 0.0,
            service: args.service.clone(),
            client: client.title(),
            method: with.method.to_string(),
            settings: shown.settings.len(),
            watch: peers::is_held(&args.control.control().directory, Role::Watch),
            rounds: args.rounds,
            requests_per_s: args.rate,
            seed: args.seed,
            kernel: control.machine().kernel_release().unwrap_or_default(),
            cpu_model: cpu_model(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            load_average: [load, load],
            begun: std::time::Instant::now(),
        }
    }

    /// The run ends now.
    pub fn end(&mut self) {
        self.duration_s = self.begun.elapsed().as_secs_f64();
        self.load_average[1] = load_average();
    }

    /// Facts for people, name and value.
    pub fn facts(&self) -> Vec<(String, String)> {
        let [before, after] = self.load_average;
        let watch = if self.watch {
            "a watch ran and kept off"
        } else {
            "none"
        };
        [
            ("Command", self.command_line.join(" ")),
            ("Revision", self.git_revision.to_owned()),
            ("Service", self.service.clone()),
            ("Client", self.client.clone()),
            ("With", self.method.clone()),
            ("Settings at the start", self.settings.to_string()),
            ("Watch", watch.to_owned()),
            ("Rounds", self.rounds.to_string()),
            ("Requests per second", self.requests_per_s.to_string()),
            ("Kernel", self.kernel.clone()),
            ("Machine", format!("{} CPUs, {}", self.cpus, self.cpu_model)),
            (
                "Load average before, after",
                format!("{before:.2}, {after:.2}"),
            ),
            ("Duration", format!("{:.0} s", self.duration_s)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    /// What the report says of the run.
    pub fn report_meta(&self) -> ReportMeta {
        ReportMeta {
            title: TITLE.to_owned(),
            facts: self.facts(),
            notes: vec![WARNING.to_owned()],
        }
    }
}
