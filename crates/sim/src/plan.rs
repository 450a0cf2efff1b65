//! A system from a plan file (`steadyvm.toml`) and its `[simulate]` table.
//!
//! VMs, tasks and places are those that `steadyvm plan` computes, and budgets those that it installs: with the host's
//! costs, and due where a reservation is. Where the plan finds no place for a VCPU, it has the budget alone, and a
//! partitioned host puts it on the CPU with the least bandwidth (the dissertation's rule for overload, section 3.3.1).
//!
//! Who keeps budgets: with `enforce = "deadline"` the kernel's `SCHED_DEADLINE`, else the policy. A file that does
//! not say has the kernel's for `cbs` servers under EDF, as `[sched]` would choose, and the policy for all others. The
//! policy has no constant-bandwidth server that is due before its period: it is a sporadic one there, and under fixed
//! priorities all are.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use steadyvm_analysis::{
    host::HostScheduler,
    plan::{self, Enforcement, Report, Request, SchedulerName, VcpuReport, VmReport, duration_ns},
};
use steadyvm_config::{File, ServerName};
use steadyvm_sched_policy::{CpuSet, Host, Kind, Order, Parameters, ParametersError};

use crate::system::{Guest, GuestOrder, KeptBy, Overheads, Play, System, Task, Vcpu};

/// What cannot be simulated, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The plan file itself.
    #[error(transparent)]
    Input(#[from] plan::InputError),
    /// The `[simulate]` table.
    #[error("[simulate]: {0}")]
    Table(String),
    /// A VM without an interface.
    #[error(
        "VM \"{0}\" has no interface that would do, so there are no VCPUs to simulate; `steadyvm plan` says why. Give it a budget to see what happens with that"
    )]
    NoInterface(String),
    /// A VCPU that the policy refuses.
    #[error("VM \"{vm}\", VCPU {vcpu}: {error}")]
    Vcpu {
        /// The VM.
        vm: String,
        /// Its VCPU.
        vcpu: usize,
        /// Why.
        error: steadyvm_sched_policy::ParametersError,
    },
    /// The system as a whole.
    #[error(transparent)]
    System(#[from] crate::SystemError),
}

/// What to simulate, and how long.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The system.
    pub system: System,
    /// The plan it comes from.
    pub report: Report,
    /// Simulated time, ns.
    pub duration_ns: u64,
    /// Of random numbers.
    pub seed: u64,
    /// First releases are drawn from the seed.
    pub(crate) random_offsets: bool,
}

impl Scenario {
    /// The same with another seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        if self.random_offsets {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            for task in self
                .system
                .guests
                .iter_mut()
                .flat_map(|guest| &mut guest.tasks)
            {
                task.offset_ns = random.random_range(0..task.period_ns);
            }
        }
        self
    }
}

/// Reads `text` and computes its plan.
///
/// # Errors
/// What is no plan, and what the simulator cannot do, with its place.
pub fn parse(text: &str) -> Result<Scenario, PlanError> {
    let file = File::parse("", text).map_err(plan::InputError::from)?;
    let request = plan::file::of(&file, None)?;
    let report = plan::run(&request)?;
    let table = file.simulate.map(|table| table.value).unwrap_or_default();
    let host = file.host.as_ref();
    let time = |name: &str, text: &Option<String>, otherwise: u64| match text {
        None => Ok(otherwise),
        Some(text) => duration_ns(text)
            .and_then(|time| u64::try_from(time).ok())
            .ok_or_else(|| {
                PlanError::Table(format!(
                    "{name} is \"{text}\"; give a time such as \"10ms\""
                ))
            }),
    };
    let scheduler = request.host().scheduler();
    let fixed = matches!(
        scheduler,
        HostScheduler::PartitionedDeadlineMonotonic | HostScheduler::GlobalDeadlineMonotonic
    );
    let kept_by = match (
        &table.server,
        host.and_then(|host| host.enforce),
        host.map_or(ServerName::Cbs, |host| host.server),
    ) {
        (Some(_), ..) | (None, Some(Enforcement::Ext | Enforcement::None), _) => KeptBy::Policy,
        (None, Some(Enforcement::Deadline), _) => KeptBy::Deadline,
        (None, _, ServerName::Cbs) if !fixed && table.order.is_none() => KeptBy::Deadline,
        _ => KeptBy::Policy,
    };
    let word = table.server.unwrap_or_else(|| {
        host.map_or(ServerName::Cbs, |host| host.server)
            .word()
            .to_owned()
    });
    let kind = match word.as_str() {
        "cbs" if fixed => Kind::Sporadic,
        word => kind(word)?,
    };
    let order = match table.order.as_deref() {
        _ if kept_by == KeptBy::Deadline => Order::EarliestDeadline,
        None if fixed => Order::DeadlineMonotonic,
        None | Some("edf") => Order::EarliestDeadline,
        Some("dm") => Order::DeadlineMonotonic,
        Some("rm") => Order::RateMonotonic,
        Some(word) => {
            return Err(PlanError::Table(format!(
                "order is \"{word}\"; give edf, dm or rm"
            )));
        }
    };
    let planned = request.host().overheads();
    let of_plan = |time: i64| u64::try_from(time).unwrap_or(0);
    let overheads = Overheads {
        decision_ns: time("decision", &table.decision, of_plan(planned.scheduler))?,
        context_switch_ns: time(
            "context_switch",
            &table.context_switch,
            of_plan(planned.context_switch),
        )?,
        migration_ns: time("migration", &table.migration, of_plan(planned.migration))?,
        cache_reload_ns: time(
            "cache_reload",
            &table.cache_reload,
            of_plan(planned.cache_reload),
        )?,
    };
    let quantum = time("quantum", &table.quantum, of_plan(planned.quantum))?;
    let mut system = System {
        host: Host::new(order, scheduler.is_partitioned(), quantum),
        cpus: request.host().cpus(),
        overheads,
        play: Play {
            kept_by,
            adversary: table.adversary,
            stays_awake: true,
            late: table.late,
            random_phases: table.random_offsets,
        },
        guests: Vec::new(),
    };
    let mut loads = vec![0.0; system.cpus as usize];
    for number in 0..report.vms.len() {
        let mut guest = guest(&request, &report, number, kind, &mut system, &mut loads)?;
        for task in &mut guest.tasks {
            task.execution_factor_percent = table.execution_factor_percent.unwrap_or(100);
            task.longest_gap_percent = table.longest_gap_percent.unwrap_or(100);
        }
        system.guests.push(guest);
    }
    system.check()?;
    let scenario = Scenario {
        system,
        duration_ns: time("duration", &table.duration, 10_000_000_000)?,
        seed: 0,
        random_offsets: table.random_offsets,
        report,
    };
    Ok(scenario.with_seed(table.seed.unwrap_or(1)))
}

fn kind(word: &str) -> Result<Kind, PlanError> {
    Kind::ALL
        .into_iter()
        .find(|kind| kind.word() == word)
        .ok_or_else(|| {
            let words: Vec<&str> = Kind::ALL.iter().map(|kind| kind.word()).collect();
            PlanError::Table(format!(
                "server is \"{word}\"; give one of {}",
                words.join(", ")
            ))
        })
}

fn guest(
    request: &Request,
    report: &Report,
    number: usize,
    kind: Kind,
    system: &mut System,
    loads: &mut [f64],
) -> Result<Guest, PlanError> {
    let vm = &report.vms[number];
    if vm.rt && vm.interface.is_none() {
        return Err(PlanError::NoInterface(vm.name.clone()));
    }
    let mask: CpuSet = match request.cpus(number) {
        Some(cpus) => cpus
            .iter()
            .copied()
            .filter(|&cpu| cpu < system.cpus)
            .collect(),
        None => CpuSet::first(system.cpus),
    };
    let partitioned = system.host.is_partitioned();
    let first = system
        .guests
        .iter()
        .map(|guest| guest.vcpus.len() as u32)
        .sum::<u32>();
    let mut vcpus = Vec::new();
    if !vm.rt {
        for _ in 0..vm.vcpu_count.max(1) {
            let cpus = if partitioned {
                least_loaded(&mask, loads, 0.01)
            } else {
                mask
            };
            let parameters = Parameters::best_effort(Parameters::WEIGHT_ONE);
            let parameters = parameters.map_err(|error| vcpu_error(vm, vcpus.len(), error))?;
            vcpus.push(Vcpu { parameters, cpus });
        }
    }
    // Spreading a budget evenly may leave VCPUs without any: they do not run.
    let used: Vec<(usize, &VcpuReport)> = vm
        .vcpus
        .iter()
        .enumerate()
        .filter(|(_, vcpu)| vcpu.budget > 0)
        .collect();
    // A report names CPUs as the host numbers them; the simulator counts them.
    let counted = |cpu: &u32| (report.cpus.iter()).position(|known| known.cpu == *cpu);
    for &(position, vcpu) in &used {
        let cpus = if vcpu.cpus.is_empty() {
            let bandwidth = vcpu.budget as f64 / vcpu.period as f64;
            if partitioned {
                least_loaded(&mask, loads, bandwidth)
            } else {
                mask
            }
        } else {
            (vcpu.cpus.iter().filter_map(counted))
                .map(|cpu| cpu as u32)
                .collect()
        };
        let parameters = parameters(kind, vcpu).map_err(|error| vcpu_error(vm, position, error))?;
        // Of equal deadlines the first VCPU of the plan comes first, as in the analysis.
        let number = first + vcpus.len() as u32;
        vcpus.push(Vcpu {
            parameters: parameters.with_priority(number),
            cpus,
        });
    }
    let scheduler = request.guest_scheduler(number);
    let tasks = request
        .tasks(number)
        .map(|(name, task)| {
            let home = |vcpu: &VcpuReport| vcpu.tasks.iter().any(|own| own == name);
            Task {
                vcpu: used.iter().position(|(_, vcpu)| home(vcpu)),
                deadline_ns: task.deadline().unsigned_abs(),
                jitter_ns: task.jitter().unsigned_abs(),
                suspension_ns: task.suspension().unsigned_abs(),
                ..Task::periodic(
                    name,
                    task.execution().unsigned_abs(),
                    task.period().unsigned_abs(),
                )
            }
        })
        .collect();
    Ok(Guest {
        name: vm.name.clone(),
        order: if scheduler == Some(SchedulerName::Dm) {
            GuestOrder::DeadlineMonotonic
        } else {
            GuestOrder::EarliestDeadline
        },
        vcpus,
        tasks,
    })
}

/// What is installed for `vcpu`; its budget alone if the host does not hold it.
fn parameters(kind: Kind, vcpu: &VcpuReport) -> Result<Parameters, ParametersError> {
    let (budget, deadline, period) = match &vcpu.install {
        Some(install) => (install.runtime_ns, install.deadline_ns, install.period_ns),
        None => (vcpu.budget, vcpu.deadline, vcpu.period),
    };
    let ns = i64::unsigned_abs;
    let kind = if deadline < period && kind == Kind::ConstantBandwidth {
        Kind::Sporadic
    } else {
        kind
    };
    Parameters::new(kind, ns(budget), ns(period))?.with_deadline(ns(deadline))
}

fn vcpu_error(vm: &VmReport, vcpu: usize, error: ParametersError) -> PlanError {
    PlanError::Vcpu {
        vm: vm.name.clone(),
        vcpu,
        error,
    }
}

/// The CPU of `mask` with the least load, which grows by `bandwidth`.
fn least_loaded(mask: &CpuSet, loads: &mut [f64], bandwidth: f64) -> CpuSet {
    let allowed = (0..loads.len()).filter(|&cpu| mask.contains(cpu as u32));
    let chosen = allowed.min_by(|&a, &b| loads[a].total_cmp(&loads[b]));
    if let Some(cpu) = chosen {
        loads[cpu] += bandwidth;
    }
    chosen.map(|cpu| cpu as u32).into_iter().collect()
}
