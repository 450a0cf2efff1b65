//! What `measure` is asked for.

use std::path::{Path, PathBuf};

use steadyvm_cli::machine::command_line;
use steadyvm_cli::markdown::MarkdownArgs;
use steadyvm_host::HostError;
use steadyvm_measure::rows::{self, AskedMethod, Sets};
use steadyvm_measure::{Load, Run};

use super::go_on;
use crate::arguments::ControlArgs;
use crate::method::{FOR_METHODS, TargetArgs, methods_help};
use crate::netrt::rate;

/// Measure a service of this host with and without what steadyvm has in force, or under several settings, in turn.
///
/// Each round measures the service once under each row: with all settings undone, and with all of them in
/// force. Every second round goes the other way round. What else runs on this host runs on: start
/// the load that you care about first. The report has all distributions, and their ratios with 95 %
/// intervals.
///
/// With --methods and --files the rows are methods and files, in any number: vanilla is the host without
/// steadyvm. Methods are for the cards and VMs of --nic and --vm, as those of apply.
///
/// METHOD@KERNEL and --kernels name kernels: by release and flavour, such as 6.12 and 6.12-rt, or by what
/// uname -r prints. With --save FILE the run measures the rows of the kernel that runs, says which kernel to
/// boot for the others, and goes on there by --resume FILE. FILE is written after each round, so that a run that
/// was ended goes on, too.
///
/// A file that plans the service, by a [[service]], has a bound for it: the report says how near the round
/// trips came, and `steadyvm status` says it too until the next boot.
///
/// The service is NetRT over UDP: run `steadyvm netrt serve 0.0.0.0:7700` in the VM. The client runs
/// where you say: by --remote on another machine, which is best, by --netns in a namespace of this
/// host. Client and this program speak by standard input and output, so --remote takes any command
/// that reaches a machine, such as ssh; `steadyvm` must be in its path there.
///
/// At every end, Ctrl-C and kill -9 too, the state that was found at the start is in force again. A
/// client that stalls ends it: no answered request for 10 seconds, or twice the time of a phase and half
/// a minute. One that is stopped (Ctrl-Z) is ended and restored when its phase's time is over. A watch
/// that runs keeps off meanwhile, and `apply` and `undo` are refused. A round in which the settings
/// changed all the same is left out. Exit code 128 + N after signal N.
///
/// Example, with a VM at 192.0.2.10 and another machine that reaches it:
///
///     steadyvm apply
///     steadyvm measure --service 192.0.2.10:7700 --remote "ssh client.example"
///
/// Three methods, one of them on another kernel:
///
///     steadyvm measure --service 192.0.2.10:7700 --remote "ssh client.example" \
///       --methods vanilla,rt+profile+any-kernel,rt-profile@6.12-rt \
///       --nic eth1 --vm web --save run.json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
#[command(group(clap::ArgGroup::new(COMPARED).multiple(true)))]
pub struct Args {
    /// The service to measure, as the client reaches it.
    #[arg(long, value_name = "HOST:PORT", required_unless_present = RESUME)]
    service: Option<String>,
    /// Run the client in this network namespace of `ip netns`.
    #[arg(long, value_name = "NAME", conflicts_with = "remote")]
    netns: Option<String>,
    /// Run the client on another machine: the command that runs a command there.
    #[arg(long, value_name = "COMMAND")]
    remote: Option<String>,
    /// Measure with and without what this file wants, instead of what is in force.
    #[arg(long, value_name = "FILE", conflicts_with = COMPARED)]
    file: Option<PathBuf>,
    #[arg(
        long,
        value_name = "METHODS",
        value_delimiter = ',',
        groups = [COMPARED, FOR_METHODS],
        help = format!("Compare these, each METHOD or METHOD@KERNEL. {}", methods_help())
    )]
    methods: Vec<AskedMethod>,
    /// Compare what these files want; a row is called as its file, without directory and ending.
    #[arg(long, value_name = "FILES", value_delimiter = ',', group = COMPARED)]
    files: Vec<PathBuf>,
    /// Measure each row that names no kernel on all of these kernels.
    #[arg(long, value_name = "KERNELS", value_delimiter = ',', requires = COMPARED, requires = "save")]
    kernels: Vec<String>,
    /// A VM that methods are for, and the VCPUs that run its service, such as web:1; may be repeated.
    #[arg(long = "vm", value_name = "VM", requires = FOR_METHODS)]
    vms: Vec<String>,
    /// The service of the file that is measured, where the file has several: its bound is held against the measurement.
    #[arg(long, value_name = "NAME")]
    bound: Option<String>,
    /// Keep the run in this file, which is not there yet, so that it goes on after a reboot.
    #[arg(long, value_name = "FILE", requires = COMPARED)]
    save: Option<PathBuf>,
    /// Go on with the run that this file has; all else is as it was when the run began.
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_A_NEW_RUN)]
    pub(super) resume: Option<PathBuf>,
    /// Counted requests under each row, over all rounds.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    samples: u64,
    /// Rounds; more rounds narrow the intervals more than more samples do.
    #[arg(long, value_name = "R", default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Requests per second, on average.
    #[arg(long, value_name = "N", default_value_t = 180.0, value_parser = rate)]
    rate: f64,
    /// Requests before the counted ones of each round.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    warmup: u64,
    /// Seed of the request schedules.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where results.json, report.html and the other files go; made if it does not exist.
    #[arg(long, value_name = "DIR", default_value = "out/measure")]
    out: PathBuf,
    #[command(flatten)]
    markdown: MarkdownArgs,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    pub(super) control: ControlArgs,
}

/// The group of options that name rows.
const COMPARED: &str = "compared";
const RESUME: &str = "resume";
/// What a saved run says itself.
const OF_A_NEW_RUN: [&str; 24] = [
    "service",
    "netns",
    "remote",
    "file",
    "methods",
    "files",
    "kernels",
    "vms",
    "bound",
    "save",
    "samples",
    "rounds",
    "rate",
    "warmup",
    "seed",
    "out",
    "markdown",
    "nics",
    "processes",
    "cpu",
    "rt_throttling_off",
    "keep_fair_server",
    "keep_housekeeping",
    "keep_vfio",
];

impl Args {
    /// The run that these arguments begin.
    ///
    /// # Errors
    /// What cannot be compared, or kept.
    pub fn new_run(&self) -> Result<Run, HostError> {
        let bad = |what: String, fix: &str| HostError::BadInput {
            what,
            fix: fix.to_owned(),
        };
        if self.samples < self.rounds {
            let (samples, rounds) = (self.samples, self.rounds);
            let what = format!("{samples} samples in {rounds} rounds: a round would have none");
            return Err(bad(what, "use more --samples or fewer --rounds"));
        }
        if self.save.is_some() && self.target.has_processes() {
            let what = "--process with --save: a process has another number after a reboot";
            return Err(bad(what.to_owned(), "leave one of them out"));
        }
        let rows = if self.methods.is_empty() && self.files.is_empty() {
            let with = match &self.file {
                Some(file) => Sets::of_file(file)?,
                None => Sets::Found,
            };
            rows::without_and_with(with)
        } else {
            rows::named(&self.methods, &self.files, &self.kernels)?
        };
        let load = Load {
            service: self.service.clone().unwrap_or_default(),
            netns: self.netns.clone(),
            remote: self.remote.clone(),
            samples: self.samples,
            rounds: self.rounds,
            rate: self.rate,
            warmup: self.warmup,
            seed: self.seed,
        };
        let lasting = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        // A run that goes on is typed anywhere.
        let place = |path: &Path| match self.save {
            Some(_) => lasting(path),
            None => path.to_owned(),
        };
        let mut run = Run::new(command_line("steadyvm"), load, rows);
        run.target = self.target.names();
        run.vms.clone_from(&self.vms);
        run.bound.clone_from(&self.bound);
        run.out = place(&self.out);
        run.markdown = self.markdown.file().map(place);
        Ok(run)
    }

    /// The file that the run is kept in, by a path that holds anywhere.
    ///
    /// # Errors
    /// A new run's file is there.
    pub fn kept_in(&self) -> Result<Option<PathBuf>, HostError> {
        if let Some(file) = self.save.as_ref().filter(|file| file.exists()) {
            return Err(HostError::BadInput {
                what: format!("--save {}: the file is there", file.display()),
                fix: format!("go on with its run by `{}`, or name another", go_on(file)),
            });
        }
        let file = self.save.as_ref().or(self.resume.as_ref());
        Ok(file.map(|file| std::path::absolute(file).unwrap_or_else(|_| file.clone())))
    }
}
