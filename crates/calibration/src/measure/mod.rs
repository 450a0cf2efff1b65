//! Takes the figures of the running host, without a VM.
//!
//! Rule: it harms nobody. It sets nothing but the policy and the CPUs of its own threads and of its partner, a process that it
//! ends. What computes does so at FIFO 1, the lowest rank of real time, for 10 ms at most, and then sleeps as long: half of a
//! CPU, far below the 95 % from which on the kernel throttles (`sched_rt_runtime_us`). What has the rank of a VCPU sleeps, but
//! for microseconds.
//!
//! Each part has its share of the time; a part that is slower than its share ends with at least a few samples. One that gets no
//! time on a CPU ends the measurement with an error, 20 s later.

mod caches;
mod interruption;
mod migration;
mod pace;
mod partner;
mod switch;
mod thread;
mod timer;
mod wake_up;

use std::time::{Duration, Instant};

use steadyvm_fault::{Fault, Result};
use steadyvm_host::{Machine, discover};

pub use partner::{Partner, echo};

use crate::calibration::Calibration;
use crate::cost::Cost;
use crate::stale::Here;

/// The longest measurement, s.
pub const MOST_SECONDS: u64 = 600;

/// The rank of what computes.
const LOWEST: u32 = 1;

/// What waits for an interrupt or a timer is measured on so many CPUs at most, spread over all.
const MOST_CPUS: usize = 8;

/// What was measured, and what could not be.
#[derive(Debug)]
pub struct Measured {
    /// The figures.
    pub calibration: Calibration,
    /// What is missing, and why.
    pub notes: Vec<String>,
}

/// Measures for about so many seconds.
///
/// # Errors
/// A kernel that gives no real-time priority, a partner that cannot be started, a machine that does not say its CPUs.
pub fn measure(
    machine: &Machine,
    partner: &Partner,
    seconds: u64,
    now_unix_s: u64,
) -> Result<Measured> {
    let seconds = seconds.clamp(1, MOST_SECONDS);
    let cpus = own_cpus()?;
    let (Some(&first), Some(&home)) = (cpus.first(), cpus.last()) else {
        return Err(Fault::machine(
            "this process has no CPU",
            "its mask is empty",
        ));
    };
    // Before anything is measured: without the policy nothing is.
    thread::at(LOWEST, home, Instant::now(), || Ok(()))?;
    let rank = steadyvm_host::Priorities::default().vcpu;
    let here = Here::of(machine);
    let vms = count_vms(machine);
    let share = |percent: u64| Duration::from_millis(seconds * 10 * percent);
    let until = |percent| Instant::now() + share(percent);

    let mut notes = Vec::new();
    let context_switch = switch::samples(partner, home, until(15))?;
    let working_set = caches::WorkingSet::of(machine, home);
    let cache_reload = if let Some(set) = working_set {
        let until = until(25);
        thread::at(LOWEST, home, until, move || caches::samples(set, until))?
    } else {
        notes.push(format!(
            "cache_reload: /sys/devices/system/cpu/cpu{home}/cache has no second-level cache with its size"
        ));
        Vec::new()
    };
    let migration = if first == home {
        notes.push("migration: this process may use one CPU only".to_owned());
        Vec::new()
    } else {
        let until = until(10);
        thread::at(LOWEST, home, until, move || {
            migration::samples([first, home], until)
        })?
    };
    let wake_up = wake_up::samples(first, home, rank, until(15))?;
    let some: Vec<usize> = spread(&cpus, MOST_CPUS);
    let each = |percent: u64| share(percent) / u32::try_from(some.len()).unwrap_or(1);
    let (mut timer, mut interruption) = (Vec::new(), Vec::new());
    for &cpu in &some {
        let until = Instant::now() + each(15);
        timer.extend(thread::at(rank, cpu, until, move || timer::samples(until))?);
        let until = Instant::now() + each(20);
        interruption.extend(thread::at(LOWEST, cpu, until, move || {
            Ok(interruption::samples(until))
        })?);
    }
    let vms = vms.max(count_vms(machine));
    Ok(Measured {
        calibration: Calibration {
            unix_s: now_unix_s,
            kernel: here.kernel,
            cpu: here.cpu,
            seconds,
            vms,
            context_switch: Cost::of(&context_switch),
            working_set_kib: working_set.map(caches::WorkingSet::kib),
            cache_reload: Cost::of(&cache_reload),
            migration: Cost::of(&migration),
            wake_up: Cost::of(&wake_up),
            timer: Cost::of(&timer),
            interruption: Cost::of(&interruption),
            packet: None,
            packet_unix_s: None,
        },
        notes,
    })
}

/// The CPUs that this process may use: they have no need to be set aside.
fn own_cpus() -> Result<Vec<usize>> {
    Ok(thread::own_cpus()?.iter().collect())
}

/// So many of them at most, from the first to the last.
fn spread(cpus: &[usize], most: usize) -> Vec<usize> {
    let count = cpus.len().min(most);
    (0..count)
        .map(|place| cpus[place * (cpus.len() - 1) / (count - 1).max(1)])
        .collect()
}

/// How many processes hold a VM of KVM.
fn count_vms(machine: &Machine) -> u32 {
    let threads = machine.all_threads().unwrap_or_default();
    let mut processes = threads.iter().filter(|it| it.id.tid == it.id.pid);
    let mut count = 0;
    while let Some(process) = processes.find(|it| !it.is_kernel()) {
        count += u32::from(discover::holds_a_vm(machine, process.id.pid));
    }
    count
}

#[cfg(test)]
mod tests;
