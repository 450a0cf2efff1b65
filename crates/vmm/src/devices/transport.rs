//! The registers of a virtio-mmio device, version 2 (virtio 1.2, section 4.2.2), as a state machine
//! without input or output. The guest is hostile: any value may be written to any register at any
//! time. What breaks the protocol is ignored, or ends in `DEVICE_NEEDS_RESET`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use virtio_bindings::virtio_config::{
    VIRTIO_CONFIG_S_ACKNOWLEDGE, VIRTIO_CONFIG_S_DRIVER, VIRTIO_CONFIG_S_DRIVER_OK,
    VIRTIO_CONFIG_S_FAILED, VIRTIO_CONFIG_S_FEATURES_OK, VIRTIO_CONFIG_S_NEEDS_RESET,
    VIRTIO_F_VERSION_1,
};
use virtio_bindings::virtio_mmio::{
    VIRTIO_MMIO_DEVICE_FEATURES, VIRTIO_MMIO_DEVICE_FEATURES_SEL, VIRTIO_MMIO_DEVICE_ID,
    VIRTIO_MMIO_DRIVER_FEATURES, VIRTIO_MMIO_DRIVER_FEATURES_SEL, VIRTIO_MMIO_INT_CONFIG,
    VIRTIO_MMIO_INT_VRING, VIRTIO_MMIO_INTERRUPT_ACK, VIRTIO_MMIO_INTERRUPT_STATUS,
    VIRTIO_MMIO_MAGIC_VALUE, VIRTIO_MMIO_QUEUE_AVAIL_HIGH, VIRTIO_MMIO_QUEUE_AVAIL_LOW,
    VIRTIO_MMIO_QUEUE_DESC_HIGH, VIRTIO_MMIO_QUEUE_DESC_LOW, VIRTIO_MMIO_QUEUE_NUM,
    VIRTIO_MMIO_QUEUE_NUM_MAX, VIRTIO_MMIO_QUEUE_READY, VIRTIO_MMIO_QUEUE_SEL,
    VIRTIO_MMIO_QUEUE_USED_HIGH, VIRTIO_MMIO_QUEUE_USED_LOW, VIRTIO_MMIO_SHM_LEN_HIGH,
    VIRTIO_MMIO_SHM_LEN_LOW, VIRTIO_MMIO_STATUS, VIRTIO_MMIO_VENDOR_ID, VIRTIO_MMIO_VERSION,
};
use virtio_queue::{Queue, QueueT};

/// "virt".
const MAGIC: u32 = 0x7472_6976;
/// "STDY": no vendor has a number for virtio-mmio.
const VENDOR: u32 = 0x5944_5453;

/// What those who serve the queues tell the registers.
#[derive(Debug, Default)]
pub struct InterruptStatus {
    /// The interrupt status register.
    bits: AtomicU32,
    /// The device needs a reset.
    broken: AtomicBool,
}

impl InterruptStatus {
    /// A buffer of a queue has been used.
    pub fn used_buffer(&self) {
        self.bits.fetch_or(VIRTIO_MMIO_INT_VRING, Ordering::SeqCst);
    }

    /// The driver or the device has broken something: `DEVICE_NEEDS_RESET` until the next reset.
    pub fn broken(&self) {
        self.broken.store(true, Ordering::SeqCst);
        self.bits.fetch_or(VIRTIO_MMIO_INT_CONFIG, Ordering::SeqCst);
    }

    /// Whether it does.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::SeqCst)
    }

    /// As after a reset.
    pub fn clear(&self) {
        self.broken.store(false, Ordering::SeqCst);
        self.bits.store(0, Ordering::SeqCst);
    }
}

/// What a device is, whoever drives it.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The device number of virtio.
    pub id: u32,
    /// Feature bits it offers; version 1 comes with the transport.
    pub features: u64,
    /// The largest size of each queue, powers of two.
    pub queue_sizes: Vec<u16>,
    /// The interrupt status cannot be told from outside, because the kernel raises interrupts for
    /// used buffers itself: it says always that there may be some.
    pub kernel_interrupts: bool,
}

/// A queue as the driver has set it up. The addresses are unchecked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSetup {
    /// Entries: a power of two, at most the queue's maximum.
    pub size: u16,
    /// Guest address of the descriptor table.
    pub descriptors: u64,
    /// Guest address of the available ring.
    pub available: u64,
    /// Guest address of the used ring.
    pub used: u64,
    /// The driver uses this queue.
    pub ready: bool,
}

impl QueueSetup {
    /// Gives the queue of a backend in user space this setup.
    pub fn apply(&self, queue: &mut Queue) {
        queue.reset();
        queue.set_size(self.size);
        let halves = |address: u64| (Some(address as u32), Some((address >> 32) as u32));
        let (low, high) = halves(self.descriptors);
        queue.set_desc_table_address(low, high);
        let (low, high) = halves(self.available);
        queue.set_avail_ring_address(low, high);
        let (low, high) = halves(self.used);
        queue.set_used_ring_address(low, high);
        queue.set_ready(self.ready);
    }
}

/// What a driver has agreed with the device when it says `DRIVER_OK`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activation {
    /// Features of both.
    pub features: u64,
    /// Every queue of the device.
    pub queues: Vec<QueueSetup>,
}

/// What a register write asks of the device behind the registers.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    None,
    /// Begin to serve.
    Activate(Activation),
    /// Forget everything, whatever it was doing.
    Reset,
}

/// The state of the registers.
#[derive(Debug)]
pub struct Transport {
    identity: Identity,
    interrupt: Arc<InterruptStatus>,
    status: u32,
    device_features_selector: u32,
    driver_features_selector: u32,
    driver_features: u64,
    queue_selector: u32,
    queues: Vec<QueueSetup>,
}

impl Transport {
    /// The registers after a reset.
    pub fn new(mut identity: Identity, interrupt: Arc<InterruptStatus>) -> Self {
        identity.features |= 1 << VIRTIO_F_VERSION_1;
        let mut transport = Self {
            identity,
            interrupt,
            status: 0,
            device_features_selector: 0,
            driver_features_selector: 0,
            driver_features: 0,
            queue_selector: 0,
            queues: Vec::new(),
        };
        transport.reset();
        transport
    }

    fn reset(&mut self) {
        self.status = 0;
        self.device_features_selector = 0;
        self.driver_features_selector = 0;
        self.driver_features = 0;
        self.queue_selector = 0;
        let unset = |size: &u16| QueueSetup {
            size: *size,
            ..QueueSetup::default()
        };
        self.queues = self.identity.queue_sizes.iter().map(unset).collect();
        self.interrupt.clear();
    }

    /// Reads the register at `offset`, below the configuration space. Where none is: zero.
    pub fn read(&self, offset: u32) -> u32 {
        match offset {
            VIRTIO_MMIO_MAGIC_VALUE => MAGIC,
            VIRTIO_MMIO_VERSION => 2,
            VIRTIO_MMIO_DEVICE_ID => self.identity.id,
            VIRTIO_MMIO_VENDOR_ID => VENDOR,
            VIRTIO_MMIO_DEVICE_FEATURES => {
                half(self.identity.features, self.device_features_selector)
            }
            VIRTIO_MMIO_QUEUE_NUM_MAX => self
                .identity
                .queue_sizes
                .get(self.queue_selector as usize)
                .map_or(0, |size| u32::from(*size)),
            VIRTIO_MMIO_QUEUE_READY => self
                .queues
                .get(self.queue_selector as usize)
                .map_or(0, |queue| queue.ready.into()),
            VIRTIO_MMIO_INTERRUPT_STATUS => {
                let always = if self.identity.kernel_interrupts {
                    VIRTIO_MMIO_INT_VRING
                } else {
                    0
                };
                self.interrupt.bits.load(Ordering::SeqCst) | always
            }
            VIRTIO_MMIO_STATUS if self.interrupt.is_broken() => {
                self.status | VIRTIO_CONFIG_S_NEEDS_RESET
            }
            VIRTIO_MMIO_STATUS => self.status,
            // No device here has shared memory: a length of all ones.
            VIRTIO_MMIO_SHM_LEN_LOW | VIRTIO_MMIO_SHM_LEN_HIGH => u32::MAX,
            // Among them ConfigGeneration: no device here changes its configuration.
            _ => 0,
        }
    }

    /// Writes the register at `offset`, below the configuration space and not `QueueNotify`.
    pub fn write(&mut self, offset: u32, value: u32) -> Action {
        match offset {
            VIRTIO_MMIO_DEVICE_FEATURES_SEL => self.device_features_selector = value,
            VIRTIO_MMIO_DRIVER_FEATURES_SEL => self.driver_features_selector = value,
            VIRTIO_MMIO_DRIVER_FEATURES => self.set_driver_features(value),
            VIRTIO_MMIO_QUEUE_SEL => self.queue_selector = value,
            VIRTIO_MMIO_INTERRUPT_ACK => {
                self.interrupt.bits.fetch_and(!value, Ordering::SeqCst);
            }
            VIRTIO_MMIO_STATUS => return self.set_status(value),
            _ => self.set_up_queue(offset, value),
        }
        Action::None
    }

    fn set_driver_features(&mut self, value: u32) {
        if self.status & VIRTIO_CONFIG_S_FEATURES_OK != 0 {
            return;
        }
        let shift = match self.driver_features_selector {
            0 => 0,
            1 => 32,
            _ => return,
        };
        self.driver_features &= !(u64::from(u32::MAX) << shift);
        self.driver_features |= u64::from(value) << shift;
    }

    fn set_up_queue(&mut self, offset: u32, value: u32) {
        // Queues belong to the device from DRIVER_OK on.
        if self.status & VIRTIO_CONFIG_S_DRIVER_OK != 0 {
            return;
        }
        let index = self.queue_selector as usize;
        let (Some(queue), Some(largest)) = (
            self.queues.get_mut(index),
            self.identity.queue_sizes.get(index),
        ) else {
            return;
        };
        match offset {
            VIRTIO_MMIO_QUEUE_NUM => {
                if let Ok(size) = u16::try_from(value)
                    && size.is_power_of_two()
                    && size <= *largest
                {
                    queue.size = size;
                }
            }
            VIRTIO_MMIO_QUEUE_READY => queue.ready = value == 1,
            VIRTIO_MMIO_QUEUE_DESC_LOW => set_low(&mut queue.descriptors, value),
            VIRTIO_MMIO_QUEUE_DESC_HIGH => set_high(&mut queue.descriptors, value),
            VIRTIO_MMIO_QUEUE_AVAIL_LOW => set_low(&mut queue.available, value),
            VIRTIO_MMIO_QUEUE_AVAIL_HIGH => set_high(&mut queue.available, value),
            VIRTIO_MMIO_QUEUE_USED_LOW => set_low(&mut queue.used, value),
            VIRTIO_MMIO_QUEUE_USED_HIGH => set_high(&mut queue.used, value),
            _ => {}
        }
    }

    /// Bits of the status are only ever added, in the order of virtio 1.2, section 3.1; zero resets.
    fn set_status(&mut self, value: u32) -> Action {
        const STEPS: u32 = VIRTIO_CONFIG_S_ACKNOWLEDGE
            | VIRTIO_CONFIG_S_DRIVER
            | VIRTIO_CONFIG_S_FEATURES_OK
            | VIRTIO_CONFIG_S_DRIVER_OK
            | VIRTIO_CONFIG_S_FAILED;
        if value == 0 {
            self.reset();
            return Action::Reset;
        }
        let mut new = value & STEPS & !self.status;
        if new & VIRTIO_CONFIG_S_FEATURES_OK != 0 && !self.features_are_acceptable() {
            new &= !VIRTIO_CONFIG_S_FEATURES_OK;
        }
        if (self.status | new) & VIRTIO_CONFIG_S_FEATURES_OK == 0 {
            new &= !VIRTIO_CONFIG_S_DRIVER_OK;
        }
        self.status |= new;
        if new & VIRTIO_CONFIG_S_DRIVER_OK == 0 {
            return Action::None;
        }
        Action::Activate(Activation {
            features: self.driver_features,
            queues: self.queues.clone(),
        })
    }

    fn features_are_acceptable(&self) -> bool {
        let only_offered = self.driver_features & !self.identity.features == 0;
        only_offered && self.driver_features & (1 << VIRTIO_F_VERSION_1) != 0
    }
}

fn half(value: u64, selector: u32) -> u32 {
    match selector {
        0 => value as u32,
        1 => (value >> 32) as u32,
        _ => 0,
    }
}

fn set_low(address: &mut u64, value: u32) {
    *address = *address & !u64::from(u32::MAX) | u64::from(value);
}

fn set_high(address: &mut u64, value: u32) {
    *address = *address & u64::from(u32::MAX) | u64::from(value) << 32;
}

#[cfg(test)]
#[path = "transport_tests.rs"]
mod tests;
