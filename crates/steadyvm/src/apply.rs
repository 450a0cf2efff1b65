//! `steadyvm apply`: puts a file or a method in force, or brings the host up to date with it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use steadyvm_host::{HostError, Plan, Report, Switches};
use steadyvm_site::{Control, DEFAULT_FILE, NotServed, Source, apply};

use crate::arguments::{ControlArgs, named_process, print_json};
use crate::method::{self, MethodArgs};
use steadyvm_cli::output;

/// Make this host what a steadyvm.toml says: plan, receive path and ranks.
///
/// A VM, a card or a file that cannot be served is left as it was and named; the others are served, and the exit
/// code is 1. With --strict it is all or nothing: if one step fails, the settings of before are in force again. Applying a file
/// again changes only settings that do not hold, for example those of a VM that started since. `steadyvm undo` restores
/// everything; `steadyvm watch` keeps the file in force.
///
/// After an apply a watch that an undo has stopped goes on, and so does a scheduler of VCPU budgets that the kernel has
/// ended. While `steadyvm measure` runs, apply is refused with exit code 3. A file that a running watch would undo is
/// refused with exit code 2.
///
/// Beside /etc/steadyvm.toml, files in /etc/steadyvm.d and /run/steadyvm.d describe more VMs by [[vm]] tables, for example
/// those that a cloud's hook writes. The files in /run are gone after a reboot, as VMs are.
///
/// A first file, for one real-time VM whose packets come through eth1:
///
///     [[nic]]
///     name = "eth1"
///     class = "rt"
///     [[vm]]
///     name = "web"
///     class = "rt"
///
/// The same without a file, all or nothing, for as long as that VM runs:
///
///     steadyvm apply --method rt-profile --nic eth1 --vm web
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The file that describes this host; "-" for standard input. Left out: /etc/steadyvm.toml.
    #[arg(conflicts_with = "method")]
    file: Option<PathBuf>,
    /// All or nothing: refuse a plan that this host cannot hold, and change nothing if a VM, a card or a file cannot be
    /// served.
    ///
    /// Without it the failures are listed, and the others are served.
    #[arg(long, conflicts_with = "method")]
    strict: bool,
    /// A VM; may be repeated. With a file NAME=PID: the process of its monitor, where no command line names it.
    ///
    /// With --method NAME or the PID of its monitor, and the VCPUs that run the service, such as web:1; all but VCPU 0 if
    /// left out. The name is that of libvirt's domain or of QEMU's -name.
    #[arg(long = "vm", value_name = "VM")]
    vms: Vec<String>,
    /// Say what would change, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    control: ControlArgs,
    #[command(flatten)]
    method: MethodArgs,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let control = args.control.control();
    match args.method.method {
        Some(method) => of_method(args, method, &control),
        None => of_file(args, &control),
    }
}

fn of_method(args: &Args, method: Switches, control: &Control) -> Result<ExitCode> {
    let target = args.method.target.names().find(&args.vms, method::warn)?;
    if args.dry_run {
        let plan = apply::plan_method(&target, method, control)?;
        return would_change(&plan, &[], args.control.json);
    }
    let applied = apply::apply_method(&target, method, control)?;
    warn(&applied.warnings, &[]);
    changed(
        &applied,
        &[],
        &format!("method {method}"),
        args.control.json,
    )
}

fn of_file(args: &Args, control: &Control) -> Result<ExitCode> {
    let source = args.source()?;
    if args.dry_run {
        let (plan, faults) = apply::plan(&source, control)?;
        return would_change(&plan, &faults, args.control.json);
    }
    let apply::Applied { name, done } = apply::apply(&source, control)?;
    warn(done.warnings(), done.faults());
    changed(done.applied(), done.faults(), &name, args.control.json)
}

impl Args {
    fn source(&self) -> Result<Source, HostError> {
        let named = |text: &String| {
            named_process(text).map_err(|fix| HostError::BadInput {
                what: format!("--vm {text} names no process of a VM of the file"),
                fix,
            })
        };
        Ok(Source {
            file: self.file.clone().unwrap_or_else(|| DEFAULT_FILE.into()),
            is_strict: self.strict,
            processes: self.vms.iter().map(named).collect::<Result<_, _>>()?,
        })
    }
}

/// Says what would change.
fn would_change(plan: &Plan, faults: &[NotServed], json: bool) -> Result<ExitCode> {
    warn(&plan.warnings, faults);
    if json {
        print_json(&Shown::new(plan, faults))?;
        return Ok(code(faults));
    }
    for step in &plan.taken_back {
        output::line(&format!("{}: restored", step.change.subject()))?;
    }
    for step in &plan.steps {
        output::line(&step.to_string())?;
    }
    output::line(&format!(
        "{} settings would change, {} would be restored; nothing was changed",
        plan.steps.len(),
        plan.taken_back.len()
    ))?;
    Ok(code(faults))
}

/// Says what changed.
fn changed(applied: &Report, faults: &[NotServed], name: &str, json: bool) -> Result<ExitCode> {
    for skipped in &applied.skipped {
        output::say(&format!("steadyvm: skipped: {skipped}"));
    }
    if json {
        print_json(&Shown::new(applied, faults))?;
        return Ok(code(faults));
    }
    for step in &applied.steps {
        output::line(&step.to_string())?;
    }
    let but = match faults.len() {
        0 => String::new(),
        1 => ", but for one part that is not served".to_owned(),
        count => format!(", but for {count} parts that are not served"),
    };
    output::line(&format!(
        "{name} is in force{but}: {} settings, {} of them changed now",
        applied.in_force,
        applied.steps.len()
    ))?;
    Ok(code(faults))
}

/// What the engine says, and all that is not served.
#[derive(Serialize)]
struct Shown<'a, T> {
    #[serde(flatten)]
    of_host: &'a T,
    not_served: &'a [NotServed],
}

impl<'a, T> Shown<'a, T> {
    fn new(of_host: &'a T, not_served: &'a [NotServed]) -> Self {
        Self {
            of_host,
            not_served,
        }
    }
}

/// The host differs from the file where a part of it is not served.
fn code(faults: &[NotServed]) -> ExitCode {
    ExitCode::from(u8::from(!faults.is_empty()))
}

fn warn(warnings: &[String], faults: &[NotServed]) {
    for warning in warnings {
        output::say(&format!("steadyvm: warning: {warning}"));
    }
    for fault in faults {
        output::say(&format!("steadyvm: {}", fault.sentence()));
    }
}
