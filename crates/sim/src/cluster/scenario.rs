//! What is simulated: the file's hosts, flavours and rates, checked.

use std::collections::HashMap;

use steadyvm_analysis::{
    host::MAX_CPUS,
    plan::sold::{SoldInterface, VCPU_BUDGET_MIN_US, least_interface},
};
use steadyvm_config::{
    ClusterSimulation, Error, Place, Placed, PlacementPolicy, SimulatedVm, Written,
};

use super::claim::{Claim, Needs};

/// The most hosts.
pub const MAX_HOSTS: usize = 10_000;
/// The most VMs that are expected in a run: their events fit into some GiB of memory.
pub const MAX_VMS: f64 = 20_000_000.0;
/// The most CPUs of all hosts.
const MAX_ALL_CPUS: u64 = 10_000_000;
/// The most flavours.
const MAX_FLAVOURS: usize = 1_000;
const MAX_SEEDS: u32 = 1_000;
/// A VM's VCPUs, as Nova's flavours.
const MAX_VCPUS: u32 = 1_024;
const HOUR_NS: f64 = 3.6e12;
const DAY_NS: f64 = 24.0 * HOUR_NS;
/// The kernel's bounds on a period, us.
const PERIOD_US: std::ops::RangeInclusive<u64> = 100..=4_194_304;

/// Hosts of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct HostKind {
    /// Its name.
    pub name: String,
    /// CPUs for VMs.
    pub cpus: u32,
    /// Memory for VMs.
    pub memory_mib: u64,
    /// What real-time VMs may have of each CPU.
    pub limit_ppm: u64,
    /// VCPUs of all its VMs.
    pub vcpus: u64,
}

/// VMs of one flavour.
#[derive(Debug, Clone, PartialEq)]
pub struct Flavour {
    /// Its name.
    pub name: String,
    /// Share of arrivals, beside the others'.
    pub weight: f64,
    /// How many.
    pub vcpus: u32,
    /// What it takes of a host's.
    pub memory_mib: u64,
    /// Budget and period of its VCPUs; none of a VM that gets what is left.
    pub interface: Option<SoldInterface>,
    /// Mean stay, ns; none: to the end.
    pub lifetime_ns: Option<f64>,
    /// Mean time between migrations that somebody asks for, ns.
    pub migration_ns: Option<f64>,
    /// The same of resizes.
    pub resize_ns: Option<f64>,
    /// What it may become, by number.
    pub resize_to: Vec<u16>,
}

/// Failures of each host: mean times, ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Failures {
    /// From a return to the next failure.
    pub every_ns: f64,
    /// To the return.
    pub repair_ns: f64,
}

/// Batches of hosts that are emptied, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Maintenance {
    /// When the first begins, ns.
    pub begin_ns: u64,
    /// Hosts of a batch.
    pub hosts_at_once: usize,
    /// How long each takes no VM, ns.
    pub each_ns: u64,
}

/// A checked file.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Simulated time, ns.
    pub length_ns: u64,
    /// Of the first run.
    pub seed: u64,
    /// Runs.
    pub seeds: u32,
    /// To be compared.
    pub policies: Vec<PlacementPolicy>,
    /// Mean time between arrivals, ns; none: no VM comes but those of the start.
    pub arrival_ns: Option<f64>,
    /// Kinds of hosts.
    pub kinds: Vec<HostKind>,
    /// The kind of each host.
    pub hosts: Vec<usize>,
    /// Flavours of VMs.
    pub flavours: Vec<Flavour>,
    /// The flavours of the first VMs.
    pub start: Vec<u16>,
    /// Whether and how hosts fail.
    pub failures: Option<Failures>,
    /// Whether and how hosts are emptied.
    pub maintenance: Option<Maintenance>,
}

impl Scenario {
    /// Reads and checks a file. `name` is what messages call it.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn parse(name: &str, text: &str) -> Result<Self, Error> {
        Self::of(&ClusterSimulation::parse(name, text)?)
    }

    /// Checks a file that was read.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn of(file: &ClusterSimulation) -> Result<Self, Error> {
        let nowhere = Place::default();
        let length_ns = positive_ns(&nowhere, "length", file.length).map_err(|error| Error {
            place: None,
            ..error
        })?;
        let (kinds, hosts) = hosts(file)?;
        let numbers = numbers(file)?;
        let flavours = (file.vm.iter())
            .map(|vm| flavour(vm, &numbers))
            .collect::<Result<Vec<_>, _>>()?;
        let mut start = Vec::new();
        for entry in &file.start {
            let Some(&number) = numbers.get(entry.vm.as_str()) else {
                return wrong(&entry.place, no_flavour("vm", &entry.vm));
            };
            let count = entry.count.unwrap_or(1) as usize;
            if (start.len() + count) as f64 > MAX_VMS {
                return wrong(
                    &entry.place,
                    format!("count: more than {MAX_VMS} VMs in all"),
                );
            }
            start.resize(start.len() + count, number);
        }
        let seeds = file.seeds.clone().unwrap_or_default();
        let runs = file.seeds.as_ref().map_or(1, |seeds| seeds.value);
        if runs == 0 || runs > MAX_SEEDS {
            return wrong(
                &seeds.place,
                format!("seeds is {runs}; give 1 to {MAX_SEEDS}"),
            );
        }
        if file.policies.is_empty() {
            return wrong(
                &file.policies.place,
                "policies is empty; name one at least, such as [\"nova\"]",
            );
        }
        Ok(Self {
            length_ns,
            seed: file.seed.as_ref().map_or(1, |seed| seed.value),
            seeds: runs,
            policies: file.policies.value.clone(),
            arrival_ns: arrivals(file, &flavours, length_ns)?,
            kinds,
            hosts,
            flavours,
            start,
            failures: match &file.failure {
                None => None,
                Some(it) => Some(Failures {
                    every_ns: positive_ns(&it.place, "every", it.every)? as f64,
                    repair_ns: positive_ns(&it.place, "repair", it.repair)? as f64,
                }),
            },
            maintenance: match &file.maintenance {
                None => None,
                Some(it) => Some(Maintenance {
                    begin_ns: u64::try_from(it.begin.0).map_err(|_| {
                        Error::new(
                            it.place.clone(),
                            "begin is below 0; give a time such as \"3600s\"",
                        )
                    })?,
                    hosts_at_once: it.hosts_at_once.unwrap_or(1).max(1) as usize,
                    each_ns: positive_ns(&it.place, "each", it.each)?,
                }),
            },
        })
    }

    /// What each flavour needs of hosts of a kind.
    pub fn needs(&self, kind: &HostKind) -> Vec<Needs> {
        (self.flavours.iter())
            .map(|flavour| match flavour.interface {
                None => Needs::Rest,
                Some(interface) => {
                    Claim::of(interface, kind.limit_ppm).map_or(Needs::TooMuch, Needs::Claim)
                }
            })
            .collect()
    }
}

fn wrong<T>(place: &Place, message: impl Into<String>) -> Result<T, Error> {
    Err(Error::new(place.clone(), message))
}

fn no_flavour(key: &str, name: &str) -> String {
    format!("{key}: no [[vm]] has the name \"{name}\"")
}

fn positive_ns(place: &Place, key: &str, time: Written) -> Result<u64, Error> {
    match u64::try_from(time.0) {
        Ok(ns) if ns > 0 => Ok(ns),
        _ => wrong(
            place,
            format!(
                "{key} is {} ns; give a time above 0, such as \"3600s\"",
                time.0
            ),
        ),
    }
}

fn hosts(file: &ClusterSimulation) -> Result<(Vec<HostKind>, Vec<usize>), Error> {
    let (mut kinds, mut hosts, mut all_cpus) = (Vec::new(), Vec::new(), 0);
    for (number, host) in file.host.iter().enumerate() {
        let place = &host.place;
        let count = host.count.unwrap_or(1) as usize;
        if count == 0 {
            return wrong(
                place,
                "count is 0; give 1 or more, or leave these hosts out",
            );
        }
        if hosts.len() + count > MAX_HOSTS {
            return wrong(place, format!("count: more than {MAX_HOSTS} hosts in all"));
        }
        if host.cpus == 0 || host.cpus > MAX_CPUS {
            return wrong(
                place,
                format!("cpus is {}; give 1 to {MAX_CPUS}", host.cpus),
            );
        }
        all_cpus += u64::from(host.cpus) * count as u64;
        if all_cpus > MAX_ALL_CPUS {
            return wrong(
                place,
                format!("cpus: more than {MAX_ALL_CPUS} in all hosts"),
            );
        }
        let percent = host.usable_percent.unwrap_or(90);
        if percent == 0 || percent > 100 {
            return wrong(place, format!("usable_percent is {percent}; give 1 to 100"));
        }
        let vcpus = u64::from(host.cpus) * u64::from(host.vcpus_per_cpu.unwrap_or(4));
        check_memory(place, host.memory_mib)?;
        kinds.push(HostKind {
            name: host.name.clone(),
            cpus: host.cpus,
            memory_mib: host.memory_mib,
            limit_ppm: u64::from(percent) * 10_000,
            vcpus,
        });
        hosts.resize(hosts.len() + count, number);
    }
    if hosts.is_empty() {
        let place = file.host.first().map(|host| host.place.clone());
        let message = "a cluster has one host at least: give a [[host]]".to_owned();
        return Err(Error { place, message });
    }
    Ok((kinds, hosts))
}

/// So that sums of all VMs and hosts stay far from the end of 64 bits.
fn check_memory(place: &Place, memory_mib: u64) -> Result<(), Error> {
    if memory_mib > u64::from(u32::MAX) {
        return wrong(
            place,
            format!("memory_mib is {memory_mib}; give at most {}", u32::MAX),
        );
    }
    Ok(())
}

fn numbers(file: &ClusterSimulation) -> Result<HashMap<&str, u16>, Error> {
    let mut numbers = HashMap::new();
    for (number, vm) in file.vm.iter().enumerate() {
        if number == MAX_FLAVOURS {
            return wrong(&vm.place, format!("more than {MAX_FLAVOURS} flavours"));
        }
        let number = number as u16;
        if numbers.insert(vm.name.as_str(), number).is_some() {
            return wrong(&vm.place, format!("name: two [[vm]] are \"{}\"", vm.name));
        }
    }
    Ok(numbers)
}

fn arrivals(
    file: &ClusterSimulation,
    flavours: &[Flavour],
    length_ns: u64,
) -> Result<Option<f64>, Error> {
    let Some(rate) = &file.arrivals_per_hour else {
        return Ok(None);
    };
    let per_hour = rate.value;
    let is_number = per_hour.is_finite() && per_hour >= 0.0;
    if !is_number || per_hour * length_ns as f64 / HOUR_NS > MAX_VMS {
        let message = format!(
            "arrivals_per_hour is {per_hour}; give 0 or more, and at most {MAX_VMS} VMs in the whole length"
        );
        return wrong(&rate.place, message);
    }
    if per_hour > 0.0 && flavours.iter().all(|flavour| flavour.weight <= 0.0) {
        return wrong(
            &rate.place,
            "arrivals_per_hour: no [[vm]] has a weight above 0",
        );
    }
    Ok((per_hour > 0.0).then(|| HOUR_NS / per_hour))
}

fn flavour(vm: &Placed<SimulatedVm>, numbers: &HashMap<&str, u16>) -> Result<Flavour, Error> {
    let place = &vm.place;
    let number = |key: &str, value: Option<f64>, otherwise: f64| match value {
        Some(value) if !value.is_finite() || value < 0.0 => {
            wrong(place, format!("{key} is {value}; give 0 or more"))
        }
        value => Ok(value.unwrap_or(otherwise)),
    };
    let gap_ns = |key, per_day: Option<f64>| {
        let per_day = number(key, per_day, 0.0)?;
        if per_day > 86_400.0 {
            return wrong(
                place,
                format!("{key} is {per_day}; give at most one a second"),
            );
        }
        Ok((per_day > 0.0).then(|| DAY_NS / per_day))
    };
    let vcpus = vm.vcpus.unwrap_or(1);
    if vcpus == 0 || vcpus > MAX_VCPUS {
        return wrong(place, format!("vcpus is {vcpus}; give 1 to {MAX_VCPUS}"));
    }
    check_memory(place, vm.memory_mib)?;
    let resize_to = (vm.resize_to.iter())
        .map(|name| match numbers.get(name.as_str()) {
            Some(&number) => Ok(number),
            None => wrong(place, no_flavour("resize_to", name)),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let resize_ns = gap_ns("resizes_per_day", vm.resizes_per_day)?;
    if resize_ns.is_some() && resize_to.is_empty() {
        return wrong(place, "resizes_per_day: give the flavours in resize_to");
    }
    Ok(Flavour {
        name: vm.name.clone(),
        weight: number("weight", vm.weight, 1.0)?,
        vcpus,
        memory_mib: vm.memory_mib,
        interface: interface(vm, vcpus)?,
        lifetime_ns: match vm.lifetime {
            None => None,
            Some(time) => Some(positive_ns(place, "lifetime", time)? as f64),
        },
        migration_ns: gap_ns("migrations_per_day", vm.migrations_per_day)?,
        resize_ns,
        resize_to,
    })
}

fn interface(vm: &Placed<SimulatedVm>, vcpus: u32) -> Result<Option<SoldInterface>, Error> {
    let place = &vm.place;
    let period_us = match vm.period {
        None => None,
        Some(time) => Some(whole_us(place, "period", time)?),
    };
    if let Some(period_us) = period_us.filter(|period_us| !PERIOD_US.contains(period_us)) {
        return wrong(
            place,
            format!(
                "period is {period_us} us; give {} to {} us",
                PERIOD_US.start(),
                PERIOD_US.end()
            ),
        );
    }
    match (vm.tasks.is_empty(), vm.budget, period_us) {
        (true, None, None) => Ok(None),
        (true, Some(budget), Some(period_us)) => {
            let budget_us = whole_us(place, "budget", budget)?;
            if !(VCPU_BUDGET_MIN_US..=period_us).contains(&budget_us) {
                return wrong(
                    place,
                    format!(
                        "budget is {budget_us} us; give {VCPU_BUDGET_MIN_US} us to the period, {period_us} us"
                    ),
                );
            }
            Ok(Some(SoldInterface {
                period_us,
                budget_us,
                vcpus,
            }))
        }
        (false, None, _) => of_tasks(vm, period_us, vcpus).map(Some),
        (false, Some(_), _) => wrong(
            place,
            "tasks and budget exclude each other; keep one of them",
        ),
        (true, ..) => wrong(place, "budget and period go together; give both, or tasks"),
    }
}

fn of_tasks(
    vm: &Placed<SimulatedVm>,
    period_us: Option<u64>,
    vcpus: u32,
) -> Result<SoldInterface, Error> {
    let mut tasks = Vec::with_capacity(vm.tasks.len());
    for task in &vm.tasks {
        let place = &task.place;
        let (c, t) = (whole_us(place, "c", task.c)?, whole_us(place, "t", task.t)?);
        let d = task.d.map_or(Ok(t), |d| whole_us(place, "d", d))?;
        if !(c <= d && d <= t) {
            return wrong(place, "a task needs c <= d <= t");
        }
        if task.jitter.is_some() || task.suspension.is_some() || task.execution_percent.is_some() {
            return wrong(
                place,
                "a cloud sells by c, d and t alone; leave out jitter, suspension and execution_percent",
            );
        }
        tasks.push((c, d, t));
    }
    least_interface(&tasks, period_us, vcpus).ok_or_else(|| {
        Error::new(
            vm.place.clone(),
            format!("tasks: no budget of {vcpus} VCPUs keeps all deadlines; give the VM more vcpus, or a shorter period"),
        )
    })
}

fn whole_us(place: &Place, key: &str, time: Written) -> Result<u64, Error> {
    match u64::try_from(time.0) {
        Ok(ns) if ns > 0 && ns % 1_000 == 0 => Ok(ns / 1_000),
        _ => wrong(
            place,
            format!("{key} is {} ns; give whole microseconds above 0", time.0),
        ),
    }
}
