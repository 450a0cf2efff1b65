//! Budgets of virtual CPUs, enforced by our `sched_ext` scheduler.
//!
//! A virtual CPU with a budget comes before all other normal threads, and after FIFO threads: those of interrupts and vhost
//! keep their rank over it. VCPUs without a budget share the rest.

use steadyvm_sched::FIFO_PRIORITY;
use steadyvm_sched::core_scheduling;
use steadyvm_sched::enforcement::{Enforcement, Reserved};

use super::budget::{self, Admission};
use super::group::Group;
use super::step::Step;
use super::threads::policy;
use super::vms::{Running, runs_without};
use super::wanted::Wanted;
use crate::cpu_set::CpuSet;
use crate::error::{HostError, at};
use crate::profile::SchedulerProfile;
use crate::profile::{ThreadPriority, VcpuBudget};
use crate::settings::{ChangeOf, Machine, SettingKind, Thread, VcpuBudgets};

/// The kernel has `sched_ext` where this is.
const SCHED_EXT: &str = "/sys/kernel/sched_ext";

impl SchedulerProfile {
    /// The server of a budget. A budget that is due before its period ends counts from the wake-up, as a sporadic server's.
    fn server_of(&self, budget: &VcpuBudget) -> &str {
        if budget.deadline_ns < budget.period_ns {
            "sporadic"
        } else {
            &self.server
        }
    }

    fn enforcement(&self, vcpus: Vec<Reserved>) -> Enforcement {
        Enforcement {
            order: self.order,
            queue: self.queue,
            quantum_ns: self.quantum_ns,
            vcpus,
        }
    }

    /// What the VCPUs of a VM get, and how many are planned and do not run.
    fn reserved(&self, running: &Running<'_>) -> (Vec<Reserved>, Vec<u32>) {
        let Running { profile, vm, .. } = running;
        if let Some(same) = self.vms.get(&profile.name) {
            let one = |(&vcpu, thread): (&u32, &crate::settings::ThreadId)| {
                same.reserved(&self.server, &profile.name, vcpu, thread.tid)
            };
            return (vm.vcpus.iter().map(one).collect(), Vec::new());
        }
        let mut reserved = Vec::new();
        let mut absent = Vec::new();
        for (&number, budget) in &profile.budgets {
            let Some(thread) = vm.vcpus.get(&number) else {
                absent.push(number);
                continue;
            };
            reserved.push(Reserved {
                vm: profile.name.clone(),
                vcpu: number,
                tid: thread.tid,
                server: self.server_of(budget).to_owned(),
                budget_ns: budget.runtime_ns,
                deadline_ns: budget.deadline_ns,
                period_ns: budget.period_ns,
                priority: budget.rank,
                cpus: budget.cpu.into_iter().collect(),
            });
        }
        (reserved, absent)
    }
}

/// One that has ended needs no budget.
fn has_cookie(machine: &Machine, tid: u32) -> bool {
    let cookie = machine.threads.core_cookie(tid);
    cookie.is_ok_and(|cookie| cookie != 0)
}

/// What the VCPUs of a VM get, with the steps that keep them on the CPUs of their plan.
pub(super) fn reserve(
    machine: &Machine,
    scheduler: &SchedulerProfile,
    running: &Running<'_>,
    wanted: &mut Wanted,
) -> Result<Vec<Reserved>, HostError> {
    let (reserved, absent) = scheduler.reserved(running);
    if let Some(vcpu) = reserved.iter().find(|vcpu| has_cookie(machine, vcpu.tid)) {
        return Err(HostError::BadInput {
            what: format!(
                "VCPU {} of VM \"{}\" {}",
                vcpu.vcpu,
                vcpu.vm,
                core_scheduling::REASON
            ),
            fix: core_scheduling::FIX.into(),
        });
    }
    if !absent.is_empty() && running.vm.is_at_work(machine) {
        let lacks = absent.into_iter();
        let lacks = lacks.map(|vcpu| runs_without(running.profile, vcpu));
        wanted.warnings.extend(lacks);
    }
    for vcpu in reserved.iter().filter(|vcpu| !vcpu.cpus.is_empty()) {
        let cpus: CpuSet = vcpu.cpus.iter().map(|cpu| *cpu as usize).collect();
        if let Some(thread) = running.vm.vcpus.get(&vcpu.vcpu) {
            let place = &running.profile.place;
            let step = budget::on_its_cpus(machine, thread, cpus, place)?;
            wanted.steps.extend(step);
        }
    }
    Ok(reserved)
}

/// Admits the VMs one after the other. Those whose budgets are wrong or have no room fail, by themselves.
pub(super) fn admit_each(
    profile: &SchedulerProfile,
    reserved: Vec<(String, Vec<Reserved>)>,
    online: &CpuSet,
    wanted: &mut Wanted,
) -> Vec<Reserved> {
    let mut admission = Admission::by_ext(online);
    let mut admitted = profile.enforcement(Vec::new());
    for (name, of_vm) in reserved {
        let before = admitted.vcpus.len();
        admitted.vcpus.extend(of_vm.iter().cloned());
        let checked = check(&admitted).and_then(|()| admission.admit(&of_vm));
        if let Err(error) = checked {
            admitted.vcpus.truncate(before);
            wanted.fail(Group::Vm(name), error);
        }
    }
    admitted.vcpus
}

fn check(enforcement: &Enforcement) -> Result<(), HostError> {
    enforcement.check().map_err(|error| HostError::BadInput {
        what: at("[host]", &error.to_string()),
        fix: "choose another server, quantum, budget or period; nothing was changed".into(),
    })
}

/// The steps that have the scheduler enforce all of these; none where there are none.
///
/// The loader raises `irq_work/N`, which carries preemptions out. They are steps here, so that a loader that is killed leaves
/// nothing that undo does not know.
pub(super) fn steps(
    machine: &Machine,
    threads: &[Thread],
    profile: &SchedulerProfile,
    reserved: Vec<Reserved>,
) -> Result<Vec<Step>, HostError> {
    if !machine.tree.exists(SCHED_EXT) {
        return Err(HostError::Unsupported {
            missing: "sched_ext, which [host] enforce = \"ext\" needs".into(),
            fix: "use enforce = \"deadline\", or a kernel with CONFIG_SCHED_CLASS_EXT, such as Debian's 7.3".into(),
        });
    }
    if reserved.is_empty() {
        return Ok(Vec::new());
    }
    let new = profile.enforcement(reserved);
    let setting = VcpuBudgets {};
    let old = setting.read(machine)?;
    let why = "so that VCPUs get their budget in every period, and no more";
    let new = Some(new);
    let mut steps = Vec::new();
    for thread in threads {
        if thread.is_kernel() && thread.id.comm.starts_with("irq_work/") {
            let rank = ThreadPriority::Fifo(FIFO_PRIORITY.cast_unsigned());
            let why = "so that no FIFO thread holds up preemptions by VCPUs";
            steps.extend(policy(machine, &thread.id, rank, 0, why)?);
        }
    }
    steps.push(Step::required(ChangeOf { setting, old, new }, why));
    Ok(steps)
}
