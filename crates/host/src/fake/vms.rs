//! VMs of the fake host.

use super::FakeHost;

impl FakeHost {
    /// Gives a process what the kernel knows of a VM with a card: descriptors of KVM and vhost-net.
    pub fn kvm_vm(&self, pid: u32, vcpus: u32) {
        self.edit(|state| {
            let mut open = |descriptor: u32, target: String| {
                let path = format!("/proc/{pid}/fd/{descriptor}");
                state.links.insert(path, target);
            };
            open(10, "anon_inode:kvm-vm".into());
            open(11, "/dev/vhost-net".into());
            for vcpu in 0..vcpus {
                open(20 + vcpu, format!("anon_inode:kvm-vcpu:{vcpu}"));
            }
        });
    }
}
