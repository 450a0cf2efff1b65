use super::*;
use crate::output::Pipe;
use proptest::prelude::*;
use virtio_bindings::virtio_config::VIRTIO_CONFIG_S_NEEDS_RESET;
use virtio_bindings::virtio_mmio::{
    VIRTIO_MMIO_DRIVER_FEATURES, VIRTIO_MMIO_DRIVER_FEATURES_SEL, VIRTIO_MMIO_STATUS,
};

/// A backend that refuses, for a reason, to be activated or to be rung.
struct Refusing {
    at_activation: bool,
}

impl Backend for Refusing {
    fn identity(&self) -> Identity {
        Identity {
            id: 7,
            features: 0,
            queue_sizes: vec![16],
            kernel_interrupts: false,
        }
    }

    fn configuration(&self) -> &[u8] {
        &[]
    }

    fn activate(&self, _: &Activation) -> Result<(), Broken> {
        if self.at_activation {
            return Err(Broken::new("the queues are not to its taste"));
        }
        Ok(())
    }

    fn notify(&self, _: u32) -> Result<(), Broken> {
        Err(Broken::new("the queues are not to its taste"))
    }

    fn reset(&self) {}
}

struct Rig {
    device: MmioDevice,
    said: Arc<Pipe>,
}

impl Rig {
    fn new(at_activation: bool) -> Self {
        let event = || EventFd::new(libc::EFD_NONBLOCK).unwrap();
        let said = Pipe::new(&event()).unwrap();
        let interrupt = Arc::new(Interrupt::new(event(), Messages(Arc::clone(&said))));
        let device = MmioDevice::new(Box::new(Refusing { at_activation }), interrupt);
        Self { device, said }
    }

    fn write(&self, offset: u32, value: u32) {
        self.device.write(offset, &value.to_le_bytes());
    }

    fn status(&self) -> u32 {
        let mut status = [0; 4];
        self.device.read(VIRTIO_MMIO_STATUS, &mut status);
        u32::from_le_bytes(status)
    }

    /// Sets the device up and rings it.
    fn drive(&self) {
        self.write(VIRTIO_MMIO_STATUS, 3);
        self.write(VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
        self.write(VIRTIO_MMIO_DRIVER_FEATURES, 1);
        self.write(VIRTIO_MMIO_STATUS, 11);
        self.write(VIRTIO_MMIO_STATUS, 15);
        self.write(VIRTIO_MMIO_QUEUE_NOTIFY, 0);
    }

    fn said(&self) -> String {
        String::from_utf8(self.said.take()).unwrap()
    }
}

#[test]
fn why_a_device_is_refused_is_said_and_the_guest_is_told() {
    for at_activation in [true, false] {
        let rig = Rig::new(at_activation);
        rig.drive();
        assert_ne!(rig.status() & VIRTIO_CONFIG_S_NEEDS_RESET, 0);
        assert_eq!(
            rig.said(),
            "steadyvm: the queues are not to its taste; the device needs a reset\n"
        );
        rig.write(VIRTIO_MMIO_STATUS, 0);
        assert_eq!(rig.status(), 0, "a reset ends it");
    }
}

proptest! {
    /// However often a guest breaks a device, it cannot fill the log.
    #[test]
    fn a_guest_cannot_fill_the_log(at_activation in any::<bool>(), times in 2_usize..500) {
        let rig = Rig::new(at_activation);
        for _ in 0..times {
            rig.drive();
            rig.write(VIRTIO_MMIO_STATUS, 0);
        }
        // One a second; a slow machine may take seconds for that.
        let lines = rig.said().lines().count();
        prop_assert!((1..=times.min(30)).contains(&lines), "{lines}");
    }
}
