//! Macvtaps: who hands multicast frames to them.

use super::check::{Check, check};
use crate::planner::kernel_has_cutoff;
use crate::settings::Machine;
use crate::settings::links::{NOTHING_QUEUED, cutoff_of_card, macvtaps_above};

pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    let cards = machine.tree.list("/sys/class/net").unwrap_or_default();
    let of_card = |card: &String| {
        let macvtaps = macvtaps_above(machine, card);
        (!macvtaps.is_empty()).then(|| multicast(machine, card, &macvtaps))
    };
    cards.iter().filter_map(of_card).collect()
}

fn multicast(machine: &Machine, card: &str, macvtaps: &[String]) -> Check {
    let check = check(
        &format!("network.macvtap-multicast.{card}"),
        &format!("{card}: multicast to macvtaps"),
        "The kernel may queue multicast frames (GOOSE, Sampled Values, PTP) for a normal thread. They wait there for every \
         real-time thread, overtake each other, and beyond 1,000 are lost.",
    );
    let names = macvtaps.join(", ");
    if !kernel_has_cutoff(machine) {
        return check.warn(
            format!(
                "macvtaps {names}; before Linux 6.4 the kernel has no cutoff that would prevent it"
            ),
            "give VMs that need multicast in time a tap on a bridge, or use Linux 6.4 or later",
        );
    }
    match cutoff_of_card(machine, card) {
        Ok((_, NOTHING_QUEUED)) => check.ok(format!("macvtaps {names}; cutoff -1, none is queued")),
        Ok((through, cutoff)) => check.warn(
            format!("macvtaps {names}; cutoff {cutoff}: multicast may be queued"),
            &format!(
                "name a VM with a class in steadyvm.toml, and apply; or by hand, until the last of them goes: ip link set \
                 {through} type macvtap bclim -1 (iproute2 6.4). The strictest class is best served by a tap on a bridge"
            ),
        ),
        Err(error) => check.unknown(format!("macvtaps {names}; cannot be read: {error}"), ""),
    }
}
