//! `steadyvm status`: what is planned, what is in force, what has drifted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use steadyvm_analysis::plan::{ServiceReport, VcpuReport};
use steadyvm_host::{Plan, Setting, State};

use super::drift::{Drift, Mended, ago, now_unix_s};
use super::peers::{self, Actor, Role};
use super::{Fault, FileArgs, Site, ext, name_of};
use crate::host::{ControlArgs, print_json};
use steadyvm_cli::output;

/// Show what a steadyvm.toml plans, what of it is in force, and what has drifted.
///
/// Drift is a setting that steadyvm made and that no longer holds, or one that the file wants and that is not made yet,
/// for example for a VM that has started since. `watch` restores drifted settings at once. A drifted setting that it
/// cannot restore is listed with the time since which it has been wrong. A VM, a card or a file that cannot be served is
/// listed with the reason. Exit code 1: something has drifted or is not in force, or the kernel has ended the scheduler
/// of VCPU budgets. If the file itself is wrong, status still shows what is in force and ends with the code of the error.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    file: FileArgs,
    #[command(flatten)]
    control: ControlArgs,
}

/// The state of a host beside its file.
#[derive(Debug, Serialize)]
struct Status {
    /// The file.
    file: String,
    /// Whether anything is in force.
    state: State,
    /// Since when, in seconds after 1970.
    applied_unix_s: Option<u64>,
    /// Whether the host can hold the plan; null without one.
    feasible: Option<bool>,
    /// Planned budgets by VM.
    vms: BTreeMap<String, Vec<VcpuReport>>,
    /// What holds of each VM of the file, by its name.
    running: BTreeMap<String, Running>,
    /// Planned bounds of services.
    services: Vec<ServiceReport>,
    /// Settings in force that hold.
    holding: usize,
    /// These settings.
    #[serde(skip)]
    held: Vec<Setting>,
    /// Settings that were made and no longer hold.
    drifted: Vec<Drifted>,
    /// What the file wants and is not in force, in words.
    missing: Vec<String>,
    /// The settings of these, and when a watch saw first that they are missing, in seconds after 1970.
    missing_since_unix_s: BTreeMap<String, Option<u64>>,
    /// Whether a watch keeps the file in force.
    watch: bool,
    /// Why watches and hooks keep off now; null if they do not.
    kept_off: Option<String>,
    /// Why the scheduler of VCPU budgets that the file wants is not at work; null if nothing keeps it off.
    scheduler_held_off: Option<String>,
    /// What a watch has mended, the last one last.
    mended: Vec<Mended>,
    /// What is in force and the file no longer wants.
    unwanted: Vec<String>,
    /// VMs, cards, files and other parts that are not served, and why.
    not_served: Vec<Fault>,
    /// What the reader should know.
    warnings: Vec<String>,
}

/// A VM of the file as it is now.
#[derive(Debug, Serialize)]
struct Running {
    /// The process of its monitor; null if it does not run.
    process: Option<u32>,
    /// Settings of its threads that hold.
    in_force: Vec<InForce>,
}

/// A setting of a VM's thread that holds.
#[derive(Debug, Serialize)]
struct InForce {
    /// What the thread is: `VCPU 0`, `vhost worker`.
    what: String,
    /// The setting, with the thread's number and name.
    subject: String,
    /// What it is set to.
    value: String,
}

/// A setting that was made and no longer holds.
#[derive(Debug, Serialize)]
struct Drifted {
    #[serde(flatten)]
    setting: Setting,
    /// When a watch saw that first, in seconds after 1970; null if none has.
    drifted_since_unix_s: Option<u64>,
}

/// What is known besides the settings themselves.
struct Seen {
    drift: Drift,
    watch: bool,
    kept_off: Option<String>,
}

impl Seen {
    fn since(&self, subject: &str) -> Option<u64> {
        self.drift.open.get(subject).copied()
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let control = args.control.open();
    let shown = control.show()?;
    let directory = args.control.state_directory();
    let seen = Seen {
        drift: Drift::read(directory),
        watch: peers::is_held(directory, Role::Watch),
        kept_off: peers::ask(directory, Actor::Keeper)
            .err()
            .map(|why| why.to_string()),
    };
    let mut status = Status::of_host(name_of(args.file.path()), shown, &seen);
    let read = Site::read(&args.file).and_then(|site| {
        let planned = site.plan(&control)?;
        Ok((site, planned))
    });
    let error = match read {
        Ok((site, (planned, faults))) => {
            status.compare(&site, planned, faults, &seen);
            None
        }
        Err(error) => {
            let hint = "what the file wants cannot be told";
            status.warnings.push(format!("{hint}: {error:#}"));
            Some(error)
        }
    };
    status.warnings.extend(ext::trouble());
    if args.control.json {
        print_json(&status)?;
    } else {
        output::print(&status.render())?;
    }
    match error {
        Some(error) => Err(error),
        None if status.is_in_force() => Ok(ExitCode::SUCCESS),
        None => Ok(ExitCode::from(1)),
    }
}

impl Status {
    /// What is in force, whatever a file says.
    fn of_host(file: String, shown: steadyvm_host::Status, seen: &Seen) -> Self {
        let (held, drifted): (Vec<Setting>, Vec<Setting>) = shown
            .settings
            .into_iter()
            .partition(|setting| setting.holds);
        let drifted = drifted.into_iter().map(|setting| Drifted {
            drifted_since_unix_s: seen.since(&setting.subject),
            setting,
        });
        Self {
            file,
            state: shown.state,
            applied_unix_s: shown.applied_unix_s,
            feasible: None,
            vms: BTreeMap::new(),
            running: BTreeMap::new(),
            services: Vec::new(),
            holding: held.len(),
            held,
            drifted: drifted.collect(),
            missing: Vec::new(),
            missing_since_unix_s: BTreeMap::new(),
            watch: seen.watch,
            kept_off: seen.kept_off.clone(),
            scheduler_held_off: None,
            mended: seen.drift.mended.clone(),
            unwanted: Vec::new(),
            not_served: shown.failed.iter().map(Fault::of_group).collect(),
            warnings: shown.warnings,
        }
    }

    /// Adds what the file wants, and how it differs from what is in force.
    fn compare(&mut self, site: &Site, planned: Plan, faults: Vec<Fault>, seen: &Seen) {
        let running = planned.vms.iter().map(|vm| {
            let in_force = self.held.iter().filter_map(|setting| {
                Some(InForce {
                    what: vm.threads.get(&setting.thread?)?.clone(),
                    subject: setting.subject.clone(),
                    value: setting.new.clone(),
                })
            });
            let in_force = in_force.collect();
            let process = vm.pid;
            (vm.name.clone(), Running { process, in_force })
        });
        self.running = running.collect();
        if let Some(plan) = &site.parsed.plan {
            let real_time = plan.vms.iter().filter(|vm| vm.rt);
            let budgets = real_time.map(|vm| (vm.name.clone(), vm.vcpus.clone()));
            self.feasible = Some(plan.feasible);
            self.vms = budgets.collect();
            self.services.clone_from(&plan.services);
        }
        let subjects = planned.steps.iter().map(|step| step.change.subject());
        self.missing_since_unix_s = subjects
            .map(|subject| (subject.clone(), seen.since(&subject)))
            .collect();
        self.missing = planned.steps.iter().map(ToString::to_string).collect();
        let unwanted = planned.taken_back.iter();
        self.unwanted = unwanted.map(|step| step.change.subject()).collect();
        // What the kernel refused at the last attempt, only the journal knows; what cannot be planned now, the plan.
        let is_wanted = |fault: &Fault| {
            let mut steps = planned.steps.iter();
            steps.any(|step| step.group.to_string() == fault.part)
        };
        self.not_served.retain(is_wanted);
        for fault in faults {
            self.not_served.retain(|known| known.part != fault.part);
            self.not_served.push(fault);
        }
        self.scheduler_held_off
            .clone_from(&site.parsed.budgets.held_off);
        self.warnings = planned.warnings;
    }

    /// Whether all that the file wants is in force, and nothing else is.
    fn is_in_force(&self) -> bool {
        self.state == State::Applied
            && self.drifted.is_empty()
            && self.missing.is_empty()
            && self.unwanted.is_empty()
            && self.not_served.is_empty()
            && self.scheduler_held_off.is_none()
    }

    fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        let state = match self.state {
            State::None => "nothing is in force: run `steadyvm apply`".to_owned(),
            State::Applied => format!("{} settings hold", self.holding),
            State::Incomplete => "an apply or undo was interrupted: run `steadyvm undo`".to_owned(),
            State::BeforeReboot => {
                "nothing is in force since the reboot: run `steadyvm apply`".to_owned()
            }
        };
        writeln!(text, "{}: {state}", self.file)?;
        if let Some(why) = &self.kept_off {
            writeln!(text, "watches and hooks keep off: {why}")?;
        }
        for (name, vcpus) in &self.vms {
            let budgets: Vec<String> = vcpus
                .iter()
                .map(|vcpu| {
                    format!(
                        "{} of {}",
                        milliseconds(vcpu.budget),
                        milliseconds(vcpu.period)
                    )
                })
                .collect();
            writeln!(text, "VM {name}: planned {}", budgets.join(", "))?;
        }
        for (name, running) in &self.running {
            running.write(name, text)?;
        }
        for service in &self.services {
            let bound = service.bound.map_or("none".to_owned(), milliseconds);
            let limit = service.limit.map_or(String::new(), |limit| {
                format!(", limit {}", milliseconds(limit))
            });
            writeln!(
                text,
                "service {} in {}: bound {bound}{limit}",
                service.name, service.vm
            )?;
        }
        let now_unix_s = now_unix_s();
        for drifted in &self.drifted {
            let setting = &drifted.setting;
            let now = setting.now.as_deref().unwrap_or("gone");
            writeln!(
                text,
                "drifted: {}: {} expected, now {now}; {}",
                setting.subject,
                setting.new,
                seen_since(drifted.drifted_since_unix_s, now_unix_s)
            )?;
        }
        for step in &self.missing {
            writeln!(text, "missing: {step}")?;
        }
        let oldest = self.missing_since_unix_s.values().flatten().min();
        if let Some(oldest) = oldest {
            let ago = ago(*oldest, now_unix_s);
            writeln!(text, "missing, as a watch saw first {ago}")?;
        }
        if let Some(last) = self.mended.last() {
            let ago = ago(last.held_again_unix_s, now_unix_s);
            let count = self.mended.len();
            writeln!(
                text,
                "a watch set or mended {count} settings, the last {ago}: {}",
                last.subject
            )?;
        }
        for fault in &self.not_served {
            writeln!(text, "{}", fault.sentence())?;
        }
        for subject in &self.unwanted {
            writeln!(text, "no longer wanted: {subject}")?;
        }
        for warning in &self.warnings {
            writeln!(text, "warning: {warning}")?;
        }
        Ok(())
    }
}

impl Running {
    fn write(&self, name: &str, text: &mut String) -> std::fmt::Result {
        let Some(process) = self.process else {
            return writeln!(text, "VM {name}: does not run");
        };
        if self.in_force.is_empty() {
            return writeln!(
                text,
                "VM {name} (process {process}): nothing of its own in force"
            );
        }
        writeln!(text, "VM {name} (process {process}): in force")?;
        for one in &self.in_force {
            writeln!(text, "  {}: {}: {}", one.what, one.subject, one.value)?;
        }
        Ok(())
    }
}

fn seen_since(since_unix_s: Option<u64>, now_unix_s: u64) -> String {
    since_unix_s.map_or_else(
        || "since when is not known: no watch saw it".to_owned(),
        |since| format!("a watch saw it first {}", ago(since, now_unix_s)),
    )
}

/// A time of the analysis, nanoseconds, for people.
fn milliseconds(time: steadyvm_analysis::time::Time) -> String {
    format!("{} ms", time as f64 / 1e6)
}
