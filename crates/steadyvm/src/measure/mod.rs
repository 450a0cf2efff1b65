//! `steadyvm measure`: what steadyvm does for a service of this very host: with and without, or under any methods and files.
//!
//! - `arguments`: what is asked for
//! - `guard`: the process that restores the state that was found, at any end
//!
//! What it does is `steadyvm_measure`'s: here it is told, printed and ended.

mod arguments;
pub mod guard;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use steadyvm_comparison::{answer, own_question, report, table, tables};
use steadyvm_measure::{Error, Means, Meta, Run, Session, Stop, Waiting, record};
use steadyvm_progress::Display;
use steadyvm_report::results_page::fenced;
use steadyvm_report::{Shown, write_run};

use crate::method::warn;
use crate::this_program;
use steadyvm_cli::build;
use steadyvm_cli::directory;
use steadyvm_cli::markdown;
use steadyvm_cli::output;

pub use self::arguments::Args;

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let mut kept = None;
    match measure(args, &stop, &mut kept) {
        Err(error) if is_not_restored(&error) => Err(error),
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

fn is_not_restored(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::NotRestored(_)))
}

/// The command that goes on with a run.
fn go_on(file: &Path) -> String {
    format!("steadyvm measure --resume {}", file.display())
}

/// `kept` is where the run is kept, once it is.
fn measure(args: &Args, stop: &Stop, kept: &mut Option<PathBuf>) -> Result<ExitCode> {
    let run = match &args.resume {
        Some(file) => Run::read(file)?,
        None => args.new_run()?,
    };
    let save = args.kept_in()?;
    let of_site = args.control.control();
    let mut session = Session::new(run, of_site.clone(), save)?;
    directory::prepare(&session.run().out)?;
    let measured = session.measure(&Means {
        program: &this_program(),
        revision: build::REVISION,
        stop,
        observer: &Display::on_standard_error(),
        warn: &warn,
    });
    *kept = session.kept().map(Path::to_owned);
    report_of(session.run(), &measured?, args.control.json)?;
    if let Err(error) = session.keep_bounds() {
        let directory = of_site.directory.display();
        output::say(&format!(
            "steadyvm: `status` will not know of this measurement: cannot write to {directory}: {error}"
        ));
    }
    if let Some(file) = session.kept() {
        say_what_is_left(&session, file);
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes and prints what is measured.
fn report_of(run: &Run, meta: &Meta, json: bool) -> Result<()> {
    let data = run.data();
    let figures = run.figures(&data);
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
fn say_what_is_left(session: &Session, file: &Path) {
    let waiting = session.waiting();
    let Some(next) = waiting.first() else {
        return;
    };
    let left: Vec<String> = waiting.iter().map(Waiting::words).collect();
    output::say(&format!(
        "steadyvm: {}; reboot into {}, then run: {}",
        left.join(", "),
        next.kernel,
        go_on(file)
    ));
}
