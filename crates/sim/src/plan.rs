//! A system from a plan file (`steadyvm.toml`), and what simulate.toml says of how it is played.
//!
//! VMs, tasks and places are those that `steadyvm plan` computes, and budgets those that it installs: with the host's
//! costs, and due where a reservation is. Where the plan finds no place for a VCPU, it has the budget alone, and a
//! partitioned host puts it on the CPU with the least bandwidth (the dissertation's rule for overload, section 3.3.1).
//!
//! Who keeps budgets: with `enforce = "deadline"` the kernel's `SCHED_DEADLINE`, else the policy. A file that says `auto`, or
//! nothing, has the kernel's for `cbs` servers under EDF, as `auto` would choose, and the policy for all others. The
//! policy has no constant-bandwidth server that is due before its period: it is a sporadic one there, and under fixed
//! priorities all are.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use steadyvm_analysis::{
    host::HostScheduler,
    plan::{self, Measured, Report, Request, SchedulerName, VcpuReport, VmReport},
};
use steadyvm_config::{File, HostName, Mechanism, ServerName, Simulate, Written};
use steadyvm_sched_policy::{CpuSet, Host, Kind, Order, Parameters, ParametersError};

use crate::system::{Guest, GuestOrder, KeptBy, Overheads, Play, System, Task, Vcpu};

/// What cannot be simulated, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The plan file itself.
    #[error(transparent)]
    Input(#[from] plan::InputError),
    /// simulate.toml, or what says the same.
    #[error("how to simulate: {0}")]
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
    /// The same; first releases, and the beginnings of periods, are drawn.
    #[must_use]
    pub fn with_random_offsets(mut self) -> Self {
        self.random_offsets = true;
        self.system.play.random_phases = true;
        let seed = self.seed;
        self.with_seed(seed)
    }

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

/// Reads `text`, computes its plan, and has it played as `how` says.
///
/// # Errors
/// What is no plan, and what the simulator cannot do, with its place.
pub fn parse(text: &str, how: &Simulate) -> Result<Scenario, PlanError> {
    let file = File::parse("", text).map_err(plan::InputError::from)?;
    scenario(&file, how, None, &Measured::default())
}

/// The same of a file that was read. `here`: the CPUs of this machine, by number, for a file that does not say how many.
/// `measured`: costs of its host, for what the file leaves out, as in its plan.
///
/// # Errors
/// As [`parse`].
pub fn scenario(
    file: &File,
    how: &Simulate,
    here: Option<&[u32]>,
    measured: &Measured,
) -> Result<Scenario, PlanError> {
    let request = plan::file::of_measured(file, here, measured)?;
    let report = plan::run(&request)?;
    let host = file.host.as_ref();
    let time = |name: &str, time: Option<Written>, otherwise: u64| match time {
        None => Ok(otherwise),
        Some(Written(ns)) => u64::try_from(ns)
            .map_err(|_| PlanError::Table(format!("{name} is {ns} ns, which is below 0"))),
    };
    let scheduler = request.host().scheduler();
    let planned_server = host.map_or(ServerName::Cbs, |host| host.server);
    let fixed = matches!(
        scheduler,
        HostScheduler::PartitionedDeadlineMonotonic | HostScheduler::GlobalDeadlineMonotonic
    );
    let kept_by = match (
        how.server,
        host.and_then(|host| host.enforce),
        planned_server,
    ) {
        (Some(_), ..) | (None, Some(Mechanism::Ext | Mechanism::None), _) => KeptBy::Policy,
        (None, Some(Mechanism::Deadline), _) => KeptBy::Deadline,
        (None, _, ServerName::Cbs) if !fixed && how.scheduler.is_none() => KeptBy::Deadline,
        _ => KeptBy::Policy,
    };
    let kind = match how.server.unwrap_or(planned_server) {
        ServerName::Cbs if fixed => Kind::Sporadic,
        server => kind(server),
    };
    let order = match how.scheduler {
        Some(scheduler)
            if scheduler.is_partitioned() != request.host().scheduler().is_partitioned() =>
        {
            return Err(PlanError::Table(format!(
                "scheduler is \"{}\", and the plan is for \"{}\": what runs on one CPU cannot be played as what runs on all; \
                 plan for the other",
                scheduler.word(),
                request.scheduler()
            )));
        }
        _ if kept_by == KeptBy::Deadline => Order::EarliestDeadline,
        None if fixed => Order::DeadlineMonotonic,
        None | Some(HostName::Pedf | HostName::Gedf) => Order::EarliestDeadline,
        Some(HostName::Pdm | HostName::Gdm) => Order::DeadlineMonotonic,
        Some(HostName::Prm | HostName::Grm) => Order::RateMonotonic,
        Some(HostName::Pfp | HostName::Gfp) => Order::Explicit,
    };
    let planned = request.host().overheads();
    let of_plan = |time: i64| u64::try_from(time).unwrap_or(0);
    let overheads = Overheads {
        decision_ns: time("decision", how.decision, of_plan(planned.scheduler))?,
        context_switch_ns: time(
            "context_switch",
            how.context_switch,
            of_plan(planned.context_switch),
        )?,
        migration_ns: time("migration", how.migration, of_plan(planned.migration))?,
        cache_reload_ns: time(
            "cache_reload",
            how.cache_reload,
            of_plan(planned.cache_reload),
        )?,
    };
    let quantum = time("quantum", how.quantum, of_plan(planned.quantum))?;
    let mut system = System {
        host: Host::new(order, scheduler.is_partitioned(), quantum),
        cpus: request.host().cpus(),
        overheads,
        play: Play {
            kept_by,
            adversary: how.adversary,
            stays_awake: true,
            late: how.late,
            random_phases: how.random_offsets,
        },
        guests: Vec::new(),
    };
    let mut loads = vec![0.0; system.cpus as usize];
    for number in 0..report.vms.len() {
        let mut guest = guest(&request, &report, number, kind, &mut system, &mut loads)?;
        for task in &mut guest.tasks {
            task.execution_factor_percent = how.execution_factor_percent.unwrap_or(100);
            task.longest_gap_percent = how.longest_gap_percent.unwrap_or(100);
        }
        system.guests.push(guest);
    }
    for vm in &report.vms {
        let receiving = receiving(vm, &report, kind, &system, &mut loads)?;
        system.guests.extend(receiving);
    }
    system.check()?;
    let scenario = Scenario {
        system,
        duration_ns: time("duration", how.duration, 10_000_000_000)?,
        seed: 0,
        random_offsets: how.random_offsets,
        report,
    };
    Ok(scenario.with_seed(how.seed.unwrap_or(1)))
}

const fn kind(server: ServerName) -> Kind {
    match server {
        ServerName::Cbs => Kind::ConstantBandwidth,
        ServerName::Periodic => Kind::Periodic,
        ServerName::Sporadic => Kind::Sporadic,
        ServerName::Deferrable => Kind::Deferrable,
        ServerName::Polling => Kind::Polling,
        ServerName::WorkConserving => Kind::WorkConserving,
        ServerName::CapacityReclaiming => Kind::CapacityReclaiming,
    }
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
    for &(position, vcpu) in &used {
        let cpus = if vcpu.cpus.is_empty() {
            let bandwidth = vcpu.budget as f64 / vcpu.period as f64;
            if partitioned {
                least_loaded(&mask, loads, bandwidth)
            } else {
                mask
            }
        } else {
            counted(report, &vcpu.cpus)
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

/// The threads that receive for a VM, if it bounds them, as a guest that always has work. They come after all VCPUs, as in the
/// analysis.
fn receiving(
    vm: &VmReport,
    report: &Report,
    kind: Kind,
    system: &System,
    loads: &mut [f64],
) -> Result<Option<Guest>, PlanError> {
    let others = system.guests.iter().map(|guest| guest.vcpus.len() as u32);
    let first = others.sum::<u32>();
    let anywhere = CpuSet::first(system.cpus);
    let mut vcpus = Vec::new();
    for (position, server) in vm.receive.iter().enumerate() {
        let cpus = if !server.cpus.is_empty() {
            counted(report, &server.cpus)
        } else if system.host.is_partitioned() {
            let bandwidth = server.budget as f64 / server.period as f64;
            least_loaded(&anywhere, loads, bandwidth)
        } else {
            anywhere
        };
        let parameters = Parameters::new(
            kind,
            server.budget.unsigned_abs(),
            server.period.unsigned_abs(),
        );
        let parameters = parameters.map_err(|error| vcpu_error(vm, position, error))?;
        let number = first + vcpus.len() as u32;
        vcpus.push(Vcpu {
            parameters: parameters.with_priority(number),
            cpus,
        });
    }
    Ok((!vcpus.is_empty()).then(|| Guest {
        name: format!("{} (receives)", vm.name),
        order: GuestOrder::EarliestDeadline,
        vcpus,
        tasks: Vec::new(),
    }))
}

/// CPUs of a report, which names them as the host numbers them, as the simulator counts them.
fn counted(report: &Report, cpus: &[u32]) -> CpuSet {
    let counted = |cpu: &u32| report.cpus.iter().position(|known| known.cpu == *cpu);
    let counted = cpus.iter().filter_map(counted);
    counted.map(|cpu| cpu as u32).collect()
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
