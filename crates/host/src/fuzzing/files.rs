//! A host whose files in `/proc` and `/sys` say anything.

use std::sync::Arc;

use super::Source;
use crate::control::HostControl;
use crate::cpu_set::CpuSet;
use crate::discover::{Processes, WantedVm, all_vms, find_vm, nic, vm};
use crate::engine::{Engine, Snapshot};
use crate::fake::paper::paper_host;
use crate::method::{Method, RtVm, Switches, Target};
use crate::printable::printable;
use crate::profile::file;
use crate::settings::{ChangeOf, File, Form};
use crate::{doctor, parse};

/// Files of the paper's host that are replaced, by what reads them.
const FILES: [&str; 40] = [
    "/proc/interrupts",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/modules",
    "/proc/swaps",
    "/proc/uptime",
    "/proc/100/cgroup",
    "/proc/100/cmdline",
    "/proc/100/fdinfo/9",
    "/proc/100/fdinfo/10",
    "/proc/100/status",
    "/proc/100/task/100/stat",
    "/proc/100/task/101/stat",
    "/proc/100/task/109/stat",
    "/proc/13/task/13/stat",
    "/proc/irq/30/smp_affinity_list",
    "/proc/irq/30/effective_affinity_list",
    "/proc/irq/default_smp_affinity",
    "/proc/net/route",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/random/boot_id",
    "/proc/sys/kernel/sched_rt_runtime_us",
    "/proc/sys/kernel/version",
    "/proc/sys/net/core/netdev_budget",
    "/proc/sys/net/core/rtnet_prio",
    "/proc/sys/net/core/rtnet_quantum",
    "/sys/class/net/tap-rt/tun_flags",
    "/sys/class/net/tap-rt/ifindex",
    "/sys/devices/pci0000:00/0000:00:30.0/net/rt0/ifindex",
    "/sys/devices/pci0000:00/0000:00:30.0/net/rt0/queues/rx-0/rps_cpus",
    "/sys/devices/pci0000:00/0000:00:30.0/net/rt0/threaded",
    "/sys/devices/system/cpu/isolated",
    "/sys/devices/system/cpu/nohz_full",
    "/sys/devices/system/cpu/online",
    "/sys/devices/virtual/workqueue/cpumask",
    "/sys/fs/cgroup/cpuset.cpus.effective",
    "/sys/kernel/debug/sched/fair_server/cpu0/runtime",
    "/sys/kernel/realtime",
];

/// What reads text alone.
fn text(text: &str) {
    let stat = parse::stat(text);
    assert!(stat.is_none_or(|stat| text.contains(&stat.comm)));
    let interrupts = parse::interrupts(text);
    assert!(interrupts.len() <= text.lines().count());
    parse::irq_of_thread(text);
    parse::vcpu_of_thread(text);
    parse::kernel_version(text);
    parse::uptime_ticks(text);
    let shown = printable(text);
    assert!(
        !shown.chars().any(char::is_control),
        "{shown:?} reaches a terminal"
    );
    if let Ok(set) = text.parse::<CpuSet>() {
        assert_eq!(
            set.to_string().parse(),
            Ok(set.clone()),
            "a list comes back"
        );
        assert_eq!(set.len(), set.iter().count());
        assert_eq!(
            CpuSet::from_mask(&set.to_mask()),
            Ok(set),
            "a mask comes back"
        );
    }
    if let Ok(set) = CpuSet::from_mask(text) {
        assert_eq!(CpuSet::from_mask(&set.to_mask()), Ok(set));
    }
    if let Ok(switches) = text.parse::<Switches>() {
        let again = switches.to_string().parse::<Switches>();
        assert_eq!(again.ok(), Some(switches), "a method's name comes back");
    }
    let _ = text.parse::<WantedVm>();
    let read = steadyvm_config::File::parse("steadyvm.toml", text);
    if let Some(profile) = read.ok().and_then(|read| file::of(&read).ok()) {
        let json = serde_json::to_string(&profile).expect("a profile is JSON");
        assert_eq!(
            serde_json::from_str(&json).ok(),
            Some(profile),
            "a journal has it"
        );
    }
}

/// What reads a host's files changes nothing, whatever they say.
///
/// # Panics
/// Where a reading changes the host, or what was read does not come back.
pub fn files(bytes: &[u8]) {
    let mut source = Source(bytes);
    let host = paper_host(2);
    for _ in 0..8 {
        if source.0.is_empty() {
            break;
        }
        let path = FILES[source.below(FILES.len())];
        let content = String::from_utf8_lossy(source.text());
        text(&content);
        host.file(path, &content);
    }
    let before = host.state();
    let machine = host.machine();
    let report = doctor::examine(&machine);
    let lines = report
        .checks
        .iter()
        .flat_map(|check| [&check.found, &check.fix, &check.title]);
    for line in lines {
        assert!(
            !line.chars().any(char::is_control),
            "{line:?} reaches a terminal"
        );
    }
    let threads = machine.all_threads().unwrap_or_default();
    for (_, found) in all_vms(&machine, &Processes::of(&threads)) {
        let again = vm(&machine, &threads, found.pid);
        assert!(again.is_ok(), "a VM that was found is one");
    }
    for name in ["rt", "bulk"] {
        let selector = crate::discover::VmSelector::Name(name.into());
        let _ = find_vm(
            &machine,
            &Processes::of(&threads),
            &selector,
            &[],
            &mut Vec::new(),
        );
    }
    let _ = nic(&machine, &threads, "rt0");
    let _ = Snapshot::take(&machine);
    let target = Target {
        rt_nics: vec!["rt0".into()],
        rt_vms: vec![RtVm {
            pid: 100,
            rt_vcpus: vec![1],
        }],
        ..Target::default()
    };
    // The storage is not reached: plans only read.
    let storage = crate::engine::Directory::new("/proc/steadyvm-is-not-here");
    let control = HostControl::of(Engine::with_storage(machine.clone(), Arc::new(storage)));
    for method in Method::of_hosts() {
        let Ok(plan) = control.plan(&target, method) else {
            continue;
        };
        for step in &plan.steps {
            let text = serde_json::to_string(step).expect("a step is JSON");
            let read: crate::planner::Step =
                serde_json::from_str(&text).expect("a step that undo reads");
            assert_eq!(read, *step);
        }
    }
    let change = ChangeOf {
        setting: File::new(&machine, "/proc/sys/net/core/netdev_budget", Form::CpuMask),
        old: String::new(),
        new: "ff".into(),
    };
    let _ = crate::settings::Change::from(change).read(&machine);
    assert!(host.state() == before, "a reading changed the host");
}
