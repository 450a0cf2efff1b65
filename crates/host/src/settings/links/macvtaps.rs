//! Macvtaps and the cards below them, as sysfs has them.

use crate::settings::Machine;

/// The macvtap that a character device `tapN` is of; none of another network namespace's.
pub(crate) fn macvtap_of(machine: &Machine, device: &str) -> Option<String> {
    let path = machine
        .tree
        .real_path(&format!("/sys/class/macvtap/{device}"));
    let path = path.ok()?;
    let mut parts = path.split('/').skip_while(|part| *part != "net");
    parts.nth(1).map(str::to_owned)
}

/// The card below a macvtap; none if that is in another network namespace.
pub(crate) fn card_below(machine: &Machine, macvtap: &str) -> Option<String> {
    let entries = machine.tree.list(&format!("/sys/class/net/{macvtap}"));
    let entries = entries.unwrap_or_default();
    let mut lower = entries.iter().filter_map(|it| it.strip_prefix("lower_"));
    lower.next().map(str::to_owned)
}

/// The devices above a card: macvlans, VLANs, bridges.
pub(crate) fn above(machine: &Machine, card: &str) -> Vec<String> {
    let entries = machine.tree.list(&format!("/sys/class/net/{card}"));
    let entries = entries.unwrap_or_default();
    let upper = entries.iter().filter_map(|it| it.strip_prefix("upper_"));
    upper.map(str::to_owned).collect()
}

/// The macvtaps above a card.
pub(crate) fn macvtaps_above(machine: &Machine, card: &str) -> Vec<String> {
    let is_macvtap = |name: &String| {
        let devices = machine.tree.list(&format!("/sys/class/net/{name}/macvtap"));
        devices.is_ok_and(|devices| !devices.is_empty())
    };
    above(machine, card)
        .into_iter()
        .filter(is_macvtap)
        .collect()
}
