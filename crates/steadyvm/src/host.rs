//! `steadyvm host`: put a method in force on this host, show it, undo it.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use steadyvm_host::{
    HostControl, HostError, Machine, Priorities, Snapshot, State, Status, Switches, Target,
    WantedVm,
};
use steadyvm_site::peers::{self, Actor};

use crate::arguments::{ControlArgs, print_json};
use crate::undo;
use steadyvm_cli::output;

/// Put a method in force on this host, show what is in force, undo it.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    control: ControlArgs,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Put a method in force, or bring the one in force up to date.
    ///
    /// Applying it again, also for other VMs, changes only what differs. If a step fails, what was in
    /// force before is in force again.
    Apply(TargetArgs),
    /// Say what a method would change, and change nothing.
    Plan(TargetArgs),
    /// Show what is in force, and whether it still holds; exit with 1 if something does not.
    Show,
    /// Restore every setting that is in force.
    Undo {
        /// Drop the journal without restoring anything: for settings that can never be restored.
        #[arg(long)]
        forget: bool,
    },
    /// Print all scheduling state of this host that steadyvm can change.
    Snapshot {
        /// Print what differs from an earlier snapshot instead; exit with 1 if anything does.
        #[arg(long, value_name = "FILE")]
        compare: Option<PathBuf>,
    },
}

#[derive(Debug, clap::Args)]
// Each is an option of its own.
#[allow(clippy::struct_excessive_bools)]
struct TargetArgs {
    /// vanilla, preempt-rt, dedicated, rt-poll-list, rt-profile, rt-levels or tuned; or a composition
    /// of rt, dedicated, profile and levels, such as rt+dedicated+profile.
    #[arg(long)]
    method: Switches,
    /// A network interface that carries real-time traffic; may be repeated.
    #[arg(long = "rt-nic", value_name = "IF")]
    rt_nics: Vec<String>,
    /// A VM that serves it: its name, as libvirt's domain or QEMU's -name, or the process of its
    /// monitor; and the VCPUs that run the service (all but VCPU 0 if left out), such as web:1; may
    /// be repeated.
    #[arg(long = "rt-vm", value_name = "NAME|PID[:VCPU,VCPU]")]
    rt_vms: Vec<WantedVm>,
    /// A process of this host that serves it itself, without a VM; may be repeated. Threads that
    /// it starts later are normal ones: name it when it is ready.
    #[arg(long = "rt-process", value_name = "PID")]
    rt_processes: Vec<u32>,
    /// The CPU for method dedicated; the highest one that is online if left out.
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// Set `sched_rt_runtime_us` to -1: the kernel then never throttles a runaway RT thread.
    #[arg(long)]
    rt_throttling_off: bool,
    /// Do not shorten the fair server's slices (Linux 6.12+).
    ///
    /// Ordinary threads may then run up to 50 ms ahead of real-time ones; steadyvm's default is 1 ms.
    #[arg(long)]
    keep_fair_server: bool,
    /// Do not raise the threads of RCU, of the timers and of disks' interrupts.
    ///
    /// A VCPU that computes without end then stops them on its CPU. By default they stand above vhost workers and VCPUs.
    #[arg(long)]
    keep_housekeeping: bool,
    /// Do not raise the interrupt threads of devices that RT VMs have by passthrough (VFIO).
    ///
    /// By default they have the priority of the RT NICs' threads.
    #[arg(long)]
    keep_vfio: bool,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let of_site = args.control.control();
    let control = of_site.open_as(Actor::Person);
    match &args.verb {
        Verb::Apply(target) => {
            peers::must_not_be_watched(&of_site.directory, None)?;
            apply(&control, target, args.control.json)
        }
        Verb::Plan(target) => plan(&control, target, args.control.json),
        Verb::Show => show(&control, args.control.json),
        Verb::Undo { forget: true } => undo::forget(&of_site),
        Verb::Undo { forget: false } => {
            let undid = steadyvm_site::undo::undo(&of_site)?;
            undo::report(&undid, args.control.json)
        }
        Verb::Snapshot { compare } => snapshot(&control, compare.as_ref()),
    }
}

impl TargetArgs {
    /// Finds the VMs that are named, and warns of processes that claim their names.
    fn target(&self) -> Result<Target, HostError> {
        let machine = Machine::real();
        let mut warnings = Vec::new();
        let rt_vms = self
            .rt_vms
            .iter()
            .map(|vm| vm.find(&machine, &mut warnings))
            .collect::<Result<_, _>>();
        for warning in &warnings {
            output::say(&format!("steadyvm: warning: {warning}"));
        }
        Ok(Target {
            rt_nics: self.rt_nics.clone(),
            rt_vms: rt_vms?,
            rt_processes: self.rt_processes.clone(),
            dedicated_cpu: self.cpu,
            priorities: Priorities::default(),
            disable_rt_throttling: self.rt_throttling_off,
            keep_fair_server: self.keep_fair_server,
            keep_housekeeping: self.keep_housekeeping,
            keep_vfio: self.keep_vfio,
        })
    }
}

fn apply(control: &HostControl, args: &TargetArgs, json: bool) -> Result<ExitCode> {
    let applied = control.apply(&args.target()?, args.method)?;
    for warning in &applied.warnings {
        output::say(&format!("steadyvm: warning: {warning}"));
    }
    for skipped in &applied.skipped {
        output::say(&format!("steadyvm: skipped: {skipped}"));
    }
    if json {
        print_json(&applied)?;
    } else {
        for step in &applied.steps {
            output::line(&step.to_string())?;
        }
        output::line(&format!(
            "method {} is in force: {} settings, {} of them changed now",
            applied.method,
            applied.in_force,
            applied.steps.len()
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn plan(control: &HostControl, args: &TargetArgs, json: bool) -> Result<ExitCode> {
    let plan = control.plan(&args.target()?, args.method)?;
    for warning in &plan.warnings {
        output::say(&format!("steadyvm: warning: {warning}"));
    }
    if json {
        print_json(&plan)?;
    } else {
        for step in &plan.steps {
            output::line(&step.to_string())?;
        }
        for step in &plan.taken_back {
            output::line(&format!("{} is undone", step.change.subject()))?;
        }
        let count = plan.steps.len();
        output::line(&format!(
            "method {} would change {count} settings",
            plan.method
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn show(control: &HostControl, json: bool) -> Result<ExitCode> {
    let shown = control.show()?;
    if json {
        print_json(&shown)?;
    } else {
        output::print(&render_shown(&shown))?;
    }
    for warning in &shown.warnings {
        output::say(&format!("steadyvm: warning: {warning}"));
    }
    Ok(if shown.has_drifted() {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}

fn render_shown(shown: &Status) -> String {
    let method = shown
        .method
        .map_or_else(|| "no method".to_owned(), |method| method.to_string());
    let mut text = match shown.state {
        State::None => "nothing is in force".to_owned(),
        State::Applied => {
            let holding = shown
                .settings
                .iter()
                .filter(|setting| setting.holds)
                .count();
            format!(
                "method {method} is in force: {holding} of {} settings hold",
                shown.settings.len()
            )
        }
        State::Incomplete => {
            format!("applying or undoing method {method} was interrupted: run `steadyvm undo`")
        }
        State::BeforeReboot => {
            format!("method {method} was in force before the machine was rebooted; nothing is now")
        }
    };
    text.push('\n');
    for setting in &shown.settings {
        let now = match (&setting.now, setting.holds) {
            (_, true) => String::new(),
            (Some(now), false) => format!("  [now {now}]"),
            (None, false) => "  [gone]".to_owned(),
        };
        let _ = writeln!(
            text,
            "{}: {} -> {}{now}",
            setting.subject, setting.old, setting.new
        );
    }
    if let Some(demux) = &shown.demux {
        let counted = &demux.packets;
        let levels: Vec<String> = counted.levels.iter().map(ToString::to_string).collect();
        let _ = writeln!(
            text,
            "early demultiplexing, packets by level: {} ({} to ports, {} without a process, {} \
             fragments, {} malformed, {} to unknown ports, {} not handed over)",
            levels.join(", "),
            counted.to_ports,
            counted.to_kernel,
            counted.fragments,
            counted.malformed,
            counted.unknown_ports,
            counted.not_sent
        );
        for port in demux.ports.iter().filter(|port| port.priority > 0) {
            let _ = writeln!(
                text,
                "{:?} port {}: priority {}",
                port.protocol, port.port, port.priority
            );
        }
    }
    for pending in &shown.pending {
        let _ = writeln!(text, "not set yet, apply again: {pending}");
    }
    for skipped in &shown.skipped {
        let _ = writeln!(text, "refused by the kernel: {skipped}");
    }
    for stray in &shown.strays {
        let _ = writeln!(text, "stray on the dedicated CPU: {stray}");
    }
    for line in &shown.unreadable {
        let _ = writeln!(text, "the journal's {line}");
    }
    text
}

fn snapshot(control: &HostControl, earlier: Option<&PathBuf>) -> Result<ExitCode> {
    let now = control.snapshot()?;
    let Some(path) = earlier else {
        output::json(&now)?;
        return Ok(ExitCode::SUCCESS);
    };
    let earlier = read_snapshot(path)?;
    let differences = now.differences(&earlier);
    for line in &differences {
        output::line(line)?;
    }
    Ok(if differences.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn read_snapshot(path: &Path) -> Result<Snapshot, HostError> {
    let bad = |what: String| HostError::BadInput {
        what,
        fix: "name a file written by `steadyvm host snapshot > FILE`".into(),
    };
    let text = fs::read_to_string(path)
        .map_err(|error| bad(format!("cannot read {}: {error}", path.display())))?;
    serde_json::from_str(&text)
        .map_err(|error| bad(format!("{} is no snapshot: {error}", path.display())))
}
