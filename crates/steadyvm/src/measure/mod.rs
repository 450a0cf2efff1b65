//! `steadyvm measure`: what steadyvm does for a service of this very host: with and without, or under any methods and files.
//!
//! - `rows`: what is compared: methods and files, on which kernel
//! - `kernel`: the kernel that runs, in the words of rows
//! - `run`: a run as far as it has come: what is kept over a reboot, and what is left
//! - `order`: what is measured when; pure
//! - `rounds`: makes the host what each row says, and measures
//! - `client`: the client, here or elsewhere
//! - `guard`: the process that restores the state that was found, at any end
//! - `record`: what the run says about itself, and its files
//! - `stop`: signals

mod client;
pub mod guard;
mod kernel;
pub mod order;
mod record;
mod rounds;
mod rows;
mod run;
mod stop;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use steadyvm_comparison::{answer, assemble, own_question, report, table, tables};
use steadyvm_host::{Desired, HostControl, HostError, State, Target};
use steadyvm_progress::Display;
use steadyvm_report::results_page::fenced;
use steadyvm_report::{Shown, write_run};
use steadyvm_site::guard::{Guard, NotRestored};
use steadyvm_site::peers::{self, Role};
use steadyvm_site::{Site, Source};
use steadyvm_stats::bootstrap::BootstrapOptions;

use crate::arguments::ControlArgs;
use crate::method::{FOR_METHODS, TargetArgs, methods_help};
use crate::netrt::{ClientArgs, rate};
use crate::this_program;
use steadyvm_cli::directory;
use steadyvm_cli::machine::command_line;
use steadyvm_cli::markdown::{self, MarkdownArgs};
use steadyvm_cli::output;

use self::client::{Client, Limits};
use self::kernel::Kernel;
use self::record::{Begun, Meta};
use self::rounds::{Rounds, States};
use self::rows::{AskedMethod, Row, Sets};
use self::run::{Load, Run};
use self::stop::Stop;

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
    /// Keep the run in this file, which is not there yet, so that it goes on after a reboot.
    #[arg(long, value_name = "FILE", requires = COMPARED)]
    save: Option<PathBuf>,
    /// Go on with the run that this file has; all else is as it was when the run began.
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_A_NEW_RUN)]
    resume: Option<PathBuf>,
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
    control: ControlArgs,
}

/// The group of options that name rows.
const COMPARED: &str = "compared";
const RESUME: &str = "resume";
/// What a saved run says itself.
const OF_A_NEW_RUN: [&str; 23] = [
    "service",
    "netns",
    "remote",
    "file",
    "methods",
    "files",
    "kernels",
    "vms",
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

/// Requests that show, before anything is changed, that the service answers.
const TRIAL: u64 = 10;

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let mut kept = None;
    match measure(args, &stop, &mut kept) {
        Err(error) if error.is::<NotRestored>() => Err(error),
        Err(error) => {
            if let Some(file) = kept {
                output::say(&format!(
                    "steadyvm: what is measured is kept; go on by: {}",
                    go_on(&file)
                ));
            }
            match stop.signal() {
                Some(signal) => {
                    eprintln!(
                        "steadyvm: ended by signal {signal}; the state found at the start is in force again"
                    );
                    Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)))
                }
                None => Err(error),
            }
        }
        done => done,
    }
}

/// The command that goes on with a run.
fn go_on(file: &Path) -> String {
    format!("steadyvm measure --resume {}", file.display())
}

/// `kept` is where the run is kept, once it is.
fn measure(args: &Args, stop: &Stop, kept: &mut Option<PathBuf>) -> Result<ExitCode> {
    let mut run = match &args.resume {
        Some(file) => Run::read(file)?,
        None => args.new_run()?,
    };
    let save = args.kept_in()?;
    let of_site = args.control.control();
    let control = of_site.open();
    let kernel = Kernel::of(control.machine());
    let here = run.rows_for(&kernel)?;
    if save.is_none() {
        refuse_other_kernels(&run, &kernel)?;
    }
    directory::prepare(&run.out)?;
    let found = in_force(&control)?;
    let states = states(&run, &here, found.as_ref(), &control)?;
    let program = this_program();
    let Load { netns, remote, .. } = &run.load;
    let client = Client::new(&program, netns.as_deref(), remote.as_deref());
    require_answers(&run.load, &client, stop)?;

    for row in here {
        run.rows[row].release = Some(kernel.release.clone());
    }
    let watch = peers::is_held(&of_site.directory, Role::Watch);
    let begun = Begun::now(&mut run, &control, watch)?;
    let display = Display::on_standard_error();
    let mut guard = Guard::start(&program, &of_site.directory, &run.load.service, found)?;
    if let Some(file) = &save {
        run.write(file)?;
        *kept = Some(file.clone());
    }
    let measured = Rounds {
        run: &mut run,
        client: &client,
        control: &control,
        states: &states,
        guard: &mut guard,
        stop,
        display: &display,
        patience: of_site.patience,
        save: save.as_deref(),
        set: None,
    }
    .measure();
    guard.restore()?;
    begun.end(&mut run);
    if let Some(file) = &save {
        run.write(file)?;
    }
    measured?;
    let meta = Meta::of(&run, &begun, &client, &control, &states);
    report_of(&run, &meta, args.control.json)?;
    if let Some(file) = &save {
        say_what_is_left(&run, &kernel, file);
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    /// The run that these arguments begin.
    fn new_run(&self) -> Result<Run, HostError> {
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
        run.target = self.target.clone();
        run.vms.clone_from(&self.vms);
        run.out = place(&self.out);
        run.markdown = self.markdown.file().map(place);
        Ok(run)
    }

    /// The file that the run is kept in, by a path that holds anywhere.
    fn kept_in(&self) -> Result<Option<PathBuf>, HostError> {
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

/// Refuses rows of other kernels where the run is not kept.
fn refuse_other_kernels(run: &Run, kernel: &Kernel) -> Result<(), HostError> {
    let waiting: Vec<String> = run.left_after(kernel).map(|it| it.words()).collect();
    if waiting.is_empty() {
        return Ok(());
    }
    Err(HostError::BadInput {
        what: format!(
            "this kernel, {} ({}), is not for all rows: {}",
            kernel.release,
            kernel.name(),
            waiting.join(", ")
        ),
        fix: "keep the run with --save FILE to go on after a reboot, or leave them out".into(),
    })
}

/// What is in force now.
fn in_force(control: &HostControl) -> Result<Option<Desired>, HostError> {
    if control.show()?.state == State::Incomplete {
        return Err(HostError::BadInput {
            what: "an apply or undo was interrupted: there is no state to measure and to restore"
                .into(),
            fix: "run `steadyvm undo` first".into(),
        });
    }
    control.desired_in_force()
}

/// What the host is to have for each row of this boot. What it cannot have is found before anything is taken back.
fn states(
    run: &Run,
    here: &[usize],
    found: Option<&Desired>,
    control: &HostControl,
) -> Result<States> {
    let rows = || here.iter().map(|row| (*row, &run.rows[*row]));
    let is_method = |row: &Row| matches!(row.sets, Sets::Method(_));
    let target = if rows().any(|(_, row)| is_method(row)) {
        run.target.target(&run.vms)?
    } else {
        Target::default()
    };
    let mut states = States::new();
    for (place, row) in rows() {
        let desired = match &row.sets {
            Sets::Nothing => None,
            Sets::Method(method) => Some(control.desired_of(&target, *method)?),
            Sets::File { path, .. } => Some(Site::read(&Source::of(path))?.desired()),
            Sets::Found => Some(found.cloned().ok_or_else(|| {
                HostError::BadInput {
                    what: "nothing is in force on this host, so there is nothing to measure".into(),
                    fix: "run `steadyvm apply` first, or name a file with --file, or methods with \
                      --methods"
                        .into(),
                }
            })?),
        };
        if let Some(desired) = &desired
            && found.is_none()
        {
            control.plan_desired(desired)?;
        }
        states.insert(place, desired);
    }
    Ok(states)
}

fn require_answers(load: &Load, client: &Client, stop: &Stop) -> Result<()> {
    let arguments = ClientArgs {
        warmup: 0,
        ..load.client(load.seed, TRIAL)
    };
    let limits = Limits::of(TRIAL, 0, load.rate);
    let trial = client.run(&arguments, limits, stop, &mut |_| {})?;
    if trial.counters.answered == 0 {
        bail!(
            "{} did not answer the client ({}); run `steadyvm netrt serve 0.0.0.0:PORT` in the VM, and see that \
             the client reaches it; nothing was changed",
            load.service,
            client.title()
        );
    }
    Ok(())
}

/// Writes and prints what is measured.
fn report_of(run: &Run, meta: &Meta, json: bool) -> Result<()> {
    let data = run.data();
    let mut figures = assemble(&data, BootstrapOptions::default());
    figures.notes.extend(run.notes.iter().cloned());
    figures.notes.extend(run.notes_of_boots());
    if data.methods.is_empty() {
        bail!("no round can be used: {}", figures.notes.join("; "));
    }
    let shown = Shown {
        text: table::render(&figures),
        html: report::render(&figures, &meta.report_meta()),
    };
    write_run(&run.out, &figures, meta, &shown, &tables(&data)?)?;
    if let Some(page) = &run.markdown {
        let answer = answer(&figures, own_question(&figures.rows));
        let tables = fenced(&shown.text);
        markdown::write_page(page, &answer, record::WARNING, meta.facts(), &tables)?;
    }
    if json {
        return output::json(&figures);
    }
    output::print(&shown.text)?;
    let report = run.out.join("report.html");
    output::line(&format!("\nreport: {}", report.display()))
}

/// Which kernel to boot, and what to type there.
fn say_what_is_left(run: &Run, kernel: &Kernel, file: &Path) {
    let Some(next) = run.left_after(kernel).next() else {
        return;
    };
    let left: Vec<String> = run.left_after(kernel).map(|it| it.words()).collect();
    output::say(&format!(
        "steadyvm: {}; reboot into {}, then run: {}",
        left.join(", "),
        next.kernel,
        go_on(file)
    ));
}
