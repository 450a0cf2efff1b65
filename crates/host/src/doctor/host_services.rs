//! Services of the host that VCPUs with a rank run before.

use std::collections::BTreeMap;

use super::check::{Check, check};
use crate::discover::{self, Processes};
use crate::settings::Machine;
use crate::settings::threads::Policy;

/// What a unit is called whose service VMs depend on in time: clocks, and what switches their packets.
const IN_TIME: [&str; 7] = [
    "ptp4l",
    "phc2sys",
    "ts2phc",
    "chrony",
    "chronyd",
    "ntpsec",
    "ovs-vswitchd",
];

/// One for each such service that runs beside a VCPU with a rank: without one nothing stops it for long.
pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    let Ok(threads) = machine.all_threads() else {
        return Vec::new();
    };
    let processes = Processes::of(&threads);
    let units = discover::units_of_the_system(machine, &processes, |unit| {
        let stem = unit.split(['@', '.']).next().unwrap_or_default();
        IN_TIME.contains(&stem)
    });
    if units.is_empty() {
        return Vec::new();
    }
    let Some(rank) = highest_of_vcpus(machine, &processes) else {
        return Vec::new();
    };
    let of_unit = |(unit, pids): (&String, &Vec<u32>)| of_unit(machine, unit, pids, rank);
    units.iter().map(of_unit).collect()
}

/// The highest FIFO priority that a VCPU of this host has.
fn highest_of_vcpus(machine: &Machine, processes: &Processes<'_>) -> Option<u32> {
    let vms = discover::all_vms(machine, processes);
    let vcpus = vms.iter().flat_map(|(_, vm)| vm.vcpus.values());
    let ranks = vcpus.filter_map(|thread| {
        let scheduling = machine.threads.scheduling(thread.tid).ok()?;
        (scheduling.policy == Policy::Fifo).then_some(scheduling.priority)
    });
    ranks.max()
}

fn of_unit(machine: &Machine, unit: &str, pids: &[u32], rank: u32) -> Check {
    let check = check(
        &format!("scheduling.host-service.{unit}"),
        &format!("{unit} beside VCPUs"),
        "A VCPU with a rank runs before every normal thread: a clock's daemon or a switch waits as long as the VM computes.",
    );
    let threads = pids.iter().flat_map(|pid| machine.threads_of(*pid));
    let mut normal = BTreeMap::new();
    for thread in threads {
        let scheduling = machine.threads.scheduling(thread.id.tid);
        let is_normal = |policy| matches!(policy, Policy::Normal | Policy::Batch | Policy::Idle);
        if scheduling.is_ok_and(|it| is_normal(it.policy)) {
            normal.insert(thread.id.tid, thread.id);
        }
    }
    match normal.values().next() {
        None => check.ok("all of its threads have a rank or a budget"),
        Some(one) => check.warn(
            format!("{} of its threads are normal, such as {one}; VCPUs have FIFO {rank}", normal.len()),
            &format!(
                "add to steadyvm.toml: [[host_service]] with unit = \"{unit}\" and a rank above {rank}, if what it does is \
                 short"
            ),
        ),
    }
}
