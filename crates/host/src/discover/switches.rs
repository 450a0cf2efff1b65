//! What joins taps and cards: bridges of the kernel, Open vSwitch in the kernel, and switches in user space.

use crate::settings::Machine;

/// The master of all ports of Open vSwitch's kernel datapath, whichever of its bridges they are of (`ovs_netdev_link()`).
pub(crate) const OPEN_VSWITCH: &str = "ovs-system";

/// The device that Open vSwitch makes for its datapath in user space (`datapath_type=netdev`), as with DPDK.
const IN_USER_SPACE: &str = "ovs-netdev";

/// The device that a network device is a port of.
pub(crate) fn master(machine: &Machine, device: &str) -> Option<String> {
    let link = format!("/sys/class/net/{device}/master");
    let path = machine.tree.real_path(&link).ok()?;
    path.rsplit('/').next().map(str::to_owned)
}

/// The ports of Open vSwitch's kernel datapath; none where there is no such datapath.
pub(crate) fn ports_of_open_vswitch(machine: &Machine) -> Option<Vec<String>> {
    let entries = machine.tree.list(&format!("/sys/class/net/{OPEN_VSWITCH}"));
    let entries = entries.ok()?;
    let lower = entries.iter().filter_map(|it| it.strip_prefix("lower_"));
    Some(lower.map(str::to_owned).collect())
}

/// Whether Open vSwitch has a datapath in user space here.
pub(crate) fn has_open_vswitch_in_user_space(machine: &Machine) -> bool {
    let path = format!("/sys/class/net/{IN_USER_SPACE}");
    machine.tree.exists(&path)
}
