//! A system from a plan file (`steadyvm.toml`) and its `[simulate]` table.
//!
//! VMs, tasks, budgets and places are those that `steadyvm plan` computes. Where the plan finds no place for a VCPU, a
//! partitioned host puts it on the CPU with the least bandwidth (the dissertation's rule for overload, section 3.3.1).

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;
use steadyvm_analysis::{
    host::HostScheduler,
    plan::{self, Report, Request, SchedulerName, VcpuReport, VmReport, duration_ns},
};
use steadyvm_sched_policy::{CpuSet, Host, Kind, Order, Parameters};

use crate::system::{Guest, GuestOrder, Overheads, System, Task, Vcpu};

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
    random_offsets: bool,
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

#[derive(Deserialize, Default)]
struct File {
    #[serde(default)]
    host: HostTable,
    #[serde(default)]
    simulate: Table,
}

#[derive(Deserialize, Default)]
struct HostTable {
    server: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Table {
    duration: Option<String>,
    seed: Option<u64>,
    server: Option<String>,
    order: Option<String>,
    quantum: Option<String>,
    decision: Option<String>,
    context_switch: Option<String>,
    migration: Option<String>,
    execution_factor_percent: Option<u32>,
    longest_gap_percent: Option<u32>,
    random_offsets: bool,
}

/// Reads `text` and computes its plan.
///
/// # Errors
/// What is no plan, and what the simulator cannot do, with its place.
pub fn parse(text: &str) -> Result<Scenario, PlanError> {
    let request = plan::file::parse(text)?;
    let file: File =
        toml::from_str(text).map_err(|error| PlanError::Table(error.message().to_owned()))?;
    let report = plan::run(&request)?;
    let table = file.simulate;
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
    // What the plan calls cbs is the sporadic server on a host of fixed priorities.
    let scheduler = request.host().scheduler();
    let fixed = matches!(
        scheduler,
        HostScheduler::PartitionedDeadlineMonotonic | HostScheduler::GlobalDeadlineMonotonic
    );
    let word = table
        .server
        .or(file.host.server)
        .unwrap_or_else(|| "cbs".to_owned());
    let kind = match word.as_str() {
        "cbs" if fixed => Kind::Sporadic,
        word => kind(word)?,
    };
    let order = match table.order.as_deref() {
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
        migration_ns: time(
            "migration",
            &table.migration,
            of_plan(planned.migration) + of_plan(planned.cache_reload),
        )?,
    };
    let quantum = time("quantum", &table.quantum, of_plan(planned.quantum))?;
    let mut system = System {
        host: Host::new(order, scheduler.is_partitioned(), quantum),
        cpus: request.host().cpus(),
        overheads,
        guests: Vec::new(),
    };
    let mut loads = vec![0.0; system.cpus as usize];
    for (number, vm) in report.vms.iter().enumerate() {
        let mut guest = guest(&request, number, vm, kind, &mut system, &mut loads)?;
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
    number: usize,
    vm: &VmReport,
    kind: Kind,
    system: &mut System,
    loads: &mut [f64],
) -> Result<Guest, PlanError> {
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
    for &(position, vcpu) in &used {
        let cpus = if vcpu.cpus.is_empty() {
            let bandwidth = vcpu.budget as f64 / vcpu.period as f64;
            if partitioned {
                least_loaded(&mask, loads, bandwidth)
            } else {
                mask
            }
        } else {
            vcpu.cpus.iter().copied().collect()
        };
        let parameters =
            Parameters::new(kind, vcpu.budget.unsigned_abs(), vcpu.period.unsigned_abs())
                .map_err(|error| vcpu_error(vm, position, error))?;
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
                ..Task::periodic(
                    name,
                    task.demand().unsigned_abs(),
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

fn vcpu_error(
    vm: &VmReport,
    vcpu: usize,
    error: steadyvm_sched_policy::ParametersError,
) -> PlanError {
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
