//! `steadyvm`: consistent latency for network services in virtual machines.

mod capacity;
mod compare;
mod directory;
mod doctor;
mod experiment;
mod explain;
mod generate;
mod hook;
mod host;
mod kernel;
mod lab;
mod load;
mod machine;
mod markdown;
mod measure;
mod methods;
mod net;
mod netrt;
mod output;
mod plan;
mod progress;
mod sched;
mod simulate;
mod site;
mod sockets;
mod top;
mod up;

use clap::{Parser, Subcommand};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use steadyvm_fault::Fault;
use steadyvm_host::HostError;
use steadyvm_lab::{child, init};

/// Consistent latency for network services in virtual machines on shared Linux hosts.
///
/// Exit codes: 0 done and within bounds, 1 a bound or deadline was missed, 2 wrong use or bad
/// input, 3 this machine cannot do it.
#[derive(Parser)]
#[command(version, about)]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Apply(site::apply::Args),
    Doctor(doctor::Args),
    Capacity(capacity::Args),
    Compare(compare::Args),
    Explain(explain::Args),
    #[command(hide = true)]
    Generate(generate::Args),
    Hook(hook::Args),
    Host(host::Args),
    Lab(lab::Args),
    Load(load::Args),
    Measure(measure::Args),
    Net(net::Args),
    Netrt(netrt::Args),
    Plan(plan::Args),
    #[command(hide = true)]
    RestoreAtEnd(measure::guard::Args),
    Sched(sched::Args),
    Simulate(simulate::Args),
    Sockets(sockets::Args),
    Status(site::status::Args),
    Top(top::Args),
    Undo(site::undo::Args),
    Up(up::Args),
    Watch(site::watch::Args),
}

fn main() -> ExitCode {
    if init::is_first_process() {
        init::run();
    }
    let verb = CommandLine::parse().verb;
    if matches!(verb, Verb::Compare(_) | Verb::Lab(_)) {
        end_children_on_signals();
    }
    let outcome = match verb {
        Verb::Apply(args) => site::apply::run(&args),
        Verb::Status(args) => site::status::run(&args),
        Verb::Undo(args) => site::undo::run(&args),
        Verb::Watch(args) => site::watch::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Capacity(args) => capacity::run(&args),
        Verb::Compare(args) => compare::run(&args),
        Verb::Explain(args) => explain::run(&args),
        Verb::Generate(args) => generate::run(&args),
        Verb::Host(args) => host::run(&args),
        Verb::Lab(args) => lab::run(&args),
        Verb::Load(args) => load::run(&args),
        Verb::Measure(args) => measure::run(&args),
        Verb::RestoreAtEnd(args) => measure::guard::run(&args),
        Verb::Net(args) => net::run(&args),
        Verb::Netrt(args) => netrt::run(&args),
        Verb::Sched(args) => sched::run(&args),
        Verb::Sockets(args) => sockets::run(&args),
        Verb::Top(args) => top::run(&args),
        Verb::Up(args) => up::run(&args),
        // What goes wrong with a plan is its input.
        Verb::Plan(args) => return plan::run(&args).unwrap_or_else(|error| complain(&error, 2)),
        Verb::Hook(args) => return hook::run(args),
        Verb::Simulate(args) => {
            return simulate::run(&args).unwrap_or_else(|error| complain(&error, 2));
        }
    };
    if child::all_are_killed() {
        // A signal ends this program, and says so; what the children's end made of the verb is noise.
        loop {
            thread::park();
        }
    }
    outcome.unwrap_or_else(|error| complain(&error, exit_code(&error)))
}

fn complain(error: &anyhow::Error, code: u8) -> ExitCode {
    output::say(&format!("steadyvm: {error:#}"));
    ExitCode::from(code)
}

fn exit_code(error: &anyhow::Error) -> u8 {
    if let Some(fault) = error.downcast_ref::<Fault>() {
        return fault.blame.exit_code();
    }
    if error.is::<site::NotFeasible>() {
        return 1;
    }
    if let Some(error) = error.downcast_ref::<steadyvm_sched::Error>() {
        return error.exit_code();
    }
    error
        .downcast_ref()
        .map_or(3, |error: &HostError| error.blame().exit_code())
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
            eprintln!("steadyvm: ended by signal {signal}; everything it started is gone");
            std::process::exit(128 + signal);
        }
    });
}

/// This program's file, which is there even if a newer build has replaced it meanwhile.
fn this_program() -> PathBuf {
    PathBuf::from(format!("/proc/{}/exe", std::process::id()))
}
