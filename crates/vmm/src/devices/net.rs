//! virtio-net over vhost-net and a tap device: packets, notifications and interrupts stay in the
//! host's kernel. It is here so that network methods can be compared inside one monitor.

use std::sync::Arc;
use steadyvm_sockets::{Lock, Memory};
use vhost::net::VhostNet;
use vhost::vhost_kern::net::Net as VhostKernelNet;
use vhost::{VhostBackend, VringConfigData};
use virtio_bindings::virtio_ids::VIRTIO_ID_NET;
use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_ECN, VIRTIO_NET_F_GUEST_TSO4,
    VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_HOST_ECN, VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6,
    VIRTIO_NET_F_MAC, VIRTIO_NET_F_MRG_RXBUF,
};
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use vmm_sys_util::eventfd::EventFd;

use super::tap::Tap;
use super::transport::{Activation, Identity};
use super::{Backend, Broken};
use crate::configuration::Mac;
use steadyvm_fault::{At, Result};

/// As QEMU's.
const QUEUE_SIZE: u16 = 256;
const QUEUES: usize = 2;

/// What the tap device does with frames: the guest's side and the host's.
const OFFLOADS: [u32; 9] = [
    VIRTIO_NET_F_MAC,
    VIRTIO_NET_F_CSUM,
    VIRTIO_NET_F_HOST_TSO4,
    VIRTIO_NET_F_HOST_TSO6,
    VIRTIO_NET_F_HOST_ECN,
    VIRTIO_NET_F_GUEST_CSUM,
    VIRTIO_NET_F_GUEST_TSO4,
    VIRTIO_NET_F_GUEST_TSO6,
    VIRTIO_NET_F_GUEST_ECN,
];
/// What vhost does with queues, as far as it says so itself.
const QUEUE_FEATURES: [u32; 3] = [
    VIRTIO_RING_F_INDIRECT_DESC,
    VIRTIO_RING_F_EVENT_IDX,
    VIRTIO_NET_F_MRG_RXBUF,
];

/// The events that join one queue to the kernel.
pub struct QueueEvents {
    /// The guest rings (an ioeventfd).
    pub rung: EventFd,
    /// The interrupt (an irqfd).
    pub interrupt: EventFd,
}

/// The backend of a network card.
pub struct Net {
    /// Held while the queues are joined to vhost or parted from it.
    vhost: Lock<VhostKernelNet<Arc<Memory>>>,
    tap: Tap,
    mac: Mac,
    queue_features: u64,
    events: [QueueEvents; QUEUES],
}

impl Net {
    /// Opens vhost-net for an open tap device. Its worker belongs to the calling process.
    pub fn new(memory: &Memory, tap: Tap, mac: Mac, events: [QueueEvents; QUEUES]) -> Result<Self> {
        let vhost = VhostKernelNet::new(Arc::new(memory.clone())).cannot_or(
            "open /dev/vhost-net",
            "load vhost_net (modprobe vhost_net), and give this user the device",
        )?;
        vhost.set_owner().cannot("own a vhost-net device")?;
        let offered = vhost
            .get_features()
            .cannot("ask vhost-net for its features")?;
        Ok(Self {
            vhost: Lock::new(vhost),
            tap,
            mac,
            queue_features: offered & bits(&QUEUE_FEATURES),
            events,
        })
    }

    fn join(
        &self,
        vhost: &VhostKernelNet<Arc<Memory>>,
        activation: &Activation,
    ) -> std::result::Result<(), vhost::Error> {
        let version_1 = 1 << virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
        vhost.set_features(activation.features & (self.queue_features | version_1))?;
        let regions = regions(vhost);
        vhost.set_mem_table(&regions)?;
        for (index, (setup, events)) in activation.queues.iter().zip(&self.events).enumerate() {
            vhost.set_vring_num(index, setup.size)?;
            vhost.set_vring_base(index, 0)?;
            let addresses = VringConfigData {
                queue_max_size: QUEUE_SIZE,
                queue_size: setup.size,
                flags: 0,
                desc_table_addr: setup.descriptors,
                used_ring_addr: setup.used,
                avail_ring_addr: setup.available,
                log_addr: None,
            };
            vhost.set_vring_addr(index, &addresses)?;
            vhost.set_vring_call(index, &events.interrupt)?;
            vhost.set_vring_kick(index, &events.rung)?;
        }
        for index in 0..QUEUES {
            vhost.set_backend(index, Some(self.tap.file()))?;
        }
        Ok(())
    }

    fn part(vhost: &VhostKernelNet<Arc<Memory>>) {
        for index in 0..QUEUES {
            // A queue that was never joined is refused; it is parted all the same.
            let _ = vhost.set_backend(index, None);
        }
    }
}

impl Backend for Net {
    fn identity(&self) -> Identity {
        Identity {
            id: VIRTIO_ID_NET,
            features: bits(&OFFLOADS) | self.queue_features,
            queue_sizes: vec![QUEUE_SIZE; QUEUES],
            kernel_interrupts: true,
        }
    }

    fn configuration(&self) -> &[u8] {
        &self.mac.0
    }

    fn activate(&self, activation: &Activation) -> std::result::Result<(), Broken> {
        if !activation.queues.iter().all(|queue| queue.ready) {
            return Err(Broken::new(
                "virtio-net: the guest has not set both queues up",
            ));
        }
        self.tap
            .set_offloads(tap_offloads(activation.features))
            .map_err(|error| {
                Broken::new(format!("virtio-net: the tap device's offloads: {error}"))
            })?;
        let vhost = self.vhost.lock();
        self.join(&vhost, activation).map_err(|error| {
            Self::part(&vhost);
            Broken::new(format!(
                "virtio-net: vhost-net refuses the guest's queues: {error}"
            ))
        })
    }

    /// The kernel hears the guest ring; this comes only where the guest writes the register in
    /// another width than the ioeventfd's.
    fn notify(&self, queue: u32) -> std::result::Result<(), Broken> {
        if let Some(events) = self.events.get(queue as usize) {
            let _ = events.rung.write(1);
        }
        Ok(())
    }

    fn reset(&self) {
        Self::part(&self.vhost.lock());
    }
}

fn bits(features: &[u32]) -> u64 {
    features.iter().fold(0, |all, bit| all | 1 << bit)
}

fn regions(vhost: &VhostKernelNet<Arc<Memory>>) -> Vec<vhost::VhostUserMemoryRegionInfo> {
    use vhost::vhost_kern::VhostKernBackend;
    use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};
    let region = |region: &vm_memory::GuestRegionMmap| vhost::VhostUserMemoryRegionInfo {
        guest_phys_addr: region.start_addr().0,
        memory_size: region.len(),
        userspace_addr: region.as_ptr() as u64,
        mmap_offset: 0,
        mmap_handle: -1,
    };
    vhost.mem().iter().map(region).collect()
}

/// What the guest can take, in the words of the tap device.
fn tap_offloads(features: u64) -> u32 {
    const CHECKSUM: u32 = 1;
    const TSO4: u32 = 2;
    const TSO6: u32 = 4;
    const ECN: u32 = 8;
    let has = |bit: u32| features & 1 << bit != 0;
    // Segmentation is only taken together with checksums.
    if !has(VIRTIO_NET_F_GUEST_CSUM) {
        return 0;
    }
    let table = [
        (VIRTIO_NET_F_GUEST_TSO4, TSO4),
        (VIRTIO_NET_F_GUEST_TSO6, TSO6),
        (VIRTIO_NET_F_GUEST_ECN, ECN),
    ];
    table
        .iter()
        .filter(|(feature, _)| has(*feature))
        .fold(CHECKSUM, |all, (_, offload)| all | offload)
}
