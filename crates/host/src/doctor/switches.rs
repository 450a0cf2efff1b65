//! Open vSwitch: what of it steadyvm ranks, and what is not its.

use super::check::{Check, check};
use crate::discover::{
    self, OPEN_VSWITCH, Processes, has_open_vswitch_in_user_space, ports_of_open_vswitch,
};
use crate::printable::printable;
use crate::settings::Machine;

pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    let mut checks: Vec<Check> = Vec::from_iter(in_the_kernel(machine));
    if has_open_vswitch_in_user_space(machine) {
        checks.push(in_user_space());
    }
    checks.extend(vms(machine));
    checks
}

fn in_the_kernel(machine: &Machine) -> Option<Check> {
    let ports = ports_of_open_vswitch(machine)?;
    let check = check(
        "network.open-vswitch",
        "Open vSwitch in the kernel",
        "The kernel datapath hands a frame on in the context that received it, as a bridge does: with that one's rank. The first \
         frame of a flow goes to ovs-vswitchd, and waits for it.",
    );
    let ports = match ports.len() {
        0 => "no port".to_owned(),
        _ => ports.join(", "),
    };
    Some(check.ok(format!("{OPEN_VSWITCH} has {ports}")))
}

fn in_user_space() -> Check {
    let check = check(
        "network.open-vswitch-user-space",
        "Open vSwitch in user space",
        "Threads of ovs-vswitchd poll its cards and VMs. They have no queue, interrupt or vhost worker that has a rank.",
    );
    check.warn(
        "there is a datapath of type netdev (ovs-netdev), as with DPDK: it is not steadyvm's, which changes nothing of it",
        "for VMs that need steadyvm's path: a bridge of datapath type system, or a bridge of the kernel",
    )
}

/// VMs whose packets a program in user space carries.
fn vms(machine: &Machine) -> Vec<Check> {
    let Ok(threads) = machine.all_threads() else {
        return Vec::new();
    };
    let processes = Processes::of(&threads);
    let of_vm = |(name, vm): (String, discover::Vm)| {
        let count = discover::interfaces_of_user_space(machine, vm.pid);
        let check = check(
            &format!("network.vhost-user.{}", printable(&name)),
            &format!("VM \"{name}\": vhost-user"),
            "A program in user space carries these packets, such as Open vSwitch with DPDK. The kernel does not see them.",
        );
        (count > 0).then(|| {
            check.warn(
                format!("{count} of its interfaces: their path is not steadyvm's, which changes nothing of it"),
                "give the VM a tap (vhost-net) in a bridge for packets that need a rank",
            )
        })
    };
    let vms = discover::all_vms(machine, &processes);
    vms.into_iter().filter_map(of_vm).collect()
}
