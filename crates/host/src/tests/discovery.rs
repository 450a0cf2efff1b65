//! What belongs to which NIC and which VM, where names say otherwise.

use super::scenario::{nic, paper_host, threaded_irq};
use crate::discover;
use crate::fake::FakeHost;
use crate::parse::{PF_KTHREAD, PF_USER_WORKER};
use crate::settings::ThreadId;

fn tids(threads: &[ThreadId]) -> Vec<u32> {
    threads.iter().map(|thread| thread.tid).collect()
}

fn found(host: &FakeHost, name: &str) -> discover::Nic {
    let machine = host.machine();
    discover::nic(&machine, &machine.all_threads().unwrap(), name).unwrap()
}

#[test]
fn a_nics_interrupts_are_its_devices_whatever_they_are_called() {
    let host = FakeHost::new(2);
    for (name, irq, tid) in [("rt", 30, 40), ("rt-1", 34, 44), ("lan", 50, 60)] {
        nic(&host, name, irq, tid);
    }
    // Once eth0, renamed while up; and today's eth0.
    nic(&host, "old", 54, 64);
    nic(&host, "eth0", 58, 68);
    host.edit(|state| {
        for (irq, name) in [(54, "eth0-TxRx-0"), (55, "eth0-TxRx-1")] {
            state.irqs.get_mut(&irq).unwrap().name = name.into();
        }
    });
    threaded_irq(&host, 90, 91, "lan-mgmt-TxRx-0", 0);
    host.thread(92, 92, "napi/rt-1-8193", PF_KTHREAD);
    for (name, irqs) in [
        ("rt", [40, 41]),
        ("rt-1", [44, 45]),
        ("lan", [60, 61]),
        ("old", [64, 65]),
        ("eth0", [68, 69]),
    ] {
        assert_eq!(tids(&found(&host, name).irq_threads), irqs, "{name}");
    }
    assert!(found(&host, "rt").napi_threads.is_empty());
    assert_eq!(tids(&found(&host, "rt-1").napi_threads), [92]);
}

#[test]
fn names_count_where_nothing_better_is_known_and_only_whole() {
    let host = FakeHost::new(2);
    // A platform device: sysfs lists no interrupts of it.
    for name in ["rt", "rt-1"] {
        host.file(&format!("/sys/class/net/{name}/mtu"), "1500\n");
    }
    nic(&host, "rt0", 30, 40);
    threaded_irq(&host, 50, 60, "rt", 0);
    threaded_irq(&host, 51, 61, "rt-rx-0", 0);
    threaded_irq(&host, 52, 62, "rt-1", 0);
    threaded_irq(&host, 53, 63, "rt-1-rx-0", 0);
    threaded_irq(&host, 54, 64, "rt-mgmt", 0);
    assert_eq!(tids(&found(&host, "rt").irq_threads), [60, 61]);
    assert_eq!(tids(&found(&host, "rt-1").irq_threads), [62, 63]);
}

/// Gives VM 100 of the paper's host a device by passthrough, with interrupt 70 and thread 80; interrupt 71
/// and thread 81 are another VM's.
pub fn give_function(host: &FakeHost) {
    let device = "/sys/devices/pci0000:00/0000:01:10.0";
    host.file(&format!("{device}/msi_irqs/70"), "msix\n");
    host.file("/sys/class/vfio/12/dev", "242:0\n");
    host.open(100, 40, "/dev/vfio/12", Some("242:0"));
    host.file(
        "/sys/kernel/iommu_groups/12/devices/0000:01:10.0/uevent",
        "",
    );
    host.edit(|state| {
        let member = "/sys/kernel/iommu_groups/12/devices/0000:01:10.0";
        state.links.insert(member.into(), device.into())
    });
    threaded_irq(host, 70, 80, "vfio-msix[0](0000:01:10.0)", 0);
    threaded_irq(host, 71, 81, "vfio-msix[0](0000:01:10.1)", 0);
}

#[test]
fn the_stages_of_a_vm_besides_vcpus_and_vhost_are_found() {
    let host = paper_host(2);
    give_function(&host);
    host.thread(100, 120, "IO iothread0", 0);
    let machine = host.machine();
    let vm = discover::vm(&machine, &machine.all_threads().unwrap(), 100).unwrap();
    assert_eq!(tids(&vm.vfio_threads), [80]);
    assert_eq!(tids(&vm.io_threads), [120]);
    assert_eq!(vm.main_thread.map(|thread| thread.tid), Some(100));

    // A vsock device's worker is not a card's: the card's is older.
    host.edit(|state| {
        state
            .links
            .insert("/proc/100/fd/41".into(), "/dev/vhost-vsock".into())
    });
    host.thread(100, 130, "vhost-100", PF_USER_WORKER);
    let vm = discover::vm(&machine, &machine.all_threads().unwrap(), 100).unwrap();
    assert_eq!(tids(&vm.vhost_workers), [109]);
    assert!(vm.warnings[0].contains("vsock"), "{:?}", vm.warnings);
}
