//! VMs of the fake host.

use crate::settings::fake::FakeHost;

impl FakeHost {
    /// Gives a process what the kernel knows of a VM with a card: descriptors of KVM and vhost-net.
    pub fn kvm_vm(&self, pid: u32, vcpus: u32) {
        self.open(pid, 10, "anon_inode:kvm-vm", None);
        self.open(pid, 11, "/dev/vhost-net", None);
        for vcpu in 0..vcpus {
            self.open(pid, 20 + vcpu, &format!("anon_inode:kvm-vcpu:{vcpu}"), None);
        }
    }

    /// Opens a file in a process, which may be a character device with these numbers.
    pub fn open(&self, pid: u32, descriptor: u32, target: &str, device: Option<&str>) {
        self.edit(|state| {
            let path = format!("/proc/{pid}/fd/{descriptor}");
            state.links.insert(path.clone(), target.into());
            match device {
                Some(numbers) => state.devices.insert(path, numbers.into()),
                None => state.devices.remove(&path),
            };
        });
    }

    /// Makes a process a user's; others are root's.
    pub fn user(&self, pid: u32, user: u32) {
        self.edit(|state| state.users.insert(pid, user));
    }
}
