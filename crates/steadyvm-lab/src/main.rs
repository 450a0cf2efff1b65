//! `steadyvm-lab`: an emulated host, and experiments in it.

mod beginning;
mod compare;
mod experiment;
mod kernel;
mod lab;
mod load;
mod methods;

use clap::{Parser, Subcommand};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use steadyvm_cli::{build, command, generate, output};
use steadyvm_fault::Fault;
use steadyvm_lab::progress::Display;
use steadyvm_lab::{child, init};

/// This program as its documents have it.
fn documented() -> generate::Program {
    generate::Program {
        command: command::shown::<CommandLine>(),
        for_programs: &[],
        page: "docs/reference/lab-cli.md",
        files: Vec::new(),
    }
}

/// An emulated host for steadyvm, and experiments in it.
///
/// It boots real kernels with real KVM and real guests in QEMU, on any machine. The machines carry this program and the
/// steadyvm beside it, which must be of the same build.
///
/// Exit codes: 0 done, 2 wrong use or bad input, 3 this machine cannot do it. Those of run are its command's.
#[derive(Parser)]
#[command(name = "steadyvm-lab", version, long_version = build::LONG_VERSION, about)]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Serve the lab's control channel (runs inside machines of the lab).
    #[command(hide = true)]
    Agent,
    /// Run a guest and carry its control channel (runs inside the emulated host).
    #[command(hide = true)]
    Carry(lab::CarryArgs),
    Compare(compare::Args),
    Experiment(experiment::Args),
    #[command(hide = true)]
    Generate(generate::Args),
    Load(load::Args),
    Prepare(lab::PrepareArgs),
    Run(lab::RunArgs),
    Shell(lab::ShellArgs),
}

fn main() -> ExitCode {
    if init::is_first_process() {
        init::run();
    }
    let verb = command::read::<CommandLine>().verb;
    let starts_machines = !matches!(
        verb,
        Verb::Agent | Verb::Carry(_) | Verb::Generate(_) | Verb::Load(_)
    );
    if starts_machines {
        end_children_on_signals();
    }
    let outcome = match verb {
        Verb::Agent => lab::agent(),
        Verb::Carry(args) => lab::carry(&args),
        Verb::Compare(args) => compare::run(&args),
        Verb::Experiment(args) => experiment::run(&args),
        Verb::Generate(args) => generate::run(&args, documented()),
        Verb::Load(args) => load::run(&args),
        Verb::Prepare(args) => lab::prepare(&args),
        Verb::Run(args) => lab::run(&args),
        Verb::Shell(args) => lab::shell(&args),
    };
    if child::all_are_killed() {
        // A signal ends this program, and says so; what the children's end made of the verb is noise.
        loop {
            thread::park();
        }
    }
    outcome.unwrap_or_else(|error| {
        output::say(&format!("steadyvm-lab: {error:#}"));
        let fault = error.downcast_ref::<Fault>();
        ExitCode::from(fault.map_or(3, |fault| fault.blame.exit_code()))
    })
}

/// For verbs that start machines: Ctrl-C and its kin end what this program started, then the
/// program. Nothing else is left behind: namespaces and their devices go with the last process
/// that uses them.
fn end_children_on_signals() {
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else {
        return;
    };
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            child::kill_all();
            eprintln!("steadyvm-lab: ended by signal {signal}; everything it started is gone");
            std::process::exit(128 + signal);
        }
    });
}

/// Where progress is shown.
fn display() -> Display {
    Display::until(child::all_are_killed, child::none_can_be_started)
}

/// This program's file, which is there even if a newer build has replaced it meanwhile.
fn this_program() -> PathBuf {
    PathBuf::from(format!("/proc/{}/exe", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_help_names_the_source_tree_has_a_back_tick_or_is_broken_by_a_terminal() {
        assert_eq!(
            steadyvm_cli::help::faults(&command::shown::<CommandLine>()),
            [""; 0]
        );
    }

    #[test]
    fn the_reference_in_docs_is_of_this_program_and_every_verb_has_a_man_page() {
        let repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let directory = tempfile::tempdir().unwrap();
        let read = |page: &str| std::fs::read_to_string(repository.join(page));
        let faults = generate::faults(&documented(), read, directory.path()).unwrap();
        assert_eq!(faults, [""; 0]);
    }
}
