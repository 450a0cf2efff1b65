//! The files that a process has open, as far as they say what it is: a KVM VM, its VCPUs, its
//! vhost and VFIO devices. `/proc/PID/fd` is the kernel's word; a process cannot forge it, but for paths: any file may be
//! called `vfio/12`. So what would give a process the interrupts of a device is compared by its device number.

use std::collections::BTreeSet;
use std::io;

use super::claims;
use crate::settings::Machine;

/// What `steadyvm sockets serve` calls the memory that it makes (crates/vmm, `shared::memory`).
const SOCKET_MEMORY: &str = "/memfd:steadyvm-sockets";

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
    /// The macvtaps that it has open, by their character devices (`/dev/tap12`).
    pub macvtaps: BTreeSet<String>,
    /// Memory of outsourced sockets that it shares with a guest or its server (`/memfd:steadyvm-sockets`), by inode.
    pub socket_memories: BTreeSet<u64>,
    /// What it calls its VM, if it is `steadyvm up` (`/memfd:steadyvm-up:NAME`).
    pub vm_name: Option<String>,
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
            let path = format!("{directory}/{name}");
            if let Ok(target) = machine.tree.link(&path) {
                if target.starts_with(SOCKET_MEMORY) {
                    found.socket_memories.extend(inode(machine, pid, &name));
                    continue;
                }
                let is_device = |numbers: &str| is_device(machine, &path, numbers);
                found.add(&name, &target, is_device);
            }
        }
        Ok(found)
    }

    /// `is_device` tells whether the descriptor is the character device that a file of sysfs has the number of.
    fn add(&mut self, name: &str, target: &str, is_device: impl Fn(&str) -> bool) {
        if let Some(kind) = target.strip_prefix("anon_inode:") {
            if kind == "kvm-vm" {
                self.kvm_vms.extend(name.parse::<u32>());
            } else if let Some(number) = kind.strip_prefix("kvm-vcpu:") {
                self.vcpus.extend(number.parse::<u32>());
            }
            return;
        }
        if let Some(name) = claims::name_of_file(target) {
            self.vm_name = Some(name.to_owned());
            return;
        }
        // A monitor may have a /dev of its own (libvirt's), whose root the path then begins at.
        let mut parts = target.rsplit('/');
        let (last, above, higher) = (parts.next(), parts.next(), parts.next());
        match (last, above, higher) {
            (Some("vhost-net"), ..) => self.vhost_nets += 1,
            (Some(device), Some(_), _) if device.starts_with("vhost-") => self.other_vhosts += 1,
            (Some(device), Some("devices"), Some("vfio"))
                if is_device(&format!("/sys/class/vfio-dev/{device}/dev")) =>
            {
                self.vfio_devices.insert(device.to_owned());
            }
            (Some(device), ..)
                if is_numbered_tap(device)
                    && is_device(&format!("/sys/class/macvtap/{device}/dev")) =>
            {
                self.macvtaps.insert(device.to_owned());
            }
            (Some(group), Some("vfio"), _) => {
                let group = group.parse::<u32>().ok();
                let is_one = |group: &u32| is_device(&format!("/sys/class/vfio/{group}/dev"));
                self.vfio_groups.extend(group.filter(is_one));
            }
            _ => {}
        }
    }
}

/// The inode of an open file, as its process's `fdinfo` has it since Linux 5.14 (`seq_show()` of fs/proc/fd.c).
fn inode(machine: &Machine, pid: u32, descriptor: &str) -> Option<u64> {
    let text = machine
        .tree
        .read(&format!("/proc/{pid}/fdinfo/{descriptor}"));
    let text = text.ok()?;
    let number = text.lines().find_map(|line| line.strip_prefix("ino:"))?;
    number.trim().parse().ok()
}

/// Whether it is named as the kernel names the character devices of macvtaps.
fn is_numbered_tap(device: &str) -> bool {
    let number = device.strip_prefix("tap");
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Whether an open file is the character device with the numbers that a file of sysfs has.
fn is_device(machine: &Machine, open: &str, numbers: &str) -> bool {
    let of_file = machine.tree.character_device(open).ok().flatten();
    let of_sysfs = machine.tree.read(numbers).ok();
    of_file.is_some() && of_file == of_sysfs.map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::fake::FakeHost;

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
            ("17", "/memfd:steadyvm-up:production-a (deleted)"),
            ("18", "/dev/tap12"),
            ("19", "/dev/tap"),
            ("20", "/dev/net/tun"),
        ] {
            found.add(name, target, |_| true);
        }
        let expected = Descriptors {
            kvm_vms: [4].into(),
            vcpus: [0, 11].into(),
            vhost_nets: 2,
            other_vhosts: 1,
            vfio_groups: [12, 13].into(),
            vfio_devices: ["vfio0".to_owned()].into(),
            macvtaps: ["tap12".to_owned()].into(),
            socket_memories: BTreeSet::new(),
            vm_name: Some("production-a".into()),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_file_that_is_called_as_a_device_is_none() {
        let host = FakeHost::default();
        host.file("/sys/class/vfio/12/dev", "242:0\n");
        host.file("/sys/class/vfio-dev/vfio0/dev", "243:0\n");
        let of = |targets: &[(&str, Option<&str>)]| {
            for (descriptor, (target, device)) in targets.iter().enumerate() {
                host.open(100, descriptor as u32, target, *device);
            }
            Descriptors::of(&host.machine(), 100).unwrap()
        };
        let found = of(&[("/srv/vfio/12", None), ("/srv/vfio/devices/vfio0", None)]);
        assert_eq!(found, Descriptors::default());
        let found = of(&[("/vfio/12", Some("1:3")), ("/srv/vfio/13", Some("242:0"))]);
        assert_eq!(found, Descriptors::default());
        let found = of(&[
            ("/vfio/12", Some("242:0")),
            ("/dev/vfio/devices/vfio0", Some("243:0")),
        ]);
        assert_eq!(found.vfio_groups, [12].into());
        assert_eq!(found.vfio_devices, ["vfio0".to_owned()].into());
        host.file("/sys/class/macvtap/tap7/dev", "246:1\n");
        let found = of(&[("/srv/tap7", Some("246:2")), ("/dev/tap7", Some("246:1"))]);
        assert_eq!(found.macvtaps, ["tap7".to_owned()].into());
    }
}
