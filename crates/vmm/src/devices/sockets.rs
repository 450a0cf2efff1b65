//! The outsourced sockets as a virtio device: each queue is served in the VCPU thread that rings it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use steadyvm_sockets::abi::{FEATURE_EVENTS, FEATURE_WAIT, VIRTIO_ID};
use steadyvm_sockets::{Channel, Device, Held, Lock, Memory};
use virtio_bindings::virtio_ring::VIRTIO_RING_F_INDIRECT_DESC;
use virtio_queue::QueueT;
use zerocopy::IntoBytes;

use super::transport::{Activation, Identity};
use super::{Backend, Broken};

/// The backend of the sockets device. It raises no interrupt for its queues.
pub struct Sockets {
    device: Arc<Device>,
    memory: Memory,
    configuration: Vec<u8>,
    /// One a VCPU. A guest that rings the queue of another VCPU waits here for that one.
    channels: Vec<Lock<Channel>>,
    /// The VM is ending: no further round of requests.
    stopping: Arc<AtomicBool>,
}

impl Sockets {
    /// The device with its channels, rung by `port` besides its register.
    ///
    /// # Errors
    /// Where the device has fewer channels.
    pub fn new(
        device: &Arc<Device>,
        channels: u16,
        memory: Memory,
        port: u16,
        stopping: Arc<AtomicBool>,
    ) -> Result<Self, steadyvm_sockets::DeviceError> {
        let channels = (0..channels)
            .map(|index| Channel::new(device, index).map(Lock::new))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            device: Arc::clone(device),
            memory,
            configuration: device.config(Some(port)).as_bytes().to_vec(),
            channels,
            stopping,
        })
    }

    fn channel(&self, index: usize) -> Option<Held<'_, Channel>> {
        self.channels.get(index).map(Lock::lock)
    }
}

impl Backend for Sockets {
    fn identity(&self) -> Identity {
        Identity {
            id: VIRTIO_ID,
            features: 1 << FEATURE_EVENTS | 1 << FEATURE_WAIT | 1 << VIRTIO_RING_F_INDIRECT_DESC,
            queue_sizes: vec![self.device.limits().operations; self.channels.len()],
            kernel_interrupts: false,
        }
    }

    fn configuration(&self) -> &[u8] {
        &self.configuration
    }

    fn activate(&self, activation: &Activation) -> Result<(), Broken> {
        for (index, setup) in activation.queues.iter().enumerate() {
            let Some(mut channel) = self.channel(index) else {
                continue;
            };
            let queue = channel.queue();
            setup.apply(queue);
            if setup.ready && !queue.is_valid(&self.memory) {
                return Err(Broken::new(format!(
                    "outsourced sockets: the guest set queue {index} up outside its memory"
                )));
            }
        }
        Ok(())
    }

    fn notify(&self, queue: u32) -> Result<(), Broken> {
        let Some(mut channel) = self.channel(queue as usize) else {
            return Ok(());
        };
        loop {
            let served = channel.serve(&self.memory).map_err(Broken::new)?;
            if !served.more || self.stopping.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }

    fn reset(&self) {
        for index in 0..self.channels.len() {
            self.device.wake(index as u16);
        }
        // All channels are held until the sockets are closed, so that none serves meanwhile.
        let mut held: Vec<_> = (0..self.channels.len())
            .filter_map(|index| self.channel(index))
            .collect();
        for channel in &mut held {
            channel.reset();
        }
        self.device.reset(&self.memory);
    }
}
