//! Verbs of before: each says what takes its place, and does nothing else.

use std::process::ExitCode;

use anyhow::Result;
use steadyvm_host::HostError;

/// What a verb of before was called with.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

const METHOD: &str = "apply --method METHOD --nic IF --vm NAME";

/// The group and the verb of before, and what does it now.
type Verb = (&'static str, &'static str, &'static str);

const VERBS: [Verb; 10] = [
    ("host", "apply", METHOD),
    (
        "host",
        "plan",
        "apply --dry-run --method METHOD --nic IF --vm NAME",
    ),
    ("host", "show", "status"),
    ("host", "undo", "undo"),
    ("host", "snapshot", "status --snapshot"),
    ("net", "apply", "apply --strict FILE"),
    ("net", "show", "status FILE"),
    ("net", "undo", "undo"),
    ("sched", "show", "top --budgets --once"),
    ("sched", "top", "top --budgets"),
];

/// Refuses a verb of a group that is no verb any more.
pub fn run_group(group: &str, args: &Args) -> Result<ExitCode> {
    let mut verbs = of_group(group).map(|(_, verb, _)| *verb);
    match verbs.find(|verb| args.words.iter().any(|word| word == verb)) {
        Some(verb) => run(group, verb),
        None => Err(moved(group, of_group(group)).into()),
    }
}

/// Refuses a verb.
pub fn run(group: &str, verb: &str) -> Result<ExitCode> {
    let now = of_group(group).filter(|it| it.1 == verb);
    Err(moved(&format!("{group} {verb}"), now).into())
}

fn of_group(group: &str) -> impl Iterator<Item = &'static Verb> {
    VERBS.iter().filter(move |it| it.0 == group)
}

fn moved(before: &str, now: impl Iterator<Item = &'static Verb>) -> HostError {
    let now = now.map(|(.., words)| format!("`steadyvm {words}`"));
    HostError::BadInput {
        what: format!("there is no `steadyvm {before}` any more"),
        fix: format!("run {}", now.collect::<Vec<_>>().join(", or ")),
    }
}
