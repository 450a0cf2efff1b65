//! The interrupts of devices that a VM has by passthrough. On PREEMPT_RT they are threads
//! (`irq/29-vfio-msix[0](0000:01:10.0)`) that pass each interrupt on to the VM.

use std::collections::BTreeMap;

use super::descriptors::Descriptors;
use super::device;
use crate::parse;
use crate::settings::Machine;

/// The interrupts of a VM's devices, with their actions.
pub(super) fn irqs(machine: &Machine, files: &Descriptors) -> BTreeMap<u32, String> {
    let mut devices = Vec::new();
    for group in &files.vfio_groups {
        let members = format!("/sys/kernel/iommu_groups/{group}/devices");
        let names = machine.tree.list(&members).unwrap_or_default();
        devices.extend(names.iter().map(|name| format!("{members}/{name}")));
    }
    for name in &files.vfio_devices {
        devices.push(format!("/sys/class/vfio-dev/{name}/device"));
    }
    let numbers: Vec<u32> = devices
        .iter()
        .filter_map(|device| machine.tree.real_path(device).ok())
        .flat_map(|device| device::irqs(machine, &device))
        .collect();
    if numbers.is_empty() {
        return BTreeMap::new();
    }
    let text = machine.tree.read("/proc/interrupts").unwrap_or_default();
    parse::interrupts(&text)
        .into_iter()
        .filter(|interrupt| numbers.contains(&interrupt.irq))
        // A bridge of the same group has a driver of its own.
        .map(|interrupt| (interrupt.irq, interrupt.actions.join(", ")))
        .filter(|(_, actions)| actions.contains("vfio"))
        .collect()
}
