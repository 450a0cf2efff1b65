//! The steps of one VM that runs: its workers, its VCPUs, its monitor's threads and its taps.

use super::budget;
use super::shared_card::without_path_cpus;
use super::step::Step;
use super::threads::{check_cpus, policy, thread_cpus};
use super::vms::{Running, runs_without};
use super::wanted::Wanted;
use crate::cpu_set::CpuSet;
use crate::error::{HostError, at, unless_vanished};
use crate::profile::{SchedulerProfile, ThreadPriority};
use crate::settings::links::Qdisc;
use crate::settings::threads::RESET_ON_FORK;
use crate::settings::{Change, ChangeOf, Device, Machine, RootQdisc, ThreadId};

pub(super) fn plan_vm(
    machine: &Machine,
    running: &Running<'_>,
    online: &CpuSet,
    own: &[Step],
    by_ext: Option<&SchedulerProfile>,
    wanted: &mut Wanted,
) -> Result<(), HostError> {
    let Running {
        profile, vm, taps, ..
    } = running;
    let class = &profile.class;
    check_cpus(class, online, &profile.place)?;
    let vhost = profile.vhost(by_ext);
    let mut lacks = Vec::new();
    if vm.vhost_workers.is_empty() && vhost.is_some() && !taps.is_empty() {
        lacks.push(format!(
            "VM \"{}\" has no vhost worker: its packets go through its monitor's threads; use \
             vhost-net (vhost=on)",
            profile.name
        ));
    }
    if running.interfaces_of_user_space > 0 && vhost.is_some() {
        lacks.push(format!(
            "VM \"{}\" has {} interfaces by vhost-user, which a program in user space carries, such as Open vSwitch with \
             DPDK: their path is not steadyvm's, and nothing of it is changed",
            profile.name, running.interfaces_of_user_space
        ));
    }
    for thread in &vm.vfio_threads {
        if let Some(priority) = class.irq {
            let why = "so that interrupts of the VM's own devices have the rank of its class";
            wanted
                .steps
                .extend(policy(machine, thread, priority, 0, why)?);
        }
    }
    let io = vm.io_threads.iter().map(|thread| (thread, class.io));
    let main = vm.main_thread.iter().map(|thread| (thread, class.main));
    for (thread, priority) in io.chain(main) {
        if let Some(priority) = priority {
            let why = "so that a VCPU that waits for its monitor waits for no other thread";
            let steps = policy(machine, thread, priority, RESET_ON_FORK, why)?;
            wanted.steps.extend(steps);
        }
    }
    for own in &running.interfaces {
        check_cpus(&own.profile.class, online, &own.profile.place)?;
    }
    bound_workers(machine, running, wanted)?;
    let has_rank = |_: &&ThreadId| profile.vhost_budgets.is_empty();
    for thread in vm.vhost_workers.iter().filter(has_rank) {
        let own = running.interface_of(thread);
        let of_vm = || {
            let why = "so that packets enter the VM with the rank of its class";
            (vhost, why.to_owned())
        };
        let (priority, why) = own.map_or_else(of_vm, |own| own.rank(profile, by_ext));
        if let Some(priority) = priority {
            wanted
                .steps
                .extend(policy(machine, thread, priority, 0, &why)?);
        }
        let class = own.map_or(class, |own| &own.profile.class);
        if let Some(cpus) = &class.cpus {
            wanted.steps.extend(thread_cpus(machine, thread, cpus)?);
        }
    }
    rank_servers(machine, running, vhost, wanted)?;
    let by_deadline = profile.budgets.iter().filter(|_| by_ext.is_none());
    for (number, budget) in by_deadline {
        let Some(thread) = vm.vcpus.get(number) else {
            lacks.push(runs_without(profile, *number));
            continue;
        };
        let steps = budget::steps(machine, thread, budget, budget::OF_PLAN, &profile.place)?;
        wanted.steps.extend(steps);
    }
    lacks.extend(begun_by_timers(running));
    if let Some(priority) = class.vcpu {
        if profile.rt_vcpus.is_empty() && vm.vcpu_count == 1 && profile.budgets.is_empty() {
            lacks.push(format!(
                "VM {} has one VCPU: its housekeeping runs at real-time priority too; give it two",
                vm.pid
            ));
        }
        for thread in rt_vcpus(running, by_ext) {
            let why = "so that the VM's service runs with the rank of its class";
            wanted
                .steps
                .extend(policy(machine, &thread, priority, RESET_ON_FORK, why)?);
        }
    }
    for tap in taps {
        if let Some(new) = running.class_of_tap(tap).tap_qdisc {
            unless_vanished(tap_qdisc(machine, tap, new.name(), own, wanted))?;
        }
    }
    if !lacks.is_empty() && vm.is_at_work(machine) {
        wanted.warnings.extend(lacks);
    }
    Ok(())
}

/// The ranks and CPUs of the servers of a VM's sockets, where they have no budgets.
fn rank_servers(
    machine: &Machine,
    running: &Running<'_>,
    vhost: Option<ThreadPriority>,
    wanted: &mut Wanted,
) -> Result<(), HostError> {
    let Running { profile, vm, .. } = running;
    if !profile.vhost_budgets.is_empty() {
        return Ok(());
    }
    for thread in &vm.socket_servers {
        if let Some(priority) = vhost {
            let why =
                "so that the VM's calls of its sockets are answered with the rank of its class";
            wanted
                .steps
                .extend(policy(machine, thread, priority, 0, why)?);
        }
        if let Some(cpus) = &profile.class.cpus {
            wanted.steps.extend(thread_cpus(machine, thread, cpus)?);
        }
    }
    Ok(())
}

/// The budgets of a VM's vhost workers, and of the servers of its sockets, in place of ranks. The worker of an interface with a class
/// of its own is one of them.
fn bound_workers(
    machine: &Machine,
    running: &Running<'_>,
    wanted: &mut Wanted,
) -> Result<(), HostError> {
    let Running { profile, vm, .. } = running;
    if profile.vhost_budgets.is_empty() {
        return Ok(());
    }
    without_path_cpus(&profile.class).map_err(|what| HostError::BadInput {
        what: at(&profile.place, &what),
        fix: "leave `path_cpus` out, or `vhost_budget` of `receive`".into(),
    })?;
    let workers = [&vm.vhost_workers[..], &vm.socket_servers].concat();
    let all = (&workers[..], &profile.vhost_budgets[..]);
    let why = "so that its vhost workers take no more CPU time than that, whatever its guest and others send";
    let steps = budget::receive_steps(machine, all, "workers", why, &profile.place)?;
    wanted.steps.extend(steps);
    Ok(())
}

/// The VCPUs that run the service: those that are named; else all but VCPU 0, which keeps the
/// guest's housekeeping, unless it is the only one.
pub(super) fn rt_vcpus(running: &Running<'_>, by_ext: Option<&SchedulerProfile>) -> Vec<ThreadId> {
    let Running { profile, vm, .. } = running;
    if vm.is_container {
        // Beyond those of the plan they are threads as any others of their program.
        return Vec::new();
    }
    let all_have_budgets = by_ext.is_some_and(|it| it.vms.contains_key(&profile.name));
    let is_rt = |number: u32| {
        if all_have_budgets || profile.budgets.contains_key(&number) {
            false
        } else if profile.rt_vcpus.is_empty() {
            number != 0 || vm.vcpu_count == 1
        } else {
            profile.rt_vcpus.contains(&number)
        }
    };
    let chosen = vm.vcpus.iter().filter(|(number, _)| is_rt(**number));
    chosen.map(|(_, thread)| thread.clone()).collect()
}

/// The discipline that is none.
const NO_QUEUE: &str = "noqueue";

/// Replaces only what the kernel attached by itself: a discipline that someone configured has
/// options and classes that could not be given back.
fn tap_qdisc(
    machine: &Machine,
    tap: &str,
    new: &str,
    own: &[Step],
    wanted: &mut Wanted,
) -> Result<(), HostError> {
    let now = machine
        .links
        .root_qdisc(tap)
        .map_err(|source| HostError::io("read the queueing discipline of", tap, source))?;
    let device = Device::find(machine, tap);
    let ours = own.iter().any(|step| {
        matches!(&step.change, Change::RootQdisc(made)
            if made.setting.device.is(&device) && made.new.kind == now.kind)
    });
    if !now.is_default && !ours {
        // libvirt gives its taps this one, which has no options.
        if now.kind == new && new == NO_QUEUE {
            return Ok(());
        }
        wanted.warnings.push(format!(
            "{tap} has the queueing discipline {} that someone set: it is left as it is",
            now.kind
        ));
        return Ok(());
    }
    let change = ChangeOf {
        setting: RootQdisc { device },
        old: now,
        new: Qdisc {
            kind: new.to_owned(),
            is_default: false,
        },
    };
    let why = "so that a preempted sender does not strand the VM's packets";
    wanted.steps.push(Step::required(change, why));
    Ok(())
}

/// A guest's timers wake its only VCPU.
fn begun_by_timers(running: &Running<'_>) -> Option<String> {
    let Running { profile, vm, .. } = running;
    let is_alone = vm.vcpu_count == 1 && !vm.is_container;
    (profile.begins_with_request && is_alone).then(|| {
        format!(
            "VM {} has one VCPU, and its budget is planned to begin with each request. The guest's timers begin it, too, so a \
             request may find it used up and wait a period. Write interface = \"prm\" in its [[vm]]: that budget holds whatever \
             wakes the VCPU",
            vm.pid
        )
    })
}
