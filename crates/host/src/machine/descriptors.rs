//! The files that a process has open, as far as they say what it is: a KVM VM, its VCPUs, its
//! vhost and VFIO devices. `/proc/PID/fd` is the kernel's word; a process cannot forge it.

use std::collections::BTreeSet;
use std::io;

use crate::machine::Machine;

/// What a process has open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// Its KVM VMs, by descriptor (`anon_inode:kvm-vm`, `kvm_dev_ioctl_create_vm()`).
    pub kvm_vms: BTreeSet<u32>,
    /// The numbers of its VCPUs (`anon_inode:kvm-vcpu:1`, `create_vcpu_fd()`).
    pub vcpus: BTreeSet<u32>,
    /// How many vhost-net devices it has: one for each pair of queues.
    pub vhost_nets: usize,
    /// How many other vhost devices it has: vsock, scsi, vdpa.
    pub other_vhosts: usize,
    /// The IOMMU groups that it has passed through (`/dev/vfio/12`).
    pub vfio_groups: BTreeSet<u32>,
    /// The devices that it has passed through by themselves (`/dev/vfio/devices/vfio0`).
    pub vfio_devices: BTreeSet<String>,
}

impl Descriptors {
    /// Reads those of a process.
    ///
    /// # Errors
    /// `ENOENT` if it has ended, `EACCES` if this user may not look (`PTRACE_MODE_READ`).
    pub fn of(machine: &Machine, pid: u32) -> io::Result<Self> {
        let directory = format!("/proc/{pid}/fd");
        let mut found = Self::default();
        for name in machine.tree.list(&directory)? {
            // A descriptor may be closed meanwhile.
            if let Ok(target) = machine.tree.link(&format!("{directory}/{name}")) {
                found.add(&name, &target);
            }
        }
        Ok(found)
    }

    fn add(&mut self, name: &str, target: &str) {
        if let Some(kind) = target.strip_prefix("anon_inode:") {
            if kind == "kvm-vm" {
                self.kvm_vms.extend(name.parse::<u32>());
            } else if let Some(number) = kind.strip_prefix("kvm-vcpu:") {
                self.vcpus.extend(number.parse::<u32>());
            }
            return;
        }
        // A monitor may have a /dev of its own (libvirt's), whose root the path then begins at.
        let mut parts = target.rsplit('/');
        let (last, above, higher) = (parts.next(), parts.next(), parts.next());
        match (last, above, higher) {
            (Some("vhost-net"), ..) => self.vhost_nets += 1,
            (Some(device), Some(_), _) if device.starts_with("vhost-") => self.other_vhosts += 1,
            (Some(device), Some("devices"), Some("vfio")) => {
                self.vfio_devices.insert(device.to_owned());
            }
            (Some(group), Some("vfio"), _) => self.vfio_groups.extend(group.parse::<u32>()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_say_what_a_process_is() {
        let mut found = Descriptors::default();
        for (name, target) in [
            ("3", "/dev/kvm"),
            ("4", "anon_inode:kvm-vm"),
            ("5", "anon_inode:kvm-vcpu:0"),
            ("6", "anon_inode:kvm-vcpu:11"),
            ("7", "anon_inode:[eventfd]"),
            ("8", "/dev/vhost-net"),
            ("9", "/vhost-net"),
            ("10", "/dev/vhost-vsock"),
            ("11", "/dev/vfio/12"),
            ("12", "/vfio/13"),
            ("13", "/dev/vfio/devices/vfio0"),
            ("14", "/dev/vfio/vfio"),
            ("15", "socket:[4711]"),
            ("16", "/srv/anon_inode:kvm-vm"),
        ] {
            found.add(name, target);
        }
        let expected = Descriptors {
            kvm_vms: [4].into(),
            vcpus: [0, 11].into(),
            vhost_nets: 2,
            other_vhosts: 1,
            vfio_groups: [12, 13].into(),
            vfio_devices: ["vfio0".to_owned()].into(),
        };
        assert_eq!(found, expected);
    }
}
