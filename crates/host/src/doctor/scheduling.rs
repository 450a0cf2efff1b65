//! Scheduling and memory: cgroups, RT throttling, background work.

use super::check::{Check, check, text};
use crate::parse;
use crate::settings::Machine;
use crate::settings::fair_server;
use crate::settings::lockdown::advice_on_debugfs;

pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    vec![
        cgroups(machine),
        throttling(machine),
        fair_servers(machine),
        irqbalance(machine),
        swap(machine),
        switch(
            machine,
            "/proc/sys/kernel/numa_balancing",
            check(
                "memory.numa-balancing",
                "NUMA balancing",
                "It unmaps pages of running VMs to see who uses them; each access is a fault.",
            ),
            "sysctl kernel.numa_balancing=0",
        ),
        switch(
            machine,
            "/sys/kernel/mm/ksm/run",
            check(
                "memory.ksm",
                "same-page merging",
                "It takes CPU time, and a write to a merged page is a fault in the VM.",
            ),
            "echo 2 > /sys/kernel/mm/ksm/run",
        ),
        huge_pages(machine),
        switch(
            machine,
            "/proc/sys/kernel/watchdog",
            check(
                "scheduling.watchdog",
                "lockup watchdog",
                "It interrupts every CPU every few seconds, at the highest priority.",
            ),
            "sysctl kernel.watchdog=0, or keep the dedicated CPU out of kernel.watchdog_cpumask",
        ),
    ]
}

fn cgroups(machine: &Machine) -> Check {
    let path = "/sys/fs/cgroup/cgroup.controllers";
    let check = check(
        "scheduling.cgroups",
        "cgroup version",
        "Weights and bandwidth of VMs are set per cgroup, version 2. The methods of this version \
         set threads, and need no cgroup.",
    );
    match text(machine, path) {
        Some(controllers) if controllers.split(' ').any(|name| name == "cpuset") => {
            check.ok(format!("version 2; {path}: {controllers}"))
        }
        Some(controllers) => check.warn(
            format!("version 2 without the controller cpuset; {path}: {controllers}"),
            "unmount cgroup version 1, or use a kernel with CONFIG_CPUSETS=y",
        ),
        None if machine.tree.exists("/sys/fs/cgroup") => check.warn(
            format!("{path} does not exist: version 1, or a mixture"),
            "boot with systemd.unified_cgroup_hierarchy=1, or mount cgroup2 on /sys/fs/cgroup",
        ),
        None => check.unknown("/sys/fs/cgroup does not exist", "mount cgroup2 there"),
    }
}

fn throttling(machine: &Machine) -> Check {
    let path = "/proc/sys/kernel/sched_rt_runtime_us";
    let check = check(
        "scheduling.rt-throttling",
        "RT throttling",
        "Before 6.12, RT threads that use more than their share of a second are stopped for the \
         rest of it; from 6.12 on, a server gives normal threads 5% of a CPU instead.",
    );
    let Some(value) = text(machine, path) else {
        return check.unknown(format!("{path} cannot be read"), "");
    };
    let release = machine.kernel_release().unwrap_or_default();
    let has_server = parse::kernel_version(&release).is_some_and(|version| version >= (6, 12));
    match (value.as_str(), has_server) {
        (_, true) => check.ok(format!(
            "{path} is {value}; kernel {release} has the fair server"
        )),
        ("-1", false) => check.warn(
            format!("{path} is -1: a runaway RT thread takes its CPU for ever"),
            "keep it only if every RT VM is trusted",
        ),
        (_, false) => check.warn(
            format!("{path} is {value}"),
            "keep RT VCPUs below that share, or apply with --rt-throttling-off",
        ),
    }
}

fn fair_servers(machine: &Machine) -> Check {
    let check = check(
        "scheduling.fair-server",
        "fair server",
        "From 6.12 on a server of each CPU runs normal threads before every FIFO thread, up to 50 ms \
         at a time: a delay that no priority helps against.",
    );
    let release = machine.kernel_release().unwrap_or_default();
    if parse::kernel_version(&release).is_none_or(|version| version < (6, 12)) {
        return check.ok(format!("kernel {release} has none"));
    }
    let cpus = machine.online().unwrap_or_default();
    let servers: Result<Vec<_>, _> = cpus
        .iter()
        .map(|cpu| fair_server::read(machine, cpu).map(|server| (server.runtime_ns, cpu, server)))
        .collect();
    let longest = match servers {
        Ok(servers) => servers
            .into_iter()
            .max_by_key(|(runtime_ns, ..)| *runtime_ns),
        Err(error) => {
            let path = fair_server::file(0, "runtime");
            return check.unknown(
                format!("{path}: {error}"),
                &advice_on_debugfs(machine, &error),
            );
        }
    };
    match longest {
        Some((runtime_ns, cpu, server)) if runtime_ns > fair_server::LONGEST_PIECE_NS => check
            .warn(
                format!("{} is {server}", fair_server::file(cpu, "{runtime,period}")),
                "steadyvm apply gives the same share in pieces of 1 ms while a method is in force",
            ),
        Some((_, _, server)) => check.ok(format!("at most {server}")),
        None => check.unknown("no CPU is known to be online", ""),
    }
}

fn irqbalance(machine: &Machine) -> Check {
    let check = check(
        "scheduling.irqbalance",
        "irqbalance",
        "It moves interrupts every few seconds, also back to a dedicated CPU.",
    );
    match machine.all_threads() {
        Err(error) => check.unknown(error.to_string(), ""),
        Ok(threads) => match threads.iter().find(|thread| thread.id.comm == "irqbalance") {
            Some(thread) => check.warn(
                format!("/proc/{} is irqbalance", thread.id.pid),
                "systemctl disable --now irqbalance",
            ),
            None => check.ok("no process in /proc has that name"),
        },
    }
}

fn huge_pages(machine: &Machine) -> Check {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let check = check(
        "memory.huge-pages",
        "transparent huge pages",
        "With `always`, khugepaged copies pages of running VMs together, which stop meanwhile.",
    );
    match text(machine, path) {
        Some(value) if value.contains("[always]") => check.warn(
            format!("{path} is {value}"),
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        Some(value) => check.ok(format!("{path} is {value}")),
        None => check.ok(format!("{path} does not exist")),
    }
}

/// A file whose 0 (or absence) is best.
fn switch(machine: &Machine, path: &str, check: Check, fix: &str) -> Check {
    match text(machine, path) {
        Some(value) if value == "0" || (value == "2" && path.ends_with("ksm/run")) => {
            check.ok(format!("{path} is {value}"))
        }
        Some(value) => check.warn(format!("{path} is {value}"), fix),
        None => check.ok(format!("{path} does not exist")),
    }
}

fn swap(machine: &Machine) -> Check {
    let path = "/proc/swaps";
    let check = check(
        "memory.swap",
        "swap",
        "A page of a VM that was swapped out is read from the disk when the VM needs it.",
    );
    let Some(table) = text(machine, path) else {
        return check.ok(format!("{path} does not exist"));
    };
    // The first line is the heading.
    let areas = table.lines().skip(1);
    let areas: Vec<&str> = areas
        .filter_map(|line| line.split_ascii_whitespace().next())
        .collect();
    if areas.is_empty() {
        return check.ok(format!("{path} names none"));
    }
    check.warn(
        format!("{path}: {}", areas.join(", ")),
        "lock the RT VM's memory (libvirt: <memoryBacking><locked/>; QEMU: -overcommit \
         mem-lock=on), or swapoff -a",
    )
}
