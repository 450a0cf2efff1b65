//! What is planned, what is in force, what has drifted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Serialize;
use steadyvm_analysis::plan::{ReceiveReport, ServiceReport, VcpuReport};
use steadyvm_host::discover::has_disk_limit;
use steadyvm_host::profile::Profile;
use steadyvm_host::{
    Desired, Group, HostControl, Machine, Plan, ReceiveWork, Setting, State, Way, receive_work,
};

use crate::attacks::{self, Exposed};
use crate::bounds::{self, Bound, Measured};
use crate::checks::Checks;
use crate::control::Control;
use crate::drift::{Drift, Mended};
use crate::error::{Error, Result};
use crate::ext;
use crate::peers::{self, Actor, Role};
use crate::site::{NotServed, Site};
use crate::source::{Source, name_of};

/// The state of a host beside its file.
#[derive(Debug, Serialize)]
pub struct Status {
    /// The file; null if what is in force is shown alone.
    pub file: Option<String>,
    /// Whether what is in force was asked for by a method's name.
    #[serde(skip)]
    pub is_of_method: bool,
    /// What is in force, whatever a file says, and what the reader should know.
    #[serde(flatten)]
    pub in_force: steadyvm_host::Status,
    /// Whether the host can hold the plan; null without one.
    pub feasible: Option<bool>,
    /// Planned budgets by VM.
    pub vms: BTreeMap<String, Vec<VcpuReport>>,
    /// What receives for VMs with planned budgets, by VM.
    pub vms_receive: BTreeMap<String, Vec<ReceiveReport>>,
    /// What holds of each VM of the file, by its name.
    pub running: BTreeMap<String, Running>,
    /// What receiving for each VM that runs costs the host.
    pub receive_work: Vec<ReceiveWork>,
    /// Planned bounds of services.
    pub services: Vec<ServiceReport>,
    /// What was measured of them last since the boot.
    pub measured: Vec<Measured>,
    /// How near a watch has seen their requests come to their bounds; null if none checks them.
    pub checks: Option<Checks>,
    /// Attacks that VMs that run do not withstand, as what is wanted for them has it.
    pub exposed: Vec<Exposed>,
    /// Settings in force that hold.
    pub holding: usize,
    /// Settings that were made and no longer hold.
    pub drifted: Vec<Drifted>,
    /// What the file wants and is not in force, in words.
    pub missing: Vec<String>,
    /// The settings of these, and when a watch saw first that they are missing, in seconds after 1970.
    pub missing_since_unix_s: BTreeMap<String, Option<u64>>,
    /// Whether a watch keeps the file in force.
    pub watch: bool,
    /// Why watches and hooks keep off now; null if they do not.
    pub kept_off: Option<String>,
    /// Why the scheduler of VCPU budgets that the file wants is not at work; null if nothing keeps it off.
    pub scheduler_held_off: Option<String>,
    /// What a watch has mended, the last one last.
    pub mended: Vec<Mended>,
    /// What is in force and the file no longer wants.
    pub unwanted: Vec<String>,
    /// VMs, cards, files and other parts that are not served, and why.
    pub not_served: Vec<NotServed>,
}

/// A VM of the file as it is now.
#[derive(Debug, Serialize)]
pub struct Running {
    /// The process of its monitor; null if it does not run.
    pub process: Option<u32>,
    /// Settings of its threads that hold.
    pub in_force: Vec<InForce>,
}

/// A setting of a VM's thread that holds.
#[derive(Debug, Serialize)]
pub struct InForce {
    /// What the thread is: `VCPU 0`, `vhost worker`.
    pub what: String,
    /// The setting, with the thread's number and name.
    pub subject: String,
    /// What it is set to.
    pub value: String,
}

/// A setting that was made and no longer holds.
#[derive(Debug, Serialize)]
pub struct Drifted {
    /// The setting.
    #[serde(flatten)]
    pub setting: Setting,
    /// When a watch saw that first, in seconds after 1970; null if none has.
    pub drifted_since_unix_s: Option<u64>,
}

/// What is known besides the settings themselves.
struct Seen {
    drift: Drift,
    watch: bool,
    kept_off: Option<String>,
    measured: Vec<Measured>,
    checks: Option<Checks>,
    /// The file that the host is held against.
    file: PathBuf,
}

impl Seen {
    fn since(&self, subject: &str) -> Option<u64> {
        self.drift.open.get(subject).copied()
    }
}

/// Looks at this host beside its file. An error of the file comes with what is in force all the same.
///
/// Unless the file is named, what is in force is shown alone where there is no file, or where a method is in force.
///
/// # Errors
/// A journal that cannot be read.
pub fn look(source: &Source, is_named: bool, control: &Control) -> Result<(Status, Option<Error>)> {
    let host = control.open();
    let shown = host.show()?;
    let seen = Seen {
        drift: Drift::read(&control.directory),
        watch: peers::is_held(&control.directory, Role::Watch),
        kept_off: peers::ask(&control.directory, Actor::Keeper)
            .err()
            .map(|why| why.to_string()),
        measured: bounds::read(&control.directory),
        checks: Checks::read(&control.directory),
        file: std::path::absolute(&source.file).unwrap_or_else(|_| source.file.clone()),
    };
    let mut status = Status::of_host(shown, &seen);
    status.is_of_method = is_of_method(&host);
    let compares = is_named || (source.file.exists() && !status.is_of_method);
    let mut profile = status.in_force.profile.clone();
    let error = if compares {
        status.file = Some(name_of(&source.file));
        let read = Site::read(source).and_then(|site| {
            let planned = site.plan(&host)?;
            Ok((site, planned))
        });
        match read {
            Ok((site, (planned, faults))) => {
                status.compare(&site, planned, faults, &seen);
                profile = Some(site.parsed.profile);
                None
            }
            Err(error) => {
                let hint = "what the file wants cannot be told";
                status.in_force.warnings.push(format!("{hint}: {error}"));
                Some(error)
            }
        }
    } else {
        None
    };
    status.count_receive_work(&host, profile.as_ref());
    if let Some(profile) = &profile {
        let found = attacks::Found {
            ranked: status.with_ranked_vcpus(),
            without_disk_limit: status.without_disk_limit(host.machine()),
        };
        status.exposed = attacks::of(profile, &status.in_force.packet_ways, &found);
    }
    status.in_force.warnings.extend(ext::trouble());
    Ok((status, error))
}

/// Whether what is in force was asked for by a method's name, and not by a file.
fn is_of_method(host: &HostControl) -> bool {
    let desired = host.desired_in_force().ok().flatten();
    desired.is_some_and(|it| it != Desired::of_file(it.profile.clone()))
}

impl Status {
    /// What is in force, whatever a file says.
    fn of_host(in_force: steadyvm_host::Status, seen: &Seen) -> Self {
        let drifted = in_force.settings.iter().filter(|setting| !setting.holds);
        let drifted = drifted.map(|setting| Drifted {
            drifted_since_unix_s: seen.since(&setting.subject),
            setting: setting.clone(),
        });
        let drifted: Vec<Drifted> = drifted.collect();
        Self {
            file: None,
            is_of_method: false,
            feasible: None,
            vms: BTreeMap::new(),
            vms_receive: BTreeMap::new(),
            running: BTreeMap::new(),
            receive_work: Vec::new(),
            services: Vec::new(),
            measured: Vec::new(),
            checks: None,
            exposed: Vec::new(),
            holding: in_force.settings.len() - drifted.len(),
            drifted,
            missing: Vec::new(),
            missing_since_unix_s: BTreeMap::new(),
            watch: seen.watch,
            kept_off: seen.kept_off.clone(),
            scheduler_held_off: None,
            mended: seen.drift.mended.clone(),
            unwanted: Vec::new(),
            not_served: in_force.failed.iter().map(NotServed::of_group).collect(),
            in_force,
        }
    }

    /// Adds what the file wants, and how it differs from what is in force.
    fn compare(&mut self, site: &Site, planned: Plan, faults: Vec<NotServed>, seen: &Seen) {
        let running = planned.vms.iter().map(|vm| {
            let held = self
                .in_force
                .settings
                .iter()
                .filter(|setting| setting.holds);
            let in_force = held.filter_map(|setting| {
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
            let received_for = plan.vms.iter().filter(|vm| !vm.receive.is_empty());
            self.vms_receive = received_for
                .map(|vm| (vm.name.clone(), vm.receive.clone()))
                .collect();
            self.services.clone_from(&plan.services);
            self.measured.clone_from(&seen.measured);
            let is_planned = |it: &Measured| {
                let mut services = plan.services.iter();
                let is_as_then = |of: &ServiceReport| Bound::of(of).as_ref() == Some(&it.bound);
                it.file == seen.file && services.any(is_as_then)
            };
            self.measured.retain(is_planned);
            self.checks.clone_from(&seen.checks);
        }
        let subjects = planned.steps.iter().map(|step| step.change.subject());
        self.missing_since_unix_s = subjects
            .map(|subject| (subject.clone(), seen.since(&subject)))
            .collect();
        self.missing = planned.steps.iter().map(ToString::to_string).collect();
        let unwanted = planned.taken_back.iter();
        self.unwanted = unwanted.map(|step| step.change.subject()).collect();
        // What the kernel refused at the last attempt, only the journal knows; what cannot be planned now, the plan.
        let is_wanted = |fault: &NotServed| {
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
        self.in_force.packet_ways = planned.packet_ways;
        for packets in &mut self.in_force.packet_ways {
            let part = Group::Vm(packets.vm.clone()).to_string();
            let refused = self.not_served.iter().find(|fault| fault.part == part);
            // What the kernel refused at the last attempt, planning does not know.
            if let (
                Way::VirtualFunction {
                    in_force: false, ..
                },
                Some(fault),
            ) = (&packets.way, refused)
            {
                packets.to_do = format!("not in force: {}", fault.error);
            }
        }
        self.in_force.warnings = planned.warnings;
    }

    /// The VMs of which a VCPU has a rank now.
    fn with_ranked_vcpus(&self) -> BTreeSet<&str> {
        let is_ranked = |it: &InForce| it.what.starts_with("VCPU") && it.value.starts_with("FIFO");
        let running = self.running.iter();
        let ranked = running.filter(|(_, running)| running.in_force.iter().any(is_ranked));
        ranked.map(|(name, _)| name.as_str()).collect()
    }

    /// The VMs that run and whose cgroups limit no disk.
    fn without_disk_limit(&self, machine: &Machine) -> BTreeSet<&str> {
        let running = self.running.iter();
        let unlimited = running.filter(|(_, running)| {
            let process = running.process;
            process.is_some_and(|pid| !has_disk_limit(machine, pid))
        });
        unlimited.map(|(name, _)| name.as_str()).collect()
    }

    /// Adds what receiving costs; without a profile for all VMs of this host.
    fn count_receive_work(&mut self, host: &HostControl, profile: Option<&Profile>) {
        match receive_work(host.machine(), profile, &self.in_force.packet_ways) {
            Ok(work) => self.receive_work = work,
            Err(error) => self.in_force.warnings.push(error.to_string()),
        }
    }

    /// Whether all that the file wants is in force, and nothing else is; without a file, whether all holds.
    pub fn is_in_force(&self) -> bool {
        if self.file.is_none() {
            return !self.in_force.has_drifted();
        }
        self.in_force.state == State::Applied
            && self.drifted.is_empty()
            && self.missing.is_empty()
            && self.unwanted.is_empty()
            && self.not_served.is_empty()
            && self.scheduler_held_off.is_none()
    }
}
