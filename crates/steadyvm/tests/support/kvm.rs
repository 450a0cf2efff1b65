//! A VM of KVM that no guest runs in: what makes a process a VM to steadyvm.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `_IO(KVMIO, ...)` of `include/uapi/linux/kvm.h`.
const KVM_CREATE_VM: libc::Ioctl = 0xae01;
const KVM_CREATE_VCPU: libc::Ioctl = 0xae41;

/// It is there until this is dropped.
pub struct Vm {
    _vcpu: OwnedFd,
    _vm: OwnedFd,
}

impl Vm {
    /// A VM of one VCPU, of this process.
    pub fn create() -> Self {
        let kvm = File::options()
            .read(true)
            .write(true)
            .open("/dev/kvm")
            .unwrap();
        let vm = create(&kvm, KVM_CREATE_VM);
        Self {
            _vcpu: create(&vm, KVM_CREATE_VCPU),
            _vm: vm,
        }
    }
}

fn create(of: &impl AsRawFd, request: libc::Ioctl) -> OwnedFd {
    // SAFETY: the request takes a number and gives a new descriptor, which is nobody else's.
    unsafe {
        let descriptor = libc::ioctl(of.as_raw_fd(), request, 0 as libc::c_ulong);
        assert!(descriptor >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(descriptor)
    }
}
