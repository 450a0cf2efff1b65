//! `steadyvm`: consistent latency for network services in virtual machines.

mod apply;
mod arguments;
mod calibrate;
mod capacity;
mod doctor;
mod explain;
mod exporter;
mod gone;
mod hook;
mod measure;
mod method;
mod netrt;
mod plan;
mod sched;
mod simulate;
mod snapshot;
mod sockets;
mod status;
mod top;
mod undo;
mod up;
mod watch;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use steadyvm_cli::{build, command, generate, output};
use steadyvm_config::page;
use steadyvm_fault::Fault;
use steadyvm_host::HostError;

/// This program as its documents have it.
fn documented() -> generate::Program {
    generate::Program {
        command: command::shown::<CommandLine>(),
        for_programs: &["capacity", "hook", "netrt"],
        page: "docs/reference/cli.md",
        files: vec![generate::File {
            name: "steadyvm.toml",
            man: page::man(env!("CARGO_PKG_VERSION")),
            markdown: page::markdown(),
            page: "docs/reference/steadyvm.toml.md",
        }],
    }
}

/// Consistent latency for network services in virtual machines on shared Linux hosts.
///
/// Exit codes: 0 done and within bounds, 1 a bound or deadline was missed or something differs, 2 wrong use or bad
/// input, 3 this machine cannot do it.
#[derive(Parser)]
#[command(version, long_version = build::LONG_VERSION, about)]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Apply(apply::Args),
    Calibrate(calibrate::Args),
    Doctor(doctor::Args),
    Explain(explain::Args),
    Exporter(exporter::Args),
    Measure(Box<measure::Args>),
    Plan(plan::Args),
    Simulate(simulate::Args),
    Sockets(sockets::Args),
    Status(status::Args),
    Top(top::Args),
    Undo(undo::Args),
    Up(up::Args),
    Watch(watch::Args),
    // What only programs and experts call.
    #[command(hide = true)]
    Capacity(capacity::Args),
    #[command(hide = true)]
    Generate(generate::Args),
    #[command(hide = true)]
    Hook(hook::Args),
    #[command(hide = true)]
    Netrt(netrt::Args),
    #[command(hide = true)]
    RestoreAtEnd(measure::guard::Args),
    #[command(hide = true)]
    Sched(sched::Args),
    // Of before.
    #[command(hide = true)]
    Host(gone::Args),
    #[command(hide = true)]
    Net(gone::Args),
}

fn main() -> ExitCode {
    let verb = command::read::<CommandLine>().verb;
    let outcome = match verb {
        Verb::Apply(args) => apply::run(&args),
        Verb::Status(args) => status::run(&args),
        Verb::Undo(args) => undo::run(&args),
        Verb::Watch(args) => watch::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Calibrate(args) => calibrate::run(&args),
        Verb::Capacity(args) => capacity::run(&args),
        Verb::Explain(args) => explain::run(&args),
        Verb::Exporter(args) => exporter::run(&args),
        Verb::Generate(args) => generate::run(&args, documented()),
        Verb::Host(args) => gone::run_group("host", &args),
        Verb::Measure(args) => measure::run(&args),
        Verb::RestoreAtEnd(args) => measure::guard::run(&args),
        Verb::Net(args) => gone::run_group("net", &args),
        Verb::Netrt(args) => netrt::run(&args),
        Verb::Sched(args) => sched::run(&args),
        Verb::Sockets(args) => sockets::run(&args),
        Verb::Top(args) => top::run(&args),
        Verb::Up(args) => up::run(&args),
        // What goes wrong with a plan is its input.
        Verb::Plan(args) => return plan::run(&args).unwrap_or_else(|error| complain(&error, 2)),
        Verb::Hook(args) => return hook::run(&args),
        Verb::Simulate(args) => {
            return simulate::run(&args).unwrap_or_else(|error| complain(&error, 2));
        }
    };
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
    if let Some(error) = error.downcast_ref::<steadyvm_measure::Error>() {
        return error.exit_code();
    }
    if let Some(error) = error.downcast_ref::<steadyvm_site::Error>() {
        return error.exit_code();
    }
    if let Some(error) = error.downcast_ref::<steadyvm_sched::Error>() {
        return error.exit_code();
    }
    error
        .downcast_ref()
        .map_or(3, |error: &HostError| error.blame().exit_code())
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
