use super::*;
use proptest::prelude::*;

const DRIVER: u32 = VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER;
const FEATURES_OK: u32 = DRIVER | VIRTIO_CONFIG_S_FEATURES_OK;
const DRIVER_OK: u32 = FEATURES_OK | VIRTIO_CONFIG_S_DRIVER_OK;

fn identity() -> Identity {
    Identity {
        id: 7,
        features: 0b101,
        queue_sizes: vec![256, 16],
        kernel_interrupts: false,
    }
}

fn transport() -> Transport {
    Transport::new(identity(), Arc::default())
}

/// A driver that does all as the specification says, up to `DRIVER_OK`.
fn drive(transport: &mut Transport, features: u64) -> Action {
    transport.write(VIRTIO_MMIO_STATUS, DRIVER);
    for (selector, part) in [(0, features as u32), (1, (features >> 32) as u32)] {
        transport.write(VIRTIO_MMIO_DRIVER_FEATURES_SEL, selector);
        transport.write(VIRTIO_MMIO_DRIVER_FEATURES, part);
    }
    transport.write(VIRTIO_MMIO_STATUS, FEATURES_OK);
    for queue in 0..2 {
        transport.write(VIRTIO_MMIO_QUEUE_SEL, queue);
        transport.write(VIRTIO_MMIO_QUEUE_NUM, 8);
        transport.write(VIRTIO_MMIO_QUEUE_DESC_LOW, 0x1000 * (queue + 1));
        transport.write(VIRTIO_MMIO_QUEUE_DESC_HIGH, 1);
        transport.write(VIRTIO_MMIO_QUEUE_AVAIL_LOW, 0x200);
        transport.write(VIRTIO_MMIO_QUEUE_USED_HIGH, 3);
        transport.write(VIRTIO_MMIO_QUEUE_READY, 1);
    }
    transport.write(VIRTIO_MMIO_STATUS, DRIVER_OK)
}

#[test]
fn a_driver_finds_the_device_and_its_features() {
    let mut transport = transport();
    assert_eq!(
        transport.read(VIRTIO_MMIO_MAGIC_VALUE),
        u32::from_le_bytes(*b"virt")
    );
    assert_eq!(transport.read(VIRTIO_MMIO_VERSION), 2);
    assert_eq!(transport.read(VIRTIO_MMIO_DEVICE_ID), 7);
    assert_eq!(transport.read(VIRTIO_MMIO_DEVICE_FEATURES), 0b101);
    transport.write(VIRTIO_MMIO_DEVICE_FEATURES_SEL, 1);
    assert_eq!(transport.read(VIRTIO_MMIO_DEVICE_FEATURES), 1);
    transport.write(VIRTIO_MMIO_DEVICE_FEATURES_SEL, 2);
    assert_eq!(transport.read(VIRTIO_MMIO_DEVICE_FEATURES), 0);
    transport.write(VIRTIO_MMIO_QUEUE_SEL, 1);
    assert_eq!(transport.read(VIRTIO_MMIO_QUEUE_NUM_MAX), 16);
    transport.write(VIRTIO_MMIO_QUEUE_SEL, 2);
    assert_eq!(transport.read(VIRTIO_MMIO_QUEUE_NUM_MAX), 0);
}

#[test]
fn a_driver_that_follows_the_order_activates_once_and_a_reset_forgets_all() {
    let mut transport = transport();
    let Action::Activate(activation) = drive(&mut transport, 1 << 32 | 1) else {
        panic!("not activated");
    };
    assert_eq!(activation.features, 1 << 32 | 1);
    let second = activation.queues[1];
    assert_eq!((second.size, second.ready), (8, true));
    let addresses = (second.descriptors, second.available, second.used);
    assert_eq!(addresses, (0x1_0000_2000, 0x200, 0x3_0000_0000));
    assert_eq!(transport.write(VIRTIO_MMIO_STATUS, DRIVER_OK), Action::None);
    assert_eq!(transport.write(VIRTIO_MMIO_STATUS, 0), Action::Reset);
    assert_eq!(transport.read(VIRTIO_MMIO_STATUS), 0);
    transport.write(VIRTIO_MMIO_QUEUE_SEL, 1);
    assert_eq!(transport.read(VIRTIO_MMIO_QUEUE_READY), 0);
}

#[test]
fn features_that_were_not_offered_or_lack_version_1_are_refused() {
    for features in [1, 1 << 32 | 0b10, 1 << 33 | 1 << 32] {
        let mut transport = transport();
        assert_eq!(drive(&mut transport, features), Action::None);
        assert_eq!(transport.read(VIRTIO_MMIO_STATUS), DRIVER);
    }
}

#[test]
fn interrupts_are_acknowledged_except_those_of_the_kernel() {
    let status = Arc::new(InterruptStatus::default());
    let mut transport = Transport::new(identity(), Arc::clone(&status));
    status.used_buffer();
    status.broken();
    assert_eq!(transport.read(VIRTIO_MMIO_INTERRUPT_STATUS), 3);
    transport.write(VIRTIO_MMIO_INTERRUPT_ACK, VIRTIO_MMIO_INT_VRING);
    assert_eq!(transport.read(VIRTIO_MMIO_INTERRUPT_STATUS), 2);
    let of_kernel = Identity {
        kernel_interrupts: true,
        ..identity()
    };
    let mut transport = Transport::new(of_kernel, Arc::default());
    transport.write(VIRTIO_MMIO_INTERRUPT_ACK, u32::MAX);
    assert_eq!(transport.read(VIRTIO_MMIO_INTERRUPT_STATUS), 1);
}

fn accesses() -> impl Strategy<Value = Vec<(u32, u32)>> {
    let register = prop_oneof![
        (0_u32..0x40).prop_map(|register| register * 4),
        Just(VIRTIO_MMIO_STATUS),
        Just(VIRTIO_MMIO_DRIVER_FEATURES),
        any::<u32>(),
    ];
    let value = prop_oneof![
        0_u32..16,
        Just(DRIVER_OK),
        Just(FEATURES_OK),
        Just(1 << 5),
        any::<u32>(),
    ];
    prop::collection::vec((register, value), 0..60)
}

proptest! {
    /// Whatever a guest writes: what reaches a backend was offered, and queues keep their limits.
    #[test]
    fn nothing_unchecked_reaches_the_backend(accesses in accesses(), driven in any::<bool>()) {
        let mut transport = transport();
        let mut active = driven && drive(&mut transport, 1 << 32) != Action::None;
        for (register, value) in accesses {
            let before = transport.read(VIRTIO_MMIO_STATUS);
            match transport.write(register, value) {
                Action::Activate(activation) => {
                    prop_assert!(!active, "activated twice");
                    active = true;
                    prop_assert_eq!(activation.features & !(1 << 32 | 0b101), 0);
                    prop_assert_ne!(activation.features & 1 << 32, 0);
                    let sizes = identity().queue_sizes;
                    for (queue, largest) in activation.queues.iter().zip(&sizes) {
                        prop_assert!(queue.size.is_power_of_two() && queue.size <= *largest);
                    }
                }
                Action::Reset => {
                    active = false;
                    prop_assert_eq!(transport.read(VIRTIO_MMIO_STATUS), 0);
                    continue;
                }
                Action::None => {}
            }
            // Bits only ever come.
            let after = transport.read(VIRTIO_MMIO_STATUS);
            prop_assert_eq!(after & before, before);
            prop_assert_eq!(after & VIRTIO_CONFIG_S_NEEDS_RESET, 0);
            transport.read(register);
        }
    }

    /// Queues that belong to the device do not change under it.
    #[test]
    fn an_active_queue_cannot_be_set_up_again(accesses in accesses()) {
        let mut transport = transport();
        drive(&mut transport, 1 << 32);
        let before = transport.queues.clone();
        for (register, value) in accesses {
            if register != VIRTIO_MMIO_STATUS {
                transport.write(register, value);
            }
        }
        prop_assert_eq!(transport.queues, before);
    }
}
