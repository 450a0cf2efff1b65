//! `steadyvm measure`: what steadyvm does for a service of this very host: with and without, or under any methods and files.
//!
//! - `arguments`: what is asked for
//! - `rows`: what is compared: methods and files, on which kernel
//! - `kernel`: the kernel that runs, in the words of rows
//! - `run`: a run as far as it has come: what is kept over a reboot, and what is left
//! - `order`: what is measured when; pure
//! - `rounds`: makes the host what each row says, and measures
//! - `client`: the client, here or elsewhere
//! - `guard`: the process that restores the state that was found, at any end
//! - `bound`: a plan's bound beside what is measured
//! - `record`: what the run says about itself, and its files
//! - `stop`: signals

mod arguments;
mod bound;
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
use steadyvm_site::{Site, Source, bounds};
use steadyvm_stats::bootstrap::BootstrapOptions;

use crate::method::warn;
use crate::netrt::ClientArgs;
use crate::this_program;
use steadyvm_cli::directory;
use steadyvm_cli::markdown;
use steadyvm_cli::output;

pub use self::arguments::Args;
use self::bound::Planned;
use self::client::{Client, Limits};
use self::kernel::Kernel;
use self::record::{Begun, Meta};
use self::rounds::{Rounds, States};
use self::rows::{Row, Sets};
use self::run::{Load, Run};
use self::stop::Stop;

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
    let states = states(&mut run, &here, found.as_ref(), &control)?;
    let program = this_program();
    let Load { netns, remote, .. } = &run.load;
    let client = Client::new(&program, netns.as_deref(), remote.as_deref());
    require_answers(&run.load, &client, stop)?;

    for row in here {
        run.rows[row].release = Some(kernel.release.clone());
    }
    // What is in force afterwards, too: `status` has no word of the others.
    let lasting: Vec<usize> = (states.iter())
        .filter(|(_, desired)| desired.is_some() && **desired == found)
        .map(|(row, _)| *row)
        .collect();
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
    let boot = run.boots.len() - 1;
    let rows = lasting.iter().map(|row| &run.rows[*row]);
    let measured: Vec<_> = rows.filter_map(|row| row.held_to_bound(boot)).collect();
    if let Err(error) = bounds::keep(&of_site.directory, &measured) {
        let directory = of_site.directory.display();
        output::say(&format!(
            "steadyvm: `status` will not know of this measurement: cannot write to {directory}: {error}"
        ));
    }
    if let Some(file) = &save {
        say_what_is_left(&run, &kernel, file);
    }
    Ok(ExitCode::SUCCESS)
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
    run: &mut Run,
    here: &[usize],
    found: Option<&Desired>,
    control: &HostControl,
) -> Result<States> {
    let is_method = |row: &Row| matches!(row.sets, Sets::Method(_));
    let target = if here.iter().any(|&row| is_method(&run.rows[row])) {
        run.target.find(&run.vms, warn)?
    } else {
        Target::default()
    };
    let mut states = States::new();
    let named = run.bound.clone();
    for &place in here {
        let row = &mut run.rows[place];
        let desired = match &row.sets {
            Sets::Nothing => None,
            Sets::Method(method) => Some(control.desired_of(&target, *method)?),
            Sets::File { path, .. } => {
                let site = Site::read(&Source::of(path))?;
                row.planned = Planned::of(path, &site, named.as_deref());
                Some(site.desired())
            }
            Sets::Found => {
                let found = found.ok_or_else(nothing_is_in_force)?;
                row.planned = Planned::of_found(found, named.as_deref());
                Some(found.clone())
            }
        };
        if let Some(desired) = &desired
            && found.is_none()
        {
            control.plan_desired(desired)?;
        }
        states.insert(place, desired);
    }
    match named {
        Some(name)
            if here.len() == run.rows.len() && run.rows.iter().all(|it| it.planned.is_none()) =>
        {
            Err(HostError::BadInput {
                what: format!("--bound {name}: no row's plan has a service of that name"),
                fix: "name a file with a [[service]] by --file or --files".into(),
            }
            .into())
        }
        _ => Ok(states),
    }
}

fn nothing_is_in_force() -> HostError {
    HostError::BadInput {
        what: "nothing is in force on this host, so there is nothing to measure".into(),
        fix: "run `steadyvm apply` first, or name a file with --file, or methods with --methods"
            .into(),
    }
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
    figures
        .notes
        .extend(run.rows.iter().flat_map(Row::notes_of_bound));
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
