//! The host of the paper: an RT NIC, a non-RT NIC, an RT VM with two VCPUs, a non-RT VM.

use crate::parse::{PF_KTHREAD, PF_NO_SETAFFINITY, PF_USER_WORKER};
use crate::settings::fake::FakeHost;
use crate::settings::files::known::{THREAD_PRIORITY, XDP_PRIORITY};
use crate::settings::threads::{Policy, Scheduling};

/// Of IRQ threads, unless somebody changes it.
pub const FIFO_50: Scheduling = Scheduling {
    policy: Policy::Fifo,
    priority: 50,
    nice: 0,
    flags: 0,
    runtime_ns: 0,
    deadline_ns: 0,
    period_ns: 0,
};

/// An IRQ and its thread.
pub fn threaded_irq(host: &FakeHost, irq: u32, tid: u32, action: &str, cpu: usize) {
    host.irq(irq, action, cpu);
    let name: String = format!("irq/{irq}-{action}").chars().take(15).collect();
    host.thread(tid, tid, &name, PF_KTHREAD);
    host.edit(|state| {
        if let Some(thread) = state.threads.get_mut(&tid) {
            thread.scheduling = FIFO_50;
            thread.parent = 2;
        }
    });
}

/// A NIC on PCI with two queues: `irq` and `irq + 1`, threads `tid` and `tid + 1`.
pub fn nic(host: &FakeHost, name: &str, irq: u32, tid: u32) {
    let device = format!("/sys/devices/pci0000:00/0000:00:{irq:02}.0");
    host.file(&format!("{device}/net/{name}/mtu"), "1500\n");
    host.file(&format!("{device}/net/{name}/ifindex"), &format!("{irq}\n"));
    host.writable_file(&format!("{device}/net/{name}/queues/rx-0/rps_cpus"), "0\n");
    host.file(&format!("{device}/net/{name}/queues/rx-1/rps_cpus"), "0\n");
    host.writable_file(&format!("{device}/net/{name}/threaded"), "0\n");
    host.edit(|state| {
        state.links.insert(
            format!("/sys/class/net/{name}"),
            format!("{device}/net/{name}"),
        );
        state
            .links
            .insert(format!("{device}/net/{name}/device"), device.clone());
    });
    for queue in 0..2 {
        host.file(&format!("{device}/msi_irqs/{}", irq + queue), "msix\n");
        let action = format!("{name}-TxRx-{queue}");
        threaded_irq(host, irq + queue, tid + queue, &action, queue as usize % 2);
    }
}

/// The host of the paper: an RT NIC, a non-RT NIC, an RT VM with two VCPUs, a non-RT VM.
pub fn paper_host(cpus: usize) -> FakeHost {
    let host = FakeHost::new(cpus);
    host.thread(1, 1, "init", 0);
    host.thread(2, 2, "kthreadd", PF_KTHREAD);
    host.thread(12, 12, "ksoftirqd/0", PF_KTHREAD | PF_NO_SETAFFINITY);
    host.thread(13, 13, "rcu_preempt", PF_KTHREAD);
    nic(&host, "rt0", 30, 40);
    nic(&host, "bulk0", 34, 44);
    host.irq(1, "i8042", 0);
    host.writable_file("/sys/devices/virtual/workqueue/cpumask", "ff\n");
    host.writable_file("/proc/irq/default_smp_affinity", "ff\n");
    host.writable_file("/proc/sys/kernel/sched_rt_runtime_us", "950000\n");
    host.writable_file("/proc/sys/net/core/netdev_budget", "300\n");
    host.writable_file("/proc/sys/net/core/netdev_budget_usecs", "2000\n");
    host.writable_file("/proc/sys/net/core/rtnet_prio", "0\n");
    host.writable_file("/proc/sys/net/core/rtnet_quantum", "64\t64\n");
    host.writable_file(THREAD_PRIORITY, "0\n");
    host.writable_file(XDP_PRIORITY, "0\n");
    host.fair_servers();
    host.edit(|state| {
        state.napi_threads.insert("rt0".into(), vec![60, 61]);
        state.napi_threads.insert("bulk0".into(), vec![64, 65]);
    });
    for (pid, vcpus, name) in [(100, 2, "rt"), (200, 1, "bulk")] {
        let command = format!("qemu-system-x86_64\0-name\0guest={name},debug-threads=on\0");
        host.file(&format!("/proc/{pid}/cmdline"), &command);
        host.file(
            &format!("/proc/{pid}/fdinfo/9"),
            &format!("pos:\t0\niff:\ttap-{name}\n"),
        );
        host.file(&format!("/sys/class/net/tap-{name}/mtu"), "1500\n");
        let index = format!("{}\n", 1000 + pid);
        host.file(&format!("/sys/class/net/tap-{name}/ifindex"), &index);
        host.file(&format!("/sys/class/net/tap-{name}/tun_flags"), "0x5002\n");
        host.thread(pid, pid, "qemu-system-x86", 0);
        for vcpu in 0..vcpus {
            host.thread(pid, pid + 1 + vcpu, &format!("CPU {vcpu}/KVM"), 0);
        }
        host.thread(pid, pid + 9, &format!("vhost-{pid}"), PF_USER_WORKER);
        host.kvm_vm(pid, vcpus);
    }
    host
}
