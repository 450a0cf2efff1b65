//! What KVM says in debugfs of who made a VM, and of the threads that run its VCPUs.

use std::collections::BTreeMap;

use super::descriptors::Descriptors;
use crate::settings::{Machine, Thread, ThreadId};

/// Where KVM says what it knows of each VM.
const KVM: &str = "/sys/kernel/debug/kvm";

/// The VMs of `/sys/kernel/debug/kvm/THREAD-FD` by the thread that made them, each with its descriptor and its directory's
/// name (`kvm_create_vm_debugfs()`).
pub(super) struct MakersOfVms(BTreeMap<u32, Vec<(u32, String)>>);

impl MakersOfVms {
    pub fn read(machine: &Machine) -> Self {
        let mut makers: BTreeMap<u32, Vec<(u32, String)>> = BTreeMap::new();
        for name in machine.tree.list(KVM).unwrap_or_default() {
            let Some((maker, descriptor)) = name.split_once('-') else {
                continue;
            };
            if let (Ok(maker), Ok(descriptor)) = (maker.parse(), descriptor.parse()) {
                makers.entry(maker).or_default().push((descriptor, name));
            }
        }
        Self(makers)
    }
}

/// The VCPU threads as KVM names them: `vcpu0/pid` of a VM's directory holds the thread that ran the VCPU last.
pub(super) fn vcpus_of_debugfs(
    machine: &Machine,
    makers: &MakersOfVms,
    own: &[Thread],
    files: &Descriptors,
) -> BTreeMap<u32, ThreadId> {
    let by_tid: BTreeMap<u32, &ThreadId> = own.iter().map(|one| (one.id.tid, &one.id)).collect();
    let made = by_tid.keys().filter_map(|tid| makers.0.get(tid)).flatten();
    let own_vms = made.filter(|(descriptor, _)| files.kvm_vms.contains(descriptor));
    let mut found = BTreeMap::new();
    for (_, vm) in own_vms {
        let directory = format!("{KVM}/{vm}");
        for entry in machine.tree.list(&directory).unwrap_or_default() {
            let number = entry.strip_prefix("vcpu").map(str::parse::<u32>);
            let Some(Ok(number)) = number else { continue };
            let text = machine.tree.read(&format!("{directory}/{entry}/pid"));
            let tid = text.ok().and_then(|text| text.trim().parse::<u32>().ok());
            if let Some(thread) = tid.and_then(|tid| by_tid.get(&tid)) {
                found.insert(number, (*thread).clone());
            }
        }
    }
    found
}
