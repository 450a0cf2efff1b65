//! From a profile and a machine's state to steps. Reads, never writes.

use std::collections::{BTreeMap, BTreeSet};

use steadyvm_sched::enforcement::Reserved;

use super::group::Group;
use super::macvtaps::Ports;
use super::shared_card::SharedCards;
use super::step::Step;
use super::threads::policy;
use super::vm::{plan_vm, rt_vcpus};
use super::vms::{self, Running, VmThreads};
use super::wanted::Wanted;
use super::{
    batch, budget, cards, dedicated, demux, fair_server, flows, host_services, softirqs, tuned,
    vcpu_scheduler,
};
use crate::cpu_set::CpuSet;
use crate::discover::{self, Nic, Processes};
use crate::error::{HostError, at};
use crate::parse;
use crate::printable::printable;
use crate::profile::{NicProfile, ProcessProfile, Profile, VmProfile};
use crate::settings::threads::{Policy, RESET_ON_FORK};
use crate::settings::{Change, ChangeOf, File, Form, Machine, SettingKind, Thread, ThreadId};

/// What is known while planning.
pub(crate) struct Context<'a> {
    /// The steps that are in force already.
    pub own: &'a [Step],
    /// Whether nothing was made yet: a VM or process that is named and does not run is the caller's
    /// mistake then, and has ended meanwhile later.
    pub is_first: bool,
}

/// Plans a profile.
///
/// NAPI threads that `threaded` will start exist only after that step is made: plan again then.
pub(crate) fn plan(
    machine: &Machine,
    profile: &Profile,
    context: &Context<'_>,
) -> Result<Wanted, HostError> {
    profile.check()?;
    let own = context.own;
    let threads = &machine.all_threads()?[..];
    let online = &machine.online()?;
    let host = Host {
        machine,
        profile,
        context,
        threads,
        online,
    };
    let mut wanted = Wanted::default();
    wanted.of_group(&Group::Host, |wanted| {
        softirqs::steps(machine, threads, &profile.softirqs, &mut wanted.steps)
    });
    // Budgets on CPUs of their own are admitted by us in the kernel's place.
    let is_partitioned = profile.vcpu_scheduler.is_none() && budget::is_partitioned(&profile.vms);
    let mut refused = BTreeMap::new();
    if is_partitioned {
        let admitted;
        (admitted, refused) = budget::admit_each(&host.in_force_first(), online);
        wanted.of_group(&Group::Scheduler, |wanted| {
            if admitted > 0 {
                wanted.steps.push(budget::admission_off(machine)?);
            }
            Ok(())
        });
    }
    wanted.of_group(&Group::Host, |wanted| {
        if let Some(piece_us) = profile.fair_server_us {
            let piece_ns = u64::from(piece_us) * 1000;
            let steps = fair_server::steps(machine, piece_ns, &mut wanted.warnings)?;
            wanted.steps.extend(steps);
        }
        Ok(())
    });
    if let Some(demuxed) = &profile.demux {
        let levels_from = profile.softirqs.levels_from;
        wanted.of_group(&Group::Demux, |wanted| {
            let steps = &mut wanted.steps;
            demux::steps(machine, threads, demuxed, levels_from, online, own, steps)
        });
    }
    let mut path = dedicated::Path::default();
    for nic in &profile.nics {
        let group = Group::Nic(nic.name.clone());
        let found = wanted.of_group(&group, |wanted| host.plan_named_nic(nic, wanted));
        if let Some(Some(found)) = found {
            path.irqs.extend(found.irqs);
            path.threads.extend(found.napi_threads);
            path.nics.insert(found.name);
        }
    }
    // Where the path ends: what runs the service.
    let mut shared = SharedCards::default();
    let first_of_vms = wanted.steps.len();
    let mut ports = Ports::default();
    let mut ends = host.plan_vms(refused, &mut wanted, &mut path, &mut shared, &mut ports);
    ports.plan(machine, &mut wanted);
    shared.keep(machine, profile, own);
    shared.add_preparations(&mut wanted, first_of_vms);
    for nic in shared.into_nics(profile) {
        let group = Group::Nic(nic.name.clone());
        let found = wanted.of_group(&group, |wanted| host.plan_named_nic(&nic, wanted));
        if let Some(Some(found)) = found {
            path.irqs.extend(found.irqs);
            path.threads.extend(found.napi_threads);
            path.nics.insert(found.name);
        }
    }
    for process in &profile.processes {
        let group = Group::Process(process.pid);
        let found = wanted.of_group(&group, |wanted| {
            plan_process(machine, process, context, wanted)
        });
        ends.extend(found.into_iter().flatten());
    }
    let processes = Processes::of(threads);
    for service in &profile.host_services {
        let group = Group::HostService(service.unit.clone());
        wanted.of_group(&group, |wanted| {
            host_services::plan(machine, &processes, service, online, is_partitioned, wanted)
        });
    }
    wanted.fail_contradictions();
    wanted.of_group(&Group::Isolation, |wanted| {
        if let Some(cpu) = profile.dedicated_cpu {
            path.threads.extend(ends.iter().cloned());
            let steps = dedicated::steps(machine, threads, &CpuSet::single(cpu), &path, own)?;
            wanted.steps.extend(steps);
        }
        if let Some(tuned) = &profile.tuned {
            let steps = tuned::steps(machine, threads, tuned, ends, own)?;
            wanted.steps.extend(steps);
        }
        Ok(())
    });
    if !is_partitioned {
        throttling(machine, profile, &mut wanted);
    }
    warn_of_irqbalance(threads, profile, &mut wanted);
    Ok(wanted)
}

/// What planning reads.
struct Host<'a> {
    machine: &'a Machine,
    profile: &'a Profile,
    context: &'a Context<'a>,
    threads: &'a [Thread],
    online: &'a CpuSet,
}

impl Host<'_> {
    /// The VMs with those first whose budgets are in force: a newcomer takes nobody's CPU time away.
    fn in_force_first(&self) -> Vec<&VmProfile> {
        let mut in_force = BTreeSet::new();
        for step in self.context.own {
            match (&step.change, &step.group) {
                (Change::ThreadPolicy(change), Group::Vm(name))
                    if change.new.policy == Policy::Deadline =>
                {
                    in_force.insert(name.as_str());
                }
                (Change::VcpuBudgets(change), _) => {
                    let reserved = change.new.iter().flat_map(|enforcement| &enforcement.vcpus);
                    in_force.extend(reserved.map(|vcpu| vcpu.vm.as_str()));
                }
                _ => {}
            }
        }
        let mut vms: Vec<&VmProfile> = self.profile.vms.iter().collect();
        vms.sort_by_key(|vm| !in_force.contains(vm.name.as_str()));
        vms
    }

    /// Returns the card if it is on the path of real-time packets.
    fn plan_named_nic(
        &self,
        nic: &NicProfile,
        wanted: &mut Wanted,
    ) -> Result<Option<Nic>, HostError> {
        let found = match discover::nic(self.machine, self.threads, &nic.name) {
            Ok(found) => found,
            // It went away meanwhile, and nobody named it.
            Err(_) if nic.is_other => return Ok(None),
            Err(error) => return Err(place(error, &nic.place)),
        };
        cards::plan_card(self.machine, nic, &found, self.online, wanted)?;
        flows::steer(self.machine, nic, self.context.own, &mut wanted.steps)?;
        Ok((!nic.is_other).then_some(found))
    }

    /// Plans the VMs and their budgets. `refused`: those whose budgets have no room, and why. Returns the threads that run
    /// their services.
    fn plan_vms(
        &self,
        mut refused: BTreeMap<String, HostError>,
        wanted: &mut Wanted,
        path: &mut dedicated::Path,
        shared: &mut SharedCards,
        ports: &mut Ports,
    ) -> Vec<ThreadId> {
        let by_ext = self.profile.vcpu_scheduler.as_ref();
        let processes = Processes::of(self.threads);
        let has_budget =
            |vm: &VmProfile| by_ext.is_some_and(|scheduler| scheduler.vms.contains_key(&vm.name));
        let mut ends = Vec::new();
        let mut reserved = Vec::new();
        for vm in &self.profile.vms {
            if !vm.asks() && !has_budget(vm) {
                continue;
            }
            let group = Group::Vm(vm.name.clone());
            let found = wanted.of_group(&group, |wanted| {
                let warnings = &mut wanted.warnings;
                let found = find_vm(self.machine, &processes, vm, self.context, warnings);
                let found = found.map_err(|error| place_once(error, &vm.place))?;
                wanted.vms.push(VmThreads::of(&vm.name, found.as_ref()));
                let Some(running) = found else {
                    let absent = discover::absent_vm(self.machine, &processes, &vm.selector());
                    let name = printable(&vm.name);
                    wanted.warnings.push(format!(
                        "VM \"{name}\" does not run: {absent}. Apply again when it does"
                    ));
                    return Ok(None);
                };
                if let Some(error) = refused.remove(&vm.name) {
                    return Err(error);
                }
                shared.plan(
                    self.machine,
                    &running,
                    self.profile,
                    self.context.own,
                    wanted,
                )?;
                self.plan_running(&running, wanted)
                    .map(|budgets| Some((running, budgets)))
            });
            let Some(Some((running, budgets))) = found else {
                continue;
            };
            ports.add(self.machine, &running, &mut wanted.warnings);
            let workers = running.vm.vhost_workers.iter();
            let of_the_path = workers.filter(|worker| running.interface_of(worker).is_none());
            path.threads.extend(of_the_path.cloned());
            path.threads.extend(running.vm.socket_servers.clone());
            path.irqs.extend(running.vm.vfio_irqs.clone());
            ends.extend(rt_vcpus(&running, by_ext));
            reserved.push((vm.name.clone(), budgets));
        }
        if let Some(by_ext) = by_ext {
            let order = self.in_force_first();
            reserved.sort_by_key(|(name, _)| order.iter().position(|vm| vm.name == *name));
            let admitted = vcpu_scheduler::admit_each(by_ext, reserved, self.online, wanted);
            wanted.of_group(&Group::Scheduler, |wanted| {
                let steps = vcpu_scheduler::steps(self.machine, self.threads, by_ext, admitted)?;
                wanted.steps.extend(steps);
                Ok(())
            });
        }
        ends
    }

    /// Plans a VM that runs. Returns the budgets that the `sched_ext` scheduler is to keep.
    fn plan_running(
        &self,
        running: &Running<'_>,
        wanted: &mut Wanted,
    ) -> Result<Vec<Reserved>, HostError> {
        let Self {
            machine, profile, ..
        } = self;
        let by_ext = profile.vcpu_scheduler.as_ref();
        plan_vm(
            machine,
            running,
            self.online,
            self.context.own,
            by_ext,
            wanted,
        )?;
        let reserved = match by_ext {
            Some(by_ext) => vcpu_scheduler::reserve(machine, by_ext, running, wanted)?,
            None => Vec::new(),
        };
        let Wanted {
            steps, warnings, ..
        } = wanted;
        batch::steps(
            machine,
            running,
            by_ext,
            profile.softirqs.levels_from,
            steps,
            warnings,
        )?;
        Ok(reserved)
    }
}

/// One that was named by its process and does not run is none either, unless that is a mistake.
fn find_vm<'p>(
    machine: &Machine,
    processes: &Processes<'_>,
    vm: &'p VmProfile,
    context: &Context<'_>,
    warnings: &mut Vec<String>,
) -> Result<Option<Running<'p>>, HostError> {
    let has_ended = |pid| machine.has_ended(pid, vm.start_time);
    let was_there = !context.is_first || vm.start_time.is_some();
    if was_there && vm.pid.is_some_and(has_ended) {
        return Ok(None);
    }
    vms::find(machine, processes, vm, warnings)
}

/// Returns the threads of the process; none if it was there at the first apply and has ended.
fn plan_process(
    machine: &Machine,
    profile: &ProcessProfile,
    context: &Context<'_>,
    wanted: &mut Wanted,
) -> Result<Vec<ThreadId>, HostError> {
    let was_there = !context.is_first || profile.start_time.is_some();
    if was_there && machine.has_ended(profile.pid, profile.start_time) {
        let what = format!("process {} has ended", profile.pid);
        wanted.warnings.push(what);
        return Ok(Vec::new());
    }
    let threads = discover::process(machine, profile.pid)?.threads;
    if let Some(priority) = profile.class.vcpu {
        for thread in &threads {
            let why = "so that the service runs with the rank of its class";
            wanted
                .steps
                .extend(policy(machine, thread, priority, RESET_ON_FORK, why)?);
        }
    }
    Ok(threads)
}

fn throttling(machine: &Machine, profile: &Profile, wanted: &mut Wanted) {
    let path = "/proc/sys/kernel/sched_rt_runtime_us";
    let setting = File::new(machine, path, Form::Text);
    let Ok(old) = setting.read(machine) else {
        return;
    };
    if profile.rt_throttling_off {
        let new = "-1".to_owned();
        let why = "because the caller asked for no RT throttling";
        let change = ChangeOf { setting, old, new };
        wanted.steps.push(Step::required(change, why));
        return;
    }
    // From 6.12 on the fair server has taken its place.
    let release = machine.kernel_release().unwrap_or_default();
    let throttles = parse::kernel_version(&release).is_some_and(|version| version < (6, 12));
    if throttles && old != "-1" && profile.highest_of_tenants().is_some() {
        wanted.warnings.push(format!(
            "{path} is {old}: RT threads that use more than that share of a period are stopped for \
             the rest of it (--rt-throttling-off sets -1)"
        ));
    }
}

fn warn_of_irqbalance(threads: &[Thread], profile: &Profile, wanted: &mut Wanted) {
    let places = profile.nics.iter().any(|nic| {
        nic.class.cpus.is_some() || nic.queues.values().any(|class| class.cpus.is_some())
    });
    let places = places || profile.dedicated_cpu.is_some() || profile.tuned.is_some();
    if places && threads.iter().any(|thread| thread.id.comm == "irqbalance") {
        wanted.warnings.push(
            "irqbalance runs and may move interrupts again: stop it, or give it --banirq and \
             --banned-cpus"
                .into(),
        );
    }
}

/// The same for an error that may have its place.
fn place_once(error: HostError, of_vm: &str) -> HostError {
    match &error {
        HostError::BadInput { what, .. } if what.starts_with(of_vm) => error,
        _ => place(error, of_vm),
    }
}

fn place(error: HostError, place: &str) -> HostError {
    match error {
        HostError::BadInput { what, fix } => HostError::BadInput {
            what: at(place, &what),
            fix,
        },
        other => other,
    }
}
