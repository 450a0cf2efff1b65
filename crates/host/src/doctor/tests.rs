//! Each check on fake hosts: good, and what makes it warn or fail.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{Report, Status, examine};
use crate::fake::FakeHost;
use crate::method::Method;
use crate::parse::{PF_KTHREAD, PF_USER_WORKER};
use crate::tests::scenario;

mod quotas;

/// A host on which nothing is to be said.
fn good_host() -> FakeHost {
    let host = FakeHost::new(2);
    host.thread(1, 1, "init", 0);
    scenario::nic(&host, "rt0", 30, 40);
    scenario::nic(&host, "bulk0", 34, 44);
    for nic in [
        "sys/devices/pci0000:00/0000:00:30.0/net/rt0",
        "sys/devices/pci0000:00/0000:00:34.0/net/bulk0",
    ] {
        host.file(&format!("/{nic}/threaded"), "1\n");
    }
    host.writable_file("/proc/sys/net/core/rtnet_prio", "0\n");
    host.writable_file("/proc/sys/net/core/rtnet_quantum", "64\t64\n");
    host.writable_file("/dev/kvm", "");
    host.file("/dev/vhost-net", "");
    host.file("/sys/module/kvm_intel/parameters/nested", "Y\n");
    host.file(
        "/proc/cpuinfo",
        "vendor_id : GenuineIntel\nflags : fpu vmx constant_tsc\n",
    );
    host.file("/proc/sys/kernel/osrelease", "6.18.2-rt\n");
    host.file(
        "/boot/config-6.18.2-rt",
        "CONFIG_PREEMPT_RT=y\n# CONFIG_PREEMPT_RT_NEEDS_BH_LOCK is not set\n",
    );
    host.file(
        "/proc/cmdline",
        "root=/dev/sda1 nohz_full=1 rcu_nocbs=1 idle=poll mitigations=auto\n",
    );
    for file in ["isolated", "nohz_full"] {
        host.file(&format!("/sys/devices/system/cpu/{file}"), "1\n");
    }
    host.file("/sys/devices/system/cpu/present", "0-1\n");
    host.file("/sys/module/kvm/parameters/halt_poll_ns", "0\n");
    let kvm = "/sys/module/kvm/parameters";
    host.file(&format!("{kvm}/lapic_timer_advance"), "Y\n");
    host.file(&format!("{kvm}/nx_huge_pages"), "N\n");
    host.file(&format!("{kvm}/nx_huge_pages_recovery_ratio"), "60\n");
    host.file("/proc/swaps", "Filename Type Size Used Priority\n");
    host.file("/sys/kernel/btf/vmlinux", "");
    host.lock_down("none");
    host.file("/sys/kernel/sched_ext/state", "disabled\n");
    host.file("/sys/devices/system/cpu/smt/active", "0\n");
    for cpu in 0..2 {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
        host.file(&path, "performance\n");
    }
    host.file(
        "/sys/devices/system/cpu/cpuidle/current_driver",
        "intel_idle\n",
    );
    for (state, latency, disable) in [(0, 0, 0), (1, 2, 0), (2, 133, 1)] {
        let path = format!("/sys/devices/system/cpu/cpu0/cpuidle/state{state}");
        host.file(&format!("{path}/name"), &format!("C{state}\n"));
        host.file(&format!("{path}/latency"), &format!("{latency}\n"));
        host.file(&format!("{path}/disable"), &format!("{disable}\n"));
    }
    host.file(
        "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        "tsc\n",
    );
    host.file(
        "/sys/fs/cgroup/cgroup.controllers",
        "cpuset cpu io memory pids\n",
    );
    host.file("/proc/sys/kernel/sched_rt_runtime_us", "950000\n");
    host.fair_servers();
    host.edit(scenario::bound_fair_servers);
    host.file("/proc/sys/kernel/numa_balancing", "0\n");
    host.file("/sys/kernel/mm/ksm/run", "0\n");
    host.file("/proc/sys/kernel/watchdog", "0\n");
    host.file(
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "always [madvise] never\n",
    );
    host
}

fn status(report: &Report, id: &str) -> Status {
    report
        .checks
        .iter()
        .find(|check| check.id == id)
        .unwrap_or_else(|| panic!("{id}"))
        .status
}

fn remove(host: &FakeHost, path: &str) {
    host.edit(|state| state.files.retain(|name, _| !name.starts_with(path)));
}

#[test]
fn a_good_host_holds_every_method() {
    let report = examine(&good_host().machine());
    for check in &report.checks {
        // What no file says.
        let expected = match check.id.as_str() {
            "cpu.smi" => Status::Unknown,
            _ => Status::Ok,
        };
        assert_eq!(check.status, expected, "{check:?}");
        assert!(!check.found.is_empty() && !check.why.is_empty() && !check.group.is_empty());
    }
    assert!(report.methods.iter().all(|verdict| verdict.possible));
    assert_eq!(report.kernel, "6.18.2-rt");
}

/// A check, the verdict that is expected, and the file that causes it: its content, or none.
const FINDINGS: &[(&str, Status, &str, Option<&str>)] = &[
    ("kvm.device", Status::Bad, "/dev/kvm", None),
    ("kvm.vendor", Status::Warn, "/sys/module/kvm_intel", None),
    (
        "kvm.nested",
        Status::Warn,
        "/sys/module/kvm_intel/parameters/nested",
        Some("N"),
    ),
    ("kvm.nested", Status::Unknown, "/sys/module/kvm_intel", None),
    ("kvm.vhost-net", Status::Warn, "/dev/vhost-net", None),
    (
        "kernel.preempt-rt",
        Status::Bad,
        "/sys/kernel/realtime",
        Some("0"),
    ),
    (
        "kernel.bh-lock",
        Status::Warn,
        "/sys/kernel/realtime",
        Some("0"),
    ),
    (
        "scheduling.rt-groups",
        Status::Warn,
        "/boot/config-6.18.2-rt",
        Some("CONFIG_RT_GROUP_SCHED=y"),
    ),
    (
        "scheduling.rt-groups",
        Status::Unknown,
        "/boot/config-6.18.2-rt",
        None,
    ),
    (
        "kvm.halt-poll",
        Status::Warn,
        "/sys/module/kvm/parameters/halt_poll_ns",
        Some("200000"),
    ),
    (
        "kvm.timer-advance",
        Status::Warn,
        "/sys/module/kvm/parameters/lapic_timer_advance",
        Some("N"),
    ),
    (
        "kvm.timer-advance",
        Status::Unknown,
        "/sys/module/kvm/parameters/lapic_timer_advance",
        None,
    ),
    (
        "kvm.huge-page-recovery",
        Status::Warn,
        "/sys/module/kvm/parameters/nx_huge_pages",
        Some("Y"),
    ),
    (
        "memory.swap",
        Status::Warn,
        "/proc/swaps",
        Some("Filename Type\n/dev/sda2 partition"),
    ),
    // Each of the three must name the CPUs.
    (
        "kernel.isolation",
        Status::Warn,
        "/sys/devices/system/cpu/nohz_full",
        Some("(null)"),
    ),
    (
        "kernel.isolation",
        Status::Warn,
        "/sys/devices/system/cpu/isolated",
        Some("0-1"),
    ),
    (
        "kernel.mitigations",
        Status::Warn,
        "/proc/cmdline",
        Some("nopti spectre_v2=off"),
    ),
    (
        "cpu.c-states",
        Status::Warn,
        "/sys/devices/system/cpu/cpu1/cpuidle/state2/latency",
        Some("133"),
    ),
    (
        "kernel.bh-lock",
        Status::Unknown,
        "/proc/sys/kernel/osrelease",
        Some("strange"),
    ),
    ("kernel.isolation", Status::Unknown, "/proc/cmdline", None),
    (
        "kernel.mitigations",
        Status::Warn,
        "/proc/cmdline",
        Some("mitigations=off"),
    ),
    ("kernel.btf", Status::Warn, "/sys/kernel/btf", None),
    (
        "kernel.sched-ext",
        Status::Warn,
        "/sys/kernel/sched_ext",
        None,
    ),
    (
        "kernel.sched-ext",
        Status::Warn,
        "/sys/kernel/sched_ext/state",
        Some("enabled"),
    ),
    (
        "cpu.smt",
        Status::Warn,
        "/sys/devices/system/cpu/smt/active",
        Some("1"),
    ),
    (
        "cpu.smt",
        Status::Unknown,
        "/sys/devices/system/cpu/smt/active",
        None,
    ),
    (
        "cpu.governor",
        Status::Warn,
        "/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
        Some("powersave"),
    ),
    (
        "cpu.c-states",
        Status::Warn,
        "/sys/devices/system/cpu/cpu0/cpuidle/state2/disable",
        Some("0"),
    ),
    (
        "cpu.clocksource",
        Status::Warn,
        "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        Some("hpet"),
    ),
    (
        "cpu.constant-tsc",
        Status::Warn,
        "/proc/cpuinfo",
        Some("flags : fpu"),
    ),
    (
        "cpu.constant-tsc",
        Status::Unknown,
        "/proc/cpuinfo",
        Some("Features : fp"),
    ),
    (
        "network.threaded-napi.bulk0",
        Status::Warn,
        "THREADED",
        Some("0"),
    ),
    (
        "network.threaded-napi.bulk0",
        Status::Unknown,
        "THREADED",
        None,
    ),
    (
        "scheduling.cgroups",
        Status::Warn,
        "/sys/fs/cgroup/cgroup.controllers",
        Some("cpu"),
    ),
    (
        "scheduling.cgroups",
        Status::Unknown,
        "/sys/fs/cgroup",
        None,
    ),
    (
        "scheduling.rt-throttling",
        Status::Unknown,
        "/proc/sys/kernel/sched_rt_runtime_us",
        None,
    ),
    (
        "kernel.lockdown",
        Status::Unknown,
        "/sys/kernel/security/lockdown",
        None,
    ),
    (
        "scheduling.fair-server",
        Status::Unknown,
        "/sys/kernel/debug/sched/fair_server",
        None,
    ),
    (
        "scheduling.fair-server",
        Status::Warn,
        "/sys/kernel/debug/sched/fair_server/cpu1/runtime",
        Some("50000000"),
    ),
    (
        "memory.numa-balancing",
        Status::Warn,
        "/proc/sys/kernel/numa_balancing",
        Some("1"),
    ),
    (
        "memory.ksm",
        Status::Warn,
        "/sys/kernel/mm/ksm/run",
        Some("1"),
    ),
    (
        "scheduling.watchdog",
        Status::Warn,
        "/proc/sys/kernel/watchdog",
        Some("1"),
    ),
    (
        "memory.huge-pages",
        Status::Warn,
        "/sys/kernel/mm/transparent_hugepage/enabled",
        Some("[always] madvise never"),
    ),
];

#[test]
fn each_finding_is_seen() {
    let cpu = "/sys/devices/system/cpu";
    let net = "/sys/devices/pci0000:00/0000:00:34.0/net/bulk0";
    for &(id, expected, path, content) in FINDINGS {
        let host = good_host();
        let path = if path == "THREADED" {
            format!("{net}/threaded")
        } else {
            path.to_owned()
        };
        match content {
            Some(content) => host.file(&path, content),
            None => remove(&host, &path),
        }
        let report = examine(&host.machine());
        assert_eq!(
            status(&report, id),
            expected,
            "{id} with {path} {content:?}"
        );
        let check = report.checks.iter().find(|check| check.id == id).unwrap();
        assert!(
            expected == Status::Unknown || !check.fix.is_empty(),
            "{id} says what to do"
        );
    }
    let host = good_host();
    remove(&host, &format!("{cpu}/cpu0/cpufreq"));
    remove(&host, &format!("{cpu}/cpu1/cpufreq"));
    assert_eq!(
        status(&examine(&host.machine()), "cpu.governor"),
        Status::Unknown
    );
}

#[test]
fn a_kvm_without_the_processors_help_is_not_trusted() {
    let host = good_host();
    remove(&host, "/sys/module/kvm_intel");
    host.file("/sys/module/kvm_pvm/parameters/stats", "N");
    let report = examine(&host.machine());
    let check = report
        .checks
        .iter()
        .find(|check| check.id == "kvm.vendor")
        .unwrap();
    assert_eq!(check.status, Status::Warn);
    assert!(check.found.contains("kvm_pvm") && check.why.contains("proves nothing"));
}

#[test]
fn a_kvm_that_may_not_be_opened_is_a_warning() {
    let host = good_host();
    host.edit(|state| state.writable.remove("/dev/kvm"));
    assert_eq!(
        status(&examine(&host.machine()), "kvm.device"),
        Status::Warn
    );
}

#[test]
fn an_older_kernels_timer_advance_is_a_number() {
    let parameters = "/sys/module/kvm/parameters";
    for (value, expected) in [("-1", Status::Ok), ("0", Status::Warn)] {
        let host = good_host();
        remove(&host, &format!("{parameters}/lapic_timer_advance"));
        host.file(&format!("{parameters}/lapic_timer_advance_ns"), value);
        let report = examine(&host.machine());
        assert_eq!(status(&report, "kvm.timer-advance"), expected, "{value}");
    }
}

#[test]
fn huge_pages_that_stay_split_are_not_recovered() {
    let host = good_host();
    let parameters = "/sys/module/kvm/parameters";
    host.file(&format!("{parameters}/nx_huge_pages"), "Y");
    let ratio = format!("{parameters}/nx_huge_pages_recovery_ratio");
    host.file(&ratio, "0");
    let id = "kvm.huge-page-recovery";
    assert_eq!(status(&examine(&host.machine()), id), Status::Ok);
    remove(&host, &ratio);
    assert_eq!(status(&examine(&host.machine()), id), Status::Unknown);
}

/// A VCPU's quota, and one of a slice above: each is named once, whatever number of threads has it.
#[test]
fn a_quota_of_a_vms_thread_or_above_it_is_named() {
    let host = good_host();
    host.thread(900, 900, "qemu", 0);
    host.kvm_vm(900, 2);
    for (tid, vcpu) in [(901, 0), (902, 1)] {
        host.thread(900, tid, &format!("CPU {vcpu}/KVM"), 0);
        let path = format!("/proc/900/task/{tid}/cgroup");
        host.file(&path, &format!("0::/machine.slice/rt/vcpu{vcpu}\n"));
    }
    let quota = "scheduling.cpu-quota";
    let slice = "/sys/fs/cgroup/machine.slice";
    host.file(&format!("{slice}/cpu.max"), "max 100000\n");
    host.file(&format!("{slice}/rt/vcpu1/cpu.max"), "max 100000\n");
    // What others have is nothing of a VM's.
    host.file("/sys/fs/cgroup/user.slice/cpu.max", "1000 100000\n");
    assert_eq!(status(&examine(&host.machine()), quota), Status::Ok);

    host.file(&format!("{slice}/rt/vcpu1/cpu.max"), "50000 100000\n");
    host.file(&format!("{slice}/rt/cpu.max"), "90000 100000\n");
    let report = examine(&host.machine());
    assert_eq!(status(&report, quota), Status::Warn);
    let check = report.checks.iter().find(|check| check.id == quota);
    let found = &check.unwrap().found;
    assert_eq!(found.matches("cpu.max").count(), 2, "{found}");
    for said in ["/rt/vcpu1/cpu.max", "50000 100000", "/rt/cpu.max"] {
        assert!(found.contains(said), "{found}");
    }
}

#[test]
fn a_vm_with_a_core_scheduling_cookie_is_named() {
    let host = good_host();
    host.thread(900, 900, "qemu", 0);
    host.kvm_vm(900, 1);
    host.thread(900, 901, "CPU 0/KVM", 0);
    let id = "kernel.core-scheduling";
    assert_eq!(status(&examine(&host.machine()), id), Status::Ok);
    host.edit(|state| state.core_cookies = [(901, 7)].into());
    let report = examine(&host.machine());
    assert_eq!(status(&report, id), Status::Warn);
    let check = report.checks.iter().find(|check| check.id == id).unwrap();
    assert!(check.found.contains("thread 901"), "{}", check.found);
    assert!(check.why.contains("ext") && check.fix.contains("SMT"));
    // Nobody but root may ask: nothing is known then.
    host.edit(|state| state.hides_core_cookies = true);
    assert_eq!(status(&examine(&host.machine()), id), Status::Unknown);
}

fn found(report: &Report, id: &str) -> (Status, String) {
    let check = report.checks.iter().find(|check| check.id == id).unwrap();
    (check.status, format!("{}; {}", check.found, check.fix))
}

#[test]
fn a_kernel_that_is_locked_down_is_named_with_secure_boot() {
    let host = good_host();
    host.lock_down("integrity");
    host.file(
        "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
        "\u{6}\0\0\0\u{1}",
    );
    let report = examine(&host.machine());
    let (status, said) = found(&report, "kernel.lockdown");
    assert_eq!(status, Status::Warn);
    for part in [
        "lockdown is integrity",
        "Secure Boot is on",
        "50 ms",
        "sign",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let (status, said) = found(&report, "scheduling.fair-server");
    assert_eq!(status, Status::Unknown);
    assert!(said.contains("lockdown is integrity"), "{said}");
    assert!(!said.contains("mount"), "{said}");
    host.lock_down("confidentiality");
    let report = examine(&host.machine());
    let (_, said) = found(&report, "kernel.lockdown");
    assert!(said.contains("tracing is refused"), "{said}");
    // Without the file only the error says it.
    remove(&host, "/sys/kernel/security");
    let report = examine(&host.machine());
    let (_, said) = found(&report, "scheduling.fair-server");
    assert!(
        said.contains("locked down") && said.contains("mount securityfs"),
        "{said}"
    );
    // A kernel without lockdown.
    let host = good_host();
    remove(&host, "/sys/kernel/security");
    host.file("/sys/kernel/security/lsm", "capability,yama");
    let (status, said) = found(&examine(&host.machine()), "kernel.lockdown");
    assert_eq!(status, Status::Ok, "{said}");
}

#[test]
fn throttling_depends_on_the_kernel() {
    for (value, release, expected) in [
        ("950000", "6.1.0", Status::Warn),
        ("-1", "6.1.0", Status::Warn),
        ("950000", "6.12.0", Status::Ok),
    ] {
        let host = good_host();
        host.file("/proc/sys/kernel/osrelease", release);
        host.file("/proc/sys/kernel/sched_rt_runtime_us", value);
        let report = examine(&host.machine());
        assert_eq!(
            status(&report, "scheduling.rt-throttling"),
            expected,
            "{value} {release}"
        );
    }
}

#[test]
fn nics_are_counted_and_must_be_up() {
    let host = good_host();
    host.edit(|state| state.links.remove("/sys/class/net/bulk0"));
    assert_eq!(
        status(&examine(&host.machine()), "network.nics"),
        Status::Warn
    );
    host.edit(|state| {
        state.irqs.clear();
    });
    assert_eq!(
        status(&examine(&host.machine()), "network.queues.rt0"),
        Status::Warn
    );
    host.edit(|state| state.links.remove("/sys/class/net/rt0"));
    let report = examine(&host.machine());
    assert_eq!(status(&report, "network.nics"), Status::Bad);
    assert!(!report.methods[1].possible);
}

#[test]
fn irqbalance_is_seen() {
    let host = good_host();
    host.thread(77, 77, "irqbalance", 0);
    assert_eq!(
        status(&examine(&host.machine()), "scheduling.irqbalance"),
        Status::Warn
    );
}

#[test]
fn the_configuration_inside_the_kernel_is_read() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed
        .write_all(b"CONFIG_PREEMPT_RT_NEEDS_BH_LOCK=y\n")
        .unwrap();
    let packed = packed.finish().unwrap();
    let directory = tempfile::tempdir().unwrap();
    for (path, content) in [
        ("proc/config.gz", packed.as_slice()),
        ("sys/kernel/realtime", b"1\n"),
        ("proc/sys/kernel/osrelease", b"6.18.0\n"),
    ] {
        let path = directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let machine = crate::settings::Machine {
        tree: std::sync::Arc::new(crate::RootedTree::new(directory.path())),
        ..good_host().machine()
    };
    let report = examine(&machine);
    let check = report
        .checks
        .iter()
        .find(|check| check.id == "kernel.bh-lock")
        .unwrap();
    let expected = "/proc/config.gz has CONFIG_PREEMPT_RT_NEEDS_BH_LOCK=y";
    assert!(check.found.contains(expected), "{}", check.found);
}

#[test]
fn methods_that_cannot_be_held_say_why() {
    let host = good_host();
    host.file("/sys/kernel/realtime", "0\n");
    host.file("/sys/devices/system/cpu/online", "0\n");
    let report = examine(&host.machine());
    let possible: Vec<(Method, bool, usize)> = report
        .methods
        .iter()
        .map(|verdict| (verdict.method, verdict.possible, verdict.reasons.len()))
        .collect();
    assert_eq!(
        possible,
        [
            (Method::Vanilla, true, 0),
            (Method::PreemptRt, false, 1),
            (Method::Dedicated, false, 2),
            (Method::RtPollList, false, 1),
            (Method::RtProfile, false, 1),
            (Method::StockProfile, true, 0),
            (Method::RtLevels, false, 1),
            (Method::Tuned, false, 1)
        ]
    );
}

#[test]
fn a_cards_functions_are_counted_by_whose_they_are() {
    let host = good_host();
    let found = |host: &FakeHost| {
        let report = examine(&host.machine());
        let mut checks = report.checks.into_iter();
        let check = checks.find(|check| check.id == "network.functions.bulk0");
        check.map(|check| (check.status, check.found)).unwrap()
    };
    let (status, text) = found(&host);
    assert!(
        status == Status::Ok && text.starts_with("it has none"),
        "{text}"
    );
    host.card_with_functions("bulk0", 34, 2);
    host.file("/sys/class/net/bulk0v1/flags", "0x1003\n");
    let (status, text) = found(&host);
    assert_eq!(status, Status::Ok);
    assert!(
        text.ends_with("2 made: 0 of VMs by steadyvm, 1 idle, 1 of others"),
        "{text}"
    );
    host.file("/sys/class/net/bulk0v0/flags", "0x1003\n");
    assert_eq!(found(&host).0, Status::Warn);
}

#[test]
fn an_empty_machine_is_examined_too() {
    let report = examine(&FakeHost::default().machine());
    assert!(report.checks.len() > 15);
    assert!(report.checks.iter().all(|check| !check.found.is_empty()));
}

#[test]
fn a_poll_list_that_nics_share_is_a_warning_on_every_version() {
    for (release, config) in [
        ("6.12.117-rt", ""),
        ("6.18.2-rt", "CONFIG_PREEMPT_RT_NEEDS_BH_LOCK=y"),
        ("7.3.4-rt", "# CONFIG_PREEMPT_RT_NEEDS_BH_LOCK is not set"),
    ] {
        let host = good_host();
        host.file("/proc/sys/kernel/osrelease", release);
        host.file(&format!("/boot/config-{release}"), config);
        let lock = || status(&examine(&host.machine()), "kernel.bh-lock");
        assert_eq!(lock(), Status::Ok, "{release}: in threads");
        for nic in ["30.0/net/rt0", "34.0/net/bulk0"] {
            host.file(
                &format!("/sys/devices/pci0000:00/0000:00:{nic}/threaded"),
                "0",
            );
        }
        assert_eq!(lock(), Status::Warn, "{release}");
    }
}

#[test]
fn c_states_are_each_cpus_and_wishes_bar_them() {
    let host = good_host();
    let cpu1 = "/sys/devices/system/cpu/cpu1";
    for (state, latency) in [(0, 0), (1, 2), (2, 170)] {
        let path = format!("{cpu1}/cpuidle/state{state}/latency");
        host.file(&path, &format!("{latency}\n"));
    }
    let states = || {
        let report = examine(&host.machine());
        let check = report
            .checks
            .iter()
            .find(|check| check.id == "cpu.c-states");
        let check = check.unwrap();
        (check.status, check.found.clone())
    };
    let (found, text) = states();
    assert!(found == Status::Warn && text.contains("CPUs 1 "), "{text}");
    let wish = format!("{cpu1}/power/pm_qos_resume_latency_us");
    for (value, expected) in [
        ("0", Status::Warn),
        ("100", Status::Ok),
        ("200", Status::Warn),
        ("n/a", Status::Ok),
    ] {
        host.file(&wish, value);
        assert_eq!(states().0, expected, "{value}");
    }
    host.file(&wish, "0");
    // 0, and 2,000,000,000, which is no wish; the fake keeps text.
    host.file("/dev/cpu_dma_latency", "\0\0\0\0");
    assert_eq!(states().0, Status::Ok);
}

#[test]
fn isolation_says_which_cpu_lacks_what() {
    let host = good_host();
    host.file("/sys/devices/system/cpu/isolated", "3\n");
    host.file("/sys/devices/system/cpu/nohz_full", "(null)\n");
    host.file("/sys/devices/system/cpu/present", "0-3\n");
    host.file("/proc/cmdline", "isolcpus=3 rcu_nocbs=2-N");
    let report = examine(&host.machine());
    let check = report
        .checks
        .iter()
        .find(|check| check.id == "kernel.isolation");
    let found = &check.unwrap().found;
    for part in ["isolcpus= lacks CPUs 2", "nohz_full= lacks CPUs 2-3"] {
        assert!(found.contains(part), "{found}");
    }
    assert!(!found.contains("rcu_nocbs= lacks"), "{found}");
}

#[test]
fn the_module_of_the_processor_counts() {
    let host = good_host();
    host.file(
        "/proc/cpuinfo",
        "vendor_id : AuthenticAMD\nflags : svm constant_tsc\n",
    );
    host.file("/sys/module/kvm_amd/parameters/nested", "0\n");
    let report = examine(&host.machine());
    let check = |id| report.checks.iter().find(|check| check.id == id).unwrap();
    assert!(check("kvm.vendor").found.contains("kvm_amd"));
    assert!(check("kvm.nested").fix.contains("modprobe -r kvm_amd"));
}

#[test]
fn budgets_of_cgroups_are_looked_at() {
    let host = good_host();
    host.file("/boot/config-6.18.2-rt", "CONFIG_RT_GROUP_SCHED=y\n");
    host.file("/sys/fs/cgroup/cpu/cpu.rt_runtime_us", "950000\n");
    host.file("/sys/fs/cgroup/cpu/vms/cpu.rt_runtime_us", "0\n");
    let report = examine(&host.machine());
    let id = "scheduling.rt-groups";
    let found = report.checks.iter().find(|check| check.id == id).unwrap();
    assert!(found.found.contains("/cpu/vms/"), "{}", found.found);
    host.file("/proc/cmdline", "rt_group_sched=0");
    assert_eq!(status(&examine(&host.machine()), id), Status::Ok);
}

#[test]
fn starved_threads_and_daemons_are_named_and_names_are_no_commands() {
    let host = good_host();
    host.thread(20, 20, "ktimers/1", crate::parse::PF_KTHREAD);
    host.thread(77, 77, "tuned", 0);
    host.edit(|state| {
        let timers = state.threads.get_mut(&20).unwrap();
        timers.scheduling = crate::Scheduling::fifo(1, 0);
    });
    let report = examine(&host.machine());
    for (id, name) in [
        ("scheduling.deferred-work", "ktimers/1 FIFO 1"),
        ("scheduling.daemons", "tuned"),
    ] {
        let check = report.checks.iter().find(|check| check.id == id).unwrap();
        assert_eq!(check.status, Status::Warn);
        assert!(check.found.contains(name), "{}", check.found);
    }
    host.file("/proc/swaps", "Filename\n/swap\u{1b}[2J file\n");
    let report = examine(&host.machine());
    assert!(
        report
            .checks
            .iter()
            .all(|check| !check.found.contains('\u{1b}'))
    );
}

#[test]
fn moderation_of_nics_is_seen() {
    let host = good_host();
    host.edit(|state| {
        let adaptive = crate::settings::links::Moderation {
            rx_us: 3,
            is_adaptive: true,
        };
        state.moderation.insert("rt0".into(), adaptive);
        state.moderation.insert(
            "bulk0".into(),
            crate::settings::links::Moderation::default(),
        );
    });
    let report = examine(&host.machine());
    assert_eq!(status(&report, "network.moderation.rt0"), Status::Warn);
    assert_eq!(status(&report, "network.moderation.bulk0"), Status::Ok);
}

#[test]
fn a_nic_whose_interrupts_cannot_be_found_is_not_called_down() {
    let host = good_host();
    let device = "/sys/devices/vif-0";
    host.file(&format!("{device}/net/enX0/flags"), "0x1003\n");
    host.irq(90, "eth0-q0-rx", 0);
    host.edit(|state| {
        let links = [
            ("/sys/class/net/enX0", format!("{device}/net/enX0")),
            ("/sys/devices/vif-0/net/enX0/device", device.to_owned()),
            ("/sys/devices/vif-0/subsystem", "/sys/bus/xen".to_owned()),
        ];
        let links = links.map(|(from, to)| (from.to_owned(), to));
        state.links.extend(links);
    });
    host.file("/sys/bus/xen/uevent", "");
    let report = examine(&host.machine());
    let id = "network.queues.enX0";
    let check = report.checks.iter().find(|check| check.id == id).unwrap();
    assert!(
        check.found.contains("Xen") && !check.fix.contains("link set"),
        "{check:?}"
    );
}
