//! `steadyvm measure`: what steadyvm does for a service of this very host, with and without.
//!
//! - `order`: what is measured when; pure
//! - `client`: the client, here or elsewhere
//! - `guard`: the process that restores the state that was found, at any end
//! - `record`: what the run says about itself, and its files

mod client;
pub mod guard;
pub mod order;
mod record;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use steadyvm_comparison::{
    CpuTimes, MethodData, OWN_QUESTION, PhaseData, RoundData, RunData, Service, answer, assemble,
    report, table, tables,
};
use steadyvm_host::{Desired, HostControl, HostError, State, Undone};
use steadyvm_progress::{News, Observer};
use steadyvm_report::results_page::fenced;
use steadyvm_report::{Shown, write_run};
use steadyvm_stats::bootstrap::BootstrapOptions;

use steadyvm_site::guard::{Guard, NotRestored, patiently};
use steadyvm_site::{Site, Source};

use crate::arguments::ControlArgs;
use crate::netrt::{ClientArgs, rate};
use crate::this_program;
use steadyvm_cli::directory;
use steadyvm_cli::markdown::MarkdownArgs;
use steadyvm_cli::output;
use steadyvm_progress::Display;

use self::client::{Client, Limits};
use self::order::Condition;
use self::record::Run;

/// Measure a service of this host with and without what steadyvm has in force, in turn.
///
/// Each round measures the service twice: once with all settings undone, once with all of them in
/// force. Every second round begins with the other one. What else runs on this host runs on: start
/// the load that you care about first. The report has both distributions, and their ratios with 95 %
/// intervals.
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
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The service to measure, as the client reaches it.
    #[arg(long, value_name = "HOST:PORT")]
    service: String,
    /// Run the client in this network namespace of `ip netns`.
    #[arg(long, value_name = "NAME", conflicts_with = "remote")]
    netns: Option<String>,
    /// Run the client on another machine: the command that runs a command there.
    #[arg(long, value_name = "COMMAND")]
    remote: Option<String>,
    /// Measure what this file wants, instead of what is in force.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Counted requests with and without each, over all rounds.
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
    control: ControlArgs,
}

/// Requests that show, before anything is changed, that the service answers.
const TRIAL: u64 = 10;

/// How long it may take to make the host what a condition says: `sched_ext` is verified for minutes beside computing VCPUs.
const SETTING: Duration = Duration::from_secs(180);

/// The guard waits so much longer than the measurement itself waits for its client.
const MARGIN: Duration = Duration::from_secs(15);

/// How long the kernel may refuse a setting before a measurement ends.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    match measure(args, &stop) {
        Err(error) if error.is::<NotRestored>() => Err(error),
        Err(error) => match stop.signal() {
            Some(signal) => {
                eprintln!(
                    "steadyvm: ended by signal {signal}; the state found at the start is in force again"
                );
                Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)))
            }
            None => Err(error),
        },
        done => done,
    }
}

fn measure(args: &Args, stop: &Stop) -> Result<ExitCode> {
    if args.samples < args.rounds {
        return Err(HostError::BadInput {
            what: format!(
                "{} samples in {} rounds: a round would have none",
                args.samples, args.rounds
            ),
            fix: "use more --samples or fewer --rounds".into(),
        }
        .into());
    }
    directory::prepare(&args.out)?;
    let of_site = args.control.control();
    let control = of_site.open();
    let (found, with) = states(args, &control)?;
    let program = this_program();
    let client = Client::new(&program, args.netns.as_deref(), args.remote.as_deref());
    let mut run = Run::begin(args, &client, &control, &with);
    require_answers(args, &client, stop)?;

    let display = Display::on_standard_error();
    let mut guard = Guard::start(&program, &of_site.directory, &args.service, found)?;
    let measured = Rounds {
        args,
        client: &client,
        control: &control,
        with: &with,
        guard: &mut guard,
        stop,
        display: &display,
        notes: Vec::new(),
    }
    .run();
    guard.restore()?;
    let (data, notes) = measured?;

    let mut figures = assemble(&data, BootstrapOptions::default());
    figures.notes.extend(notes);
    run.end();
    let shown = Shown {
        text: table::render(&figures),
        html: report::render(&figures, &run.report_meta()),
    };
    write_run(&args.out, &figures, &run, &shown, &tables(&data)?)?;
    let rendered = shown.text;
    let (answer, tables) = (answer(&figures, OWN_QUESTION), fenced(&rendered));
    args.markdown
        .write_page(&answer, record::WARNING, run.facts(), &tables)?;
    if args.control.json {
        output::json(&figures)?;
    } else {
        output::print(&rendered)?;
        output::line(&format!(
            "\nreport: {}",
            args.out.join("report.html").display()
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is in force now, and what "with" means.
fn states(args: &Args, control: &HostControl) -> Result<(Option<Desired>, Desired)> {
    let bad = |what: &str, fix: &str| HostError::BadInput {
        what: what.to_owned(),
        fix: fix.to_owned(),
    };
    if control.show()?.state == State::Incomplete {
        return Err(bad(
            "an apply or undo was interrupted: there is no state to measure and to restore",
            "run `steadyvm undo` first",
        )
        .into());
    }
    let found = control.desired_in_force()?;
    let with = match (&args.file, &found) {
        (Some(file), _) => Site::read(&Source::of(file))?.desired(),
        (None, Some(found)) => found.clone(),
        (None, None) => {
            return Err(bad(
                "nothing is in force on this host, so there is nothing to measure",
                "run `steadyvm apply` first, or name a file with --file",
            )
            .into());
        }
    };
    // What this host cannot do is found before anything is taken back.
    if args.file.is_some() && found.is_none() {
        control.plan_profile(&with.profile)?;
    }
    Ok((found, with))
}

fn require_answers(args: &Args, client: &Client, stop: &Stop) -> Result<()> {
    let arguments = ClientArgs {
        samples: TRIAL,
        warmup: 0,
        ..args.client(args.seed, TRIAL)
    };
    let limits = Limits::of(TRIAL, 0, args.rate);
    let trial = client.run(&arguments, limits, stop, &mut |_| {})?;
    if trial.counters.answered == 0 {
        bail!(
            "{} did not answer the client ({}); run `steadyvm netrt serve 0.0.0.0:PORT` in the VM, and see that \
             the client reaches it; nothing was changed",
            args.service,
            client.title()
        );
    }
    Ok(())
}

/// What is in force, to tell whether others have changed it.
#[derive(PartialEq, Eq)]
struct InForce {
    state: State,
    applied_unix_s: Option<u64>,
    /// Each setting, its value, and whether it holds.
    settings: Vec<(String, String, bool)>,
}

impl Args {
    fn client(&self, seed: u64, samples: u64) -> ClientArgs {
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

/// The rounds of a measurement.
struct Rounds<'a> {
    args: &'a Args,
    client: &'a Client,
    control: &'a HostControl,
    with: &'a Desired,
    guard: &'a mut Guard,
    stop: &'a Stop,
    display: &'a Display,
    notes: Vec<String>,
}

impl Rounds<'_> {
    fn run(mut self) -> Result<(RunData, Vec<String>)> {
        let mut methods = Condition::ALL.map(|condition| MethodData {
            name: condition.name().to_owned(),
            rounds: Vec::new(),
        });
        let name = format!("measure {}", self.args.service);
        self.display.tell(News::Begin(name));
        let rounds = self.args.rounds;
        for round in 0..rounds {
            let mut both = Vec::new();
            for condition in order::of_round(round) {
                self.set(condition, round)?;
                both.extend(
                    self.measure(condition, round)?
                        .map(|idle| (condition, idle)),
                );
            }
            // A round is one of both, or of neither.
            if both.len() < Condition::ALL.len() {
                continue;
            }
            for (condition, idle) in both {
                let place = Condition::ALL.iter().position(|it| *it == condition);
                methods[place.unwrap_or(0)].rounds.push(RoundData {
                    idle,
                    full: PhaseData::not_measured(),
                    equal: PhaseData::not_measured(),
                });
            }
        }
        self.display.tell(News::End);
        if methods[0].rounds.is_empty() {
            bail!("no round can be used: {}", self.notes.join("; "));
        }
        let data = RunData {
            service: Service::Own,
            methods: methods.into(),
        };
        Ok((data, self.notes))
    }

    /// Makes the host what the condition says.
    fn set(&mut self, condition: Condition, round: u64) -> Result<()> {
        self.stop.check()?;
        self.guard
            .allow(SETTING + self.args.control.control().patience)?;
        let round = round + 1;
        match condition {
            Condition::Without => {
                let none_failed = |undone: &Undone| undone.failed.is_empty();
                let undo = || self.control.undo();
                let undone = patiently(PATIENCE, none_failed, undo)?;
                let left = undone.failed.iter().chain(&undone.postponed);
                let left: Vec<String> = left.chain(&undone.changed_by_others).cloned().collect();
                if !undone.failed.is_empty() {
                    bail!("cannot take the settings back: {}", left.join("; "));
                }
                let notes = left
                    .iter()
                    .map(|what| format!("round {round}, without: {what}"));
                self.notes.extend(notes);
            }
            Condition::With => {
                let reconcile = || self.control.reconcile_each(self.with);
                let report = patiently(PATIENCE, |_| true, reconcile)?;
                let failed = report.failed.iter().map(ToString::to_string);
                let refused = report.skipped.iter().cloned().chain(failed);
                let refused = refused.map(|what| format!("round {round}, with: refused: {what}"));
                self.notes.extend(refused);
                if self.control.show()?.has_drifted() {
                    let note = format!("round {round}, with: not all settings held");
                    self.notes.push(note);
                }
            }
        }
        Ok(())
    }

    /// What is in force: since when, and each setting with whether it holds.
    fn in_force(&self) -> Result<InForce> {
        let shown = self.control.show()?;
        let settings = shown.settings.into_iter();
        Ok(InForce {
            state: shown.state,
            applied_unix_s: shown.applied_unix_s,
            settings: settings.map(|it| (it.subject, it.new, it.holds)).collect(),
        })
    }

    /// None if others changed the settings meanwhile.
    fn measure(&mut self, condition: Condition, round: u64) -> Result<Option<PhaseData>> {
        let args = self.args;
        let samples = order::samples_of_round(args.samples, args.rounds, round);
        let arguments = args.client(args.seed.wrapping_add(round), samples);
        let mut advance = |answered: u64| {
            self.display.tell(News::Advance {
                done: done_before(args, condition, round) + answered.min(samples),
                of: 2 * args.samples,
                detail: format!(
                    "round {} of {}, {}",
                    round + 1,
                    args.rounds,
                    condition.name()
                ),
            });
        };
        advance(0);
        let limits = Limits::of(samples, args.warmup, args.rate);
        self.guard.allow(limits.whole + MARGIN)?;
        let in_force = self.in_force()?;
        let before = cpu_times()?;
        let netrt = self
            .client
            .run(&arguments, limits, self.stop, &mut advance)?;
        let after = cpu_times()?;
        if self.in_force()? != in_force {
            self.notes.push(format!(
                "round {}, {}: the settings changed while it was measured: the round is left out",
                round + 1,
                condition.name()
            ));
            return Ok(None);
        }
        Ok(Some(PhaseData {
            netrt,
            host_cpu_busy_fraction: after.busy_fraction_since(&before),
            ..PhaseData::not_measured()
        }))
    }
}

/// Samples of the rounds before, and of the condition before in the same round.
fn done_before(args: &Args, condition: Condition, round: u64) -> u64 {
    let of = |round| order::samples_of_round(args.samples, args.rounds, round);
    let earlier: u64 = (0..round).map(|round| 2 * of(round)).sum();
    let is_first = order::of_round(round)[0] == condition;
    earlier + if is_first { 0 } else { of(round) }
}

fn cpu_times() -> Result<CpuTimes> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let line = text.lines().next().unwrap_or_default();
    CpuTimes::parse(line).context("/proc/stat does not begin with the CPU time of all CPUs")
}

/// Whether a signal asked this process to end.
pub struct Stop(Arc<AtomicUsize>);

impl Stop {
    fn on_signals() -> Result<Self> {
        let number = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let value = usize::try_from(signal)?;
            signal_hook::flag::register_usize(signal, Arc::clone(&number), value)?;
        }
        Ok(Self(number))
    }

    fn signal(&self) -> Option<i32> {
        let number = self.0.load(Ordering::Relaxed);
        i32::try_from(number).ok().filter(|number| *number > 0)
    }

    /// Fails if one did.
    fn check(&self) -> Result<()> {
        match self.signal() {
            None => Ok(()),
            Some(signal) => bail!("ended by signal {signal}"),
        }
    }
}
