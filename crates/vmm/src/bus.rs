//! What the guest reaches by I/O ports and device memory, for all VCPUs.

use std::sync::Arc;
use virtio_bindings::virtio_mmio::VIRTIO_MMIO_QUEUE_NOTIFY;

use crate::acpi;
use crate::devices::MmioDevice;
use crate::devices::serial::Console;
use crate::layout;

/// What an access asks for besides data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Nothing.
    Nothing,
    /// Power off.
    PowerOff,
    /// Reset.
    Reset,
    /// To be remembered as a panic of its kernel.
    Panicked,
}

/// The event of pvpanic that is known here (`PVPANIC_PANICKED`). A kernel that goes on to its crash
/// kernel tells another.
const PANICKED: u8 = 1;

/// The guest's devices by their addresses.
pub struct Bus {
    /// The serial port.
    pub console: Console,
    /// The virtio devices, in the order of their addresses.
    pub devices: Vec<Arc<MmioDevice>>,
}

impl Bus {
    /// Reads a port. Where nothing is, all bits are set, as on an empty bus.
    pub fn read_port(&self, port: u16, data: &mut [u8]) {
        data.fill(0xff);
        match (serial_offset(port), data) {
            (Some(offset), [byte]) => *byte = self.console.read(offset),
            // ACPI's sleep status: awake.
            (None, [byte]) if port == layout::POWER_PORT => *byte = 0,
            (None, [byte]) if port == layout::PANIC_PORT => *byte = PANICKED,
            _ => {}
        }
    }

    /// Writes a port. Serves what is rung by that, in the calling thread.
    pub fn write_port(&self, port: u16, data: &[u8]) -> Asked {
        match (serial_offset(port), data) {
            (Some(offset), [byte]) => self.console.write(offset, *byte),
            (None, [acpi::POWER_OFF]) if port == layout::POWER_PORT => return Asked::PowerOff,
            (None, [acpi::RESET]) if port == layout::POWER_PORT => return Asked::Reset,
            (None, [events]) if port == layout::PANIC_PORT && events & PANICKED != 0 => {
                return Asked::Panicked;
            }
            (None, &[a, b, c, d]) => {
                let index = layout::notified_device(port);
                if let Some(device) = index.and_then(|index| self.devices.get(index)) {
                    device.ring(u32::from_le_bytes([a, b, c, d]));
                }
            }
            _ => {}
        }
        Asked::Nothing
    }

    /// Reads device memory.
    pub fn read_memory(&self, address: u64, data: &mut [u8]) {
        match self.device(address) {
            Some((device, offset)) => device.read(offset, data),
            None => data.fill(0xff),
        }
    }

    /// Writes device memory. Serves what is rung by that, in the calling thread.
    pub fn write_memory(&self, address: u64, data: &[u8]) {
        if let Some((device, offset)) = self.device(address) {
            device.write(offset, data);
        }
    }

    /// Whether a write to a port rings a queue, if a device is there.
    pub const fn is_notification_port(port: u16) -> bool {
        layout::notified_device(port).is_some()
    }

    /// The same of device memory.
    pub const fn is_notification(address: u64) -> bool {
        address % layout::DEVICE_SIZE == VIRTIO_MMIO_QUEUE_NOTIFY as u64
    }

    fn device(&self, address: u64) -> Option<(&MmioDevice, u32)> {
        let within = address.checked_sub(layout::DEVICES)?;
        let device = self.devices.get((within / layout::DEVICE_SIZE) as usize)?;
        Some((device, (within % layout::DEVICE_SIZE) as u32))
    }
}

fn serial_offset(port: u16) -> Option<u8> {
    let offset = port.checked_sub(layout::SERIAL_PORT)?;
    (offset < 8).then_some(offset as u8)
}
