//! Where everything lies in the guest's physical address space.
//!
//! Low memory holds what the kernel reads at its entry; the device window ends at 4 GiB, and
//! memory that does not fit below it continues above.

use steadyvm_sockets::Memory;
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryRegion};

use steadyvm_fault::{At, Result};

/// The kernel's boot parameters ("zero page").
pub const BOOT_PARAMETERS: u64 = 0x7000;
/// Page tables of the boot VCPU: one PML4, one PDPT, four page directories.
pub const PAGE_TABLES: u64 = 0x9000;
/// Its segment descriptors.
pub const SEGMENTS: u64 = 0x500;
/// The kernel's command line.
pub const COMMAND_LINE: u64 = 0x2_0000;
/// The most bytes of it, with the NUL: what Linux reads on x86-64.
pub const COMMAND_LINE_SIZE: usize = 2048;
/// Usable memory ends here below 1 MiB, as on a PC.
pub const LOW_MEMORY_END: u64 = 0x9_fc00;
/// The ACPI tables, the RSDP first.
pub const ACPI_TABLES: u64 = 0xe_0000;
/// Where a BIOS is entered, in real mode, by who wants it to reset the machine: the tables must end
/// before.
pub const RESET_VECTOR: u64 = 0xf_fff0;
/// The BIOS's memory ends here.
pub const FIRMWARE_END: u64 = 0x10_0000;
/// Where kernels are loaded.
pub const KERNEL: u64 = 0x10_0000;

/// Memory below 4 GiB ends here.
pub const DEVICES: u64 = 0xd000_0000;
/// Registers of one virtio device.
pub const DEVICE_SIZE: u64 = 0x1000;
/// Most virtio devices, for each has a line of the I/O APIC's 24.
pub const MAX_DEVICES: usize = 16;
const MEMORY_ABOVE: u64 = 1 << 32;

/// KVM's own pages for Intel processors, between the devices and the BIOS's end.
pub const IDENTITY_MAP: u64 = 0xfffb_c000;
/// The same: three pages of a task state segment.
pub const TASK_STATE: u64 = 0xfffb_d000;
/// The I/O APIC, which KVM emulates.
pub const IO_APIC: u32 = 0xfec0_0000;
/// The local APICs, which KVM emulates.
pub const LOCAL_APIC: u32 = 0xfee0_0000;

/// The serial port's I/O ports.
pub const SERIAL_PORT: u16 = 0x3f8;
/// Its interrupt line.
pub const SERIAL_LINE: u32 = 4;
/// Where a guest's kernel says that it panicked (QEMU's pvpanic, docs/specs/pvpanic.rst).
pub const PANIC_PORT: u16 = 0x505;
/// ACPI's sleep control, sleep status and reset registers, one port.
pub const POWER_PORT: u16 = 0x600;
/// Ports that ring queues, one a device: see [`notification_port`].
pub const NOTIFICATION_PORTS: u16 = 0x700;
/// Apart by the size of what is written there.
const NOTIFICATION_PORT_SIZE: u16 = 4;

/// The registers of device `index`.
pub const fn device_address(index: usize) -> u64 {
    DEVICES + index as u64 * DEVICE_SIZE
}

/// The port that rings device `index`: a queue's number written there does what its notification
/// register does, but KVM need not decode and emulate the guest's instruction for it.
pub const fn notification_port(index: usize) -> u16 {
    NOTIFICATION_PORTS + index as u16 * NOTIFICATION_PORT_SIZE
}

/// The device that is rung by a port, if that is such a port.
pub const fn notified_device(port: u16) -> Option<usize> {
    let Some(offset) = port.checked_sub(NOTIFICATION_PORTS) else {
        return None;
    };
    let index = (offset / NOTIFICATION_PORT_SIZE) as usize;
    if offset % NOTIFICATION_PORT_SIZE == 0 && index < MAX_DEVICES {
        Some(index)
    } else {
        None
    }
}

/// The interrupt line of device `index`.
pub const fn device_line(index: usize) -> u32 {
    5 + index as u32
}

/// Address ranges of a guest's memory.
pub fn memory_ranges(bytes: u64) -> Vec<(GuestAddress, usize)> {
    let below = bytes.min(DEVICES);
    let mut ranges = vec![(GuestAddress(0), below as usize)];
    if bytes > below {
        ranges.push((GuestAddress(MEMORY_ABOVE), (bytes - below) as usize));
    }
    ranges
}

/// Memory for a guest: mapped, not yet touched.
pub fn allocate(bytes: u64) -> Result<Memory> {
    Memory::from_ranges(&memory_ranges(bytes)).cannot_or(
        format!("map {} MiB of guest memory", bytes >> 20),
        "lower memory_mib",
    )
}

/// Where an initramfs goes: as high as memory below 4 GiB allows, at a page's beginning.
/// `None` where it does not fit above `kernel_end`. `last` is the last byte that the kernel takes one in
/// (`initrd_addr_max` of its header; 0 where it does not say).
pub fn initramfs_address(memory: &Memory, size: u64, kernel_end: u64, last: u32) -> Option<u64> {
    let most = if last == 0 {
        u64::MAX
    } else {
        u64::from(last) + 1
    };
    let below = memory.iter().next()?.len().min(most);
    let address = below.checked_sub(size)? & !0xfff;
    (address >= kernel_end).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn memory_is_all_there_and_never_among_the_devices(mib in 1_u64..1 << 20) {
            let ranges = memory_ranges(mib << 20);
            let total: u64 = ranges.iter().map(|(_, size)| *size as u64).sum();
            prop_assert_eq!(total, mib << 20);
            for (start, size) in ranges {
                let end = start.0 + size as u64;
                prop_assert!(end <= DEVICES || start.0 >= MEMORY_ABOVE);
            }
        }

        #[test]
        fn an_initramfs_lies_where_the_kernel_takes_it(
            size in 0_u64..1 << 24, last in prop_oneof![Just(0), 0_u32..32 << 20, Just(u32::MAX)],
        ) {
            let memory = allocate(16 << 20).unwrap();
            let end = if last == 0 { 16 << 20 } else { (u64::from(last) + 1).min(16 << 20) };
            match initramfs_address(&memory, size, 2 << 20, last) {
                Some(address) => {
                    prop_assert!(address >= 2 << 20 && address + size <= end);
                    prop_assert_eq!(address % 0x1000, 0);
                }
                None => prop_assert!(size + (2 << 20) + 0x1000 > end),
            }
        }
    }

    #[test]
    fn notification_ports_belong_to_one_device_and_to_nothing_else() {
        let rung: Vec<_> = (0..=u16::MAX).filter_map(notified_device).collect();
        assert_eq!(rung, (0..MAX_DEVICES).collect::<Vec<_>>());
        for index in 0..MAX_DEVICES {
            assert_eq!(notified_device(notification_port(index)), Some(index));
        }
        for port in [SERIAL_PORT, POWER_PORT] {
            assert_eq!(notified_device(port), None);
        }
    }

    #[test]
    fn devices_lie_below_the_interrupt_controllers_and_have_lines() {
        assert!(device_address(MAX_DEVICES) <= u64::from(IO_APIC));
        assert!(device_line(MAX_DEVICES - 1) < 24);
    }
}
