//! Presets of methods, and the ranks of the kernel's own threads.

use super::net::{kept, profile};
use super::scenario::{FIFO_50, control, paper_host, paper_target, threaded_irq};
use crate::method::{Method, Priorities, Target};
use crate::parse::{PF_KTHREAD, PF_NO_SETAFFINITY};
use crate::profile::{ThreadPriority, file};
use crate::settings::threads::Scheduling;

/// A host with the threads that PREEMPT_RT has for every CPU.
fn host_with_timers() -> crate::fake::FakeHost {
    let host = paper_host(2);
    for (tid, name) in [
        (14, "rcuc/0"),
        (15, "ktimers/0"),
        (16, "rcub/0"),
        (17, "rcuc/1"),
        (18, "ktimers/1"),
    ] {
        host.thread(tid, tid, name, PF_KTHREAD | PF_NO_SETAFFINITY);
        host.edit(|state| {
            state.threads.get_mut(&tid).unwrap().scheduling = Scheduling::fifo(1, 0);
        });
    }
    // A process that calls itself so is none of them.
    host.thread(600, 600, "rcuc/0", 0);
    host
}

#[test]
fn every_method_puts_rcu_and_timers_above_what_tenants_keep_busy() {
    let ours = |method: &Method| *method != Method::Tuned;
    for method in Method::of_hosts().filter(ours) {
        let (host, directory) = (host_with_timers(), super::scenario::directory());
        let before = host.state();
        let control = control(&host, &directory);
        control.apply(&paper_target(), method).unwrap();
        let state = host.state();
        let Priorities {
            housekeeping,
            vhost,
            vcpu,
            ..
        } = Priorities::default();
        assert!(housekeeping > vhost && housekeeping > vcpu);
        for tid in 13..=18 {
            let expected = if method == Method::Vanilla {
                before.threads[&tid].scheduling
            } else {
                Scheduling::fifo(housekeeping, 0)
            };
            assert_eq!(state.threads[&tid].scheduling, expected, "{method} {tid}");
        }
        assert_eq!(state.threads[&600].scheduling, Scheduling::normal());
        control.undo().unwrap();
        assert_eq!(kept(host.state()), kept(before.clone()));
        // Where the user wants them left.
        let target = Target {
            keep_housekeeping: true,
            ..paper_target()
        };
        control.apply(&target, method).unwrap();
        let state = host.state();
        for tid in 13..=18 {
            let (now, old) = (&state.threads[&tid], &before.threads[&tid]);
            assert_eq!(now.scheduling, old.scheduling, "{method} {tid}");
        }
        control.undo().unwrap();
    }
}

/// Interrupt threads beside those of the paper's NICs: what they are, their thread, and whether a method raises them.
const INTERRUPTS: [(&str, u32, u32, bool); 6] = [
    ("nvme0q1", 60, 700, true),
    ("s-acpi", 61, 701, true),
    ("vfio-msix[0](0000:09:00.0)", 62, 702, false),
    ("mlx5_comp0@pci:0000:07:00.0", 63, 703, false),
    ("xhci_hcd", 64, 704, false),
    ("pps", 65, 705, false),
];

/// A disk, ACPI, a VM's device, a card in a container's network namespace, a controller with a USB card, and a device
/// that somebody has ranked.
fn host_with_devices() -> crate::fake::FakeHost {
    let host = host_with_timers();
    for (action, irq, tid, _) in INTERRUPTS {
        threaded_irq(&host, irq, tid, action, 0);
    }
    let card = "/sys/bus/pci/devices/0000:07:00.0";
    host.file(&format!("{card}/class"), "0x020000\n");
    host.file(&format!("{card}/msi_irqs/63"), "msix\n");
    let disk = "/sys/bus/pci/devices/0000:08:00.0";
    host.file(&format!("{disk}/class"), "0x010802\n");
    host.file(&format!("{disk}/msi_irqs/60"), "msix\n");
    let controller = "/sys/devices/pci0000:00/0000:00:14.0";
    let usb = format!("{controller}/usb1/1-1/1-1:1.0");
    host.file(&format!("{controller}/msi_irqs/64"), "msi\n");
    host.file(&format!("{usb}/net/usb0/mtu"), "1500\n");
    host.edit(|state| {
        let links = [
            ("/sys/class/net/usb0".to_owned(), format!("{usb}/net/usb0")),
            (format!("{usb}/net/usb0/device"), usb.clone()),
        ];
        state.links.extend(links);
        state.threads.get_mut(&705).unwrap().scheduling = Scheduling::fifo(90, 0);
    });
    host
}

#[test]
fn every_method_raises_the_interrupts_of_disks_above_what_tenants_keep_busy() {
    let ours = |method: &Method| ![Method::Tuned, Method::Vanilla].contains(method);
    for method in Method::of_hosts().filter(ours) {
        let (host, directory) = (host_with_devices(), super::scenario::directory());
        let before = host.state();
        let control = control(&host, &directory);
        control.apply(&paper_target(), method).unwrap();
        let state = host.state();
        let housekeeping = Priorities::default().housekeeping;
        for (action, _, tid, is_raised) in INTERRUPTS {
            let expected = if is_raised {
                Scheduling::fifo(housekeeping, 0)
            } else {
                before.threads[&tid].scheduling
            };
            assert_eq!(
                state.threads[&tid].scheduling, expected,
                "{method} {action}"
            );
        }
        // The other NIC's threads keep theirs.
        assert_eq!(state.threads[&44].scheduling, FIFO_50);
        control.undo().unwrap();
        assert_eq!(kept(host.state()), kept(before.clone()));
        let target = Target {
            keep_housekeeping: true,
            ..paper_target()
        };
        control.apply(&target, method).unwrap();
        assert_eq!(host.state().threads[&700].scheduling, FIFO_50, "{method}");
        control.undo().unwrap();
    }
}

#[test]
fn a_file_that_ranks_vcpus_ranks_rcu_and_timers_above_them() {
    let class = "[class.c]\nvhost = 60\nvcpu = 40\n[[vm]]\nname = \"rt\"\nclass = \"c\"\n";
    let fifo = |priority| Some(ThreadPriority::Fifo(priority));
    let normal = Some(ThreadPriority::Normal);
    for (net, expected) in [
        ("", [fifo(61); 3]),
        ("rcu = 3", [fifo(3), fifo(61), fifo(61)]),
        ("rcu = 90\ntimers = 39", [fifo(90), fifo(39), fifo(61)]),
        ("device_irq = 39", [fifo(61), fifo(61), fifo(39)]),
        (
            "rcu = \"normal\"\ntimers = \"normal\"\ndevice_irq = \"normal\"",
            [normal; 3],
        ),
    ] {
        let read = profile(&format!("[kernel]\n{net}\n{class}")).softirqs;
        assert_eq!([read.rcu, read.timers, read.device_irq], expected, "{net}");
    }
    for (net, told) in [
        ("rcu = 50", "use 61 or more"),
        ("rcu = 60", "use 61 or more"),
        ("timers = 40", "use 61 or more"),
        ("device_irq = 40", "use 61 or more"),
        ("ksoftirqd = 61", "comes last"),
    ] {
        let text = format!("[kernel]\n{net}\n{class}");
        let error = file::parse("steadyvm.toml", &text).unwrap_err();
        assert!(error.to_string().contains(told), "{net}: {error}");
    }
    // Without VMs that have ranks there is nothing to be above.
    let read = profile("[net]\nbudget_packets = 64\n").softirqs;
    assert_eq!([read.rcu, read.timers, read.device_irq], [None; 3]);
}
