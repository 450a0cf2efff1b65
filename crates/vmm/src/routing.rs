//! VCPUs that sleep in the idle call of outsourced sockets, and which of them an interrupt is for.
//!
//! An interrupt that comes by the kernel alone does not end that sleep: whoever raises one wakes them. Only
//! the VCPU that the guest has sent the line to is woken: a disk that is nobody's concern would take a
//! real-time VCPU out of its sleep.

use kvm_bindings::{KVM_IRQCHIP_IOAPIC, kvm_irqchip};
use kvm_ioctls::VmFd;
use std::sync::Arc;
use steadyvm_sockets::Device;

/// Bits of an entry of the I/O APIC's table (82093AA, section 3.2.4): who gets it is not, or not alone,
/// what its destination says.
const DELIVERY: u64 = 7 << 8;
const LOGICAL: u64 = 1 << 11;
const MASKED: u64 = 1 << 16;
const DESTINATION: u32 = 56;

/// A set of VCPUs, a bit each.
type Vcpus = u64;

/// The VCPUs that an entry of the I/O APIC sends its interrupt to; all, where that is not one that it names.
fn receivers(entry: u64, vcpus: u16) -> Vcpus {
    let destination = entry >> DESTINATION;
    if entry & (DELIVERY | LOGICAL | MASKED) == 0 && destination < u64::from(vcpus) {
        // The local APIC's number is its VCPU's.
        1 << destination
    } else {
        all(vcpus)
    }
}

const fn all(vcpus: u16) -> Vcpus {
    (1 << vcpus) - 1
}

/// VCPUs that may sleep.
#[derive(Clone)]
pub struct Sleepers {
    /// Where they sleep, if they do.
    device: Option<Arc<Device>>,
    vcpus: u16,
    vm: Arc<VmFd>,
}

impl Sleepers {
    /// The VCPUs 0 to `vcpus` - 1 of a VM. They sleep in `device` alone.
    pub const fn new(device: Option<Arc<Device>>, vcpus: u16, vm: Arc<VmFd>) -> Self {
        Self { device, vcpus, vm }
    }

    /// Wakes all.
    pub fn wake(&self) {
        self.wake_some(all(self.vcpus));
    }

    /// Does `work`, which may raise the interrupt of `line` and says whether it has; then wakes who gets it.
    ///
    /// Who gets it is looked at before and after: a guest may move a line to another VCPU meanwhile.
    pub fn wake_for<T>(&self, line: u32, work: impl FnOnce() -> (T, bool)) -> T {
        let before = self.of(line);
        let (done, raised) = work();
        if raised {
            self.wake_some(before | self.of(line));
        }
        done
    }

    fn wake_some(&self, vcpus: Vcpus) {
        if let Some(device) = &self.device {
            (0..self.vcpus)
                .filter(|vcpu| vcpus & (1 << *vcpu) != 0)
                .for_each(|vcpu| device.wake(vcpu));
        }
    }

    fn of(&self, line: u32) -> Vcpus {
        if self.device.is_none() {
            return 0;
        }
        let mut chip = kvm_irqchip {
            chip_id: KVM_IRQCHIP_IOAPIC,
            ..Default::default()
        };
        if self.vm.get_irqchip(&mut chip).is_err() {
            return all(self.vcpus);
        }
        // SAFETY: the I/O APIC was asked for; all members of the union are plain integers.
        let entry = unsafe {
            chip.chip
                .ioapic
                .redirtbl
                .get(line as usize)
                .map(|entry| entry.bits)
        };
        entry.map_or(all(self.vcpus), |entry| receivers(entry, self.vcpus))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvm_ioctls::Kvm;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use proptest::prelude::*;
    use steadyvm_sockets::{Channel, Limits};

    proptest! {
        #[test]
        fn one_vcpu_gets_what_names_it_and_nobody_is_left_out_else(entry in any::<u64>(), vcpus in 1_u16..=4) {
            let woken = receivers(entry, vcpus);
            prop_assert!(woken != 0 && woken <= all(vcpus));
            let plain = entry & !(DELIVERY | LOGICAL | MASKED);
            for vcpu in 0..u64::from(vcpus) {
                let to_it = plain & u64::MAX >> 8 | vcpu << DESTINATION;
                prop_assert_eq!(receivers(to_it, vcpus), 1 << vcpu);
                for bit in [1 << 8, 1 << 9, 1 << 10, LOGICAL, MASKED] {
                    prop_assert_eq!(receivers(to_it | bit, vcpus), all(vcpus));
                }
            }
            let nobody = plain | 0xff << DESTINATION;
            prop_assert_eq!(receivers(nobody, vcpus), all(vcpus), "all get it");
        }
    }

    /// Sends a line to a VCPU.
    fn route(vm: &VmFd, line: usize, vcpu: u64) {
        let mut chip = kvm_irqchip {
            chip_id: KVM_IRQCHIP_IOAPIC,
            ..Default::default()
        };
        vm.get_irqchip(&mut chip).unwrap();
        // SAFETY: the I/O APIC was asked for; all members of the union are plain integers.
        let table = unsafe { &mut chip.chip.ioapic.redirtbl };
        table[line].bits = vcpu << DESTINATION | 0x31;
        vm.set_irqchip(&chip).unwrap();
    }

    #[test]
    fn the_vcpu_that_gets_an_interrupt_is_woken_and_no_other() {
        let Ok(kvm) = Kvm::new() else {
            eprintln!("not tested: this machine has no /dev/kvm");
            return;
        };
        let vm = Arc::new(kvm.create_vm().unwrap());
        vm.create_irq_chip().unwrap();
        let device = Device::new(Limits::default(), 3).unwrap();
        let channels = [0, 1, 2].map(|index| Channel::new(&device, index).unwrap());
        let sleepers = Sleepers::new(Some(Arc::clone(&device)), 3, Arc::clone(&vm));
        let woken = || {
            channels.each_ref().map(|channel| {
                let mut events = [PollFd::new(channel.events(), PollFlags::POLLIN)];
                poll(&mut events, PollTimeout::ZERO).unwrap() == 1
            })
        };
        assert_eq!(woken(), [false; 3]);
        route(&vm, 5, 1);
        assert_eq!(sleepers.wake_for(5, || ("nothing", false)), "nothing");
        assert_eq!(woken(), [false; 3], "no interrupt was raised");
        sleepers.wake_for(5, || ((), true));
        assert_eq!(woken(), [false, true, false]);
        // Moved while it is raised: either may have it.
        sleepers.wake_for(5, || (route(&vm, 5, 2), true));
        assert_eq!(woken(), [false, true, true]);
        sleepers.wake();
        assert_eq!(woken(), [true; 3]);
    }
}
