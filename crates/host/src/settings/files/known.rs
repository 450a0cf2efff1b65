//! Files by name, where what sets them and what may be undone must agree.

use super::form::Form;

/// IRQ threads with this priority or more put their NAPIs on the RT level; 0: none does.
pub(crate) const PRIORITY: &str = "/proc/sys/net/core/rtnet_prio";

/// Packets of one poll, a number a level, the lowest level first.
pub(crate) const QUANTUM: &str = "/proc/sys/net/core/rtnet_quantum";

/// The lowest mark of an XDP program that puts a packet on the RT level; 0: marks count for nothing.
pub(crate) const XDP_PRIORITY: &str = "/proc/sys/net/core/rtnet_xdp_prio";

/// The rank of the threads `rx_level/CPU`; 0: that of the interrupt threads that they serve.
pub(crate) const THREAD_PRIORITY: &str = "/proc/sys/net/core/rtnet_thread_prio";

/// The CPU masks of workqueues: realtime/tuned.conf, `[sysfs]`. The one of all of them is among
/// what a dedicated CPU sets.
pub(crate) const WORKQUEUES: &str = "/sys/devices/virtual/workqueue";

/// What tuned's profile sets: files and values.
pub(crate) const FILES: [(&str, Form, &str); 13] = [
    // latency-performance/tuned.conf, [sysctl]
    ("/proc/sys/vm/dirty_ratio", Form::Text, "10"),
    ("/proc/sys/vm/dirty_background_ratio", Form::Text, "3"),
    ("/proc/sys/vm/swappiness", Form::Text, "10"),
    // network-latency/tuned.conf, [sysctl] and [vm]
    ("/proc/sys/net/core/busy_read", Form::Text, "50"),
    ("/proc/sys/net/core/busy_poll", Form::Text, "50"),
    ("/proc/sys/net/ipv4/tcp_fastopen", Form::Text, "3"),
    ("/proc/sys/kernel/numa_balancing", Form::Text, "0"),
    (
        "/sys/kernel/mm/transparent_hugepage/enabled",
        Form::Choice,
        "never",
    ),
    // realtime/tuned.conf, [sysctl]; sched_rt_runtime_us is switched off as for everybody who asks for it.
    ("/proc/sys/kernel/hung_task_timeout_secs", Form::Text, "600"),
    ("/proc/sys/kernel/nmi_watchdog", Form::Text, "0"),
    ("/proc/sys/vm/stat_interval", Form::Text, "10"),
    ("/proc/sys/kernel/timer_migration", Form::Text, "0"),
    // realtime-virtual-host/tuned.conf, [sysfs]
    ("/sys/kernel/mm/ksm/run", Form::Text, "2"),
];
