//! Devices in sysfs.

use crate::settings::Machine;

/// The interrupts of a device, by its real path: its MSI vectors, or its line if it has none.
pub(crate) fn irqs(machine: &Machine, device: &str) -> Vec<u32> {
    let vectors: Vec<u32> = machine
        .tree
        .list(&format!("{device}/msi_irqs"))
        .unwrap_or_default()
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect();
    if !vectors.is_empty() {
        return vectors;
    }
    let line = machine.tree.read(&format!("{device}/irq")).ok();
    line.and_then(|text| text.trim().parse().ok())
        .filter(|&irq| irq > 0)
        .into_iter()
        .collect()
}
