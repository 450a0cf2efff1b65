//! Quotas that stop nothing.

use super::*;

/// From 6.18 on a quota of the kernel's own threads alone counts, and stops nothing.
#[test]
fn a_quota_that_stops_nothing_is_told() {
    let host = good_host();
    host.thread(900, 900, "qemu", 0);
    host.kvm_vm(900, 1);
    host.thread(900, 901, "CPU 0/KVM", 0);
    host.thread(900, 909, "vhost-900", PF_USER_WORKER);
    host.thread(50, 50, "napi/rt0-1", PF_KTHREAD);
    let root = "/sys/fs/cgroup";
    let holds = "scheduling.cpu-quota-holds";
    let found = |host: &FakeHost| {
        let report = examine(&host.machine());
        let check = report.checks.into_iter().find(|check| check.id == holds);
        let check = check.unwrap();
        (check.status, check.found)
    };
    let put = |pid: u32, tid: u32, cgroup: &str| {
        host.file(
            &format!("/proc/{pid}/task/{tid}/cgroup"),
            &format!("0::{cgroup}\n"),
        );
    };
    // A worker that is with its VM is bounded with it.
    for tid in [900, 901, 909] {
        put(900, tid, "/vm");
    }
    host.file(&format!("{root}/vm/cpu.max"), "5000 100000\n");
    host.file(
        &format!("{root}/vm/cpu.stat"),
        "nr_throttled 40\nthrottled_usec 3000000\n",
    );
    assert_eq!(found(&host).0, Status::Ok);

    // One by itself, and a card's thread below a limit; neither has run out yet.
    put(900, 909, "/worker");
    host.file(&format!("{root}/worker/cpu.max"), "5000 100000\n");
    host.file(
        &format!("{root}/worker/cpu.stat"),
        "nr_throttled 0\nthrottled_usec 0\n",
    );
    put(50, 50, "/rx/rt0");
    host.file(&format!("{root}/rx/cpu.max"), "1000 100000\n");
    host.file(&format!("{root}/rx/rt0/cpu.max"), "max 100000\n");
    let (status, said) = found(&host);
    assert_eq!(status, Status::Warn);
    for part in [
        "/worker/cpu.max is 5000 100000",
        "vhost-900",
        "/rx/cpu.max is 1000 100000",
        "napi/rt0-1",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(
        !said.contains("/vm/") && !said.contains("/rx/rt0/"),
        "{said}"
    );

    // An older kernel stops them; what its own counts say holds on any.
    host.file("/proc/sys/kernel/osrelease", "6.12.117-rt\n");
    assert_eq!(found(&host).0, Status::Ok);
    host.file(
        &format!("{root}/worker/cpu.stat"),
        "nr_throttled 46\nthrottled_usec 0\n",
    );
    let (status, said) = found(&host);
    assert_eq!(status, Status::Warn);
    assert!(
        said.contains("run out 46 times and stopped nothing"),
        "{said}"
    );
    // Without the controller there is nothing to count.
    host.file(&format!("{root}/worker/cpu.stat"), "usage_usec 12\n");
    assert_eq!(found(&host).0, Status::Ok);
}

/// A worker that was moved out of its VM's cgroup is bounded by no quota from 6.18 on: one of its own counts alone.
#[test]
fn a_vhost_worker_outside_its_vms_quota_is_named() {
    let host = good_host();
    host.thread(900, 900, "qemu", 0);
    host.kvm_vm(900, 1);
    host.thread(900, 901, "CPU 0/KVM", 0);
    host.thread(900, 909, "vhost-900", PF_USER_WORKER);
    host.file("/proc/900/cmdline", "qemu\0-name\0web\0");
    host.file("/proc/sys/kernel/osrelease", "7.3.4-rt\n");
    let root = "/sys/fs/cgroup";
    let put = |tid: u32, cgroup: &str| {
        host.file(
            &format!("/proc/900/task/{tid}/cgroup"),
            &format!("0::{cgroup}\n"),
        );
    };
    let quota = |cgroup: &str, value: &str| host.file(&format!("{root}{cgroup}/cpu.max"), value);
    let said = || found(&examine(&host.machine()), "scheduling.cpu-quota-workers");
    for (tid, cgroup) in [(900, "emulator"), (901, "vcpu0"), (909, "emulator")] {
        put(tid, &format!("/web/{cgroup}"));
    }
    assert_eq!(said().0, Status::Ok);
    // All in one, and parts that have more of their own.
    quota("/web", "50000 100000\n");
    quota("/web/vcpu0", "20000 100000\n");
    assert_eq!(said().0, Status::Ok);
    quota("/web", "max 100000\n");
    let (status, text) = said();
    assert_eq!(status, Status::Warn);
    for part in ["thread 909 (vhost-900) of web is outside", "/web/vcpu0:"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    quota("/web/vcpu0", "max 100000\n");
    quota("/web/emulator", "9000 100000\n");
    let (status, text) = said();
    assert_eq!(status, Status::Warn);
    assert!(
        text.contains("of web has a quota that its VCPUs have not"),
        "{text}"
    );
    host.file("/proc/sys/kernel/osrelease", "6.12.117-rt\n");
    assert_eq!(said().0, Status::Ok);
}

/// What it stopped once, before the worker was alone, is in the count for ever.
#[test]
fn a_quota_that_stopped_once_and_stops_nothing_now_is_told_with_its_vm() {
    let host = good_host();
    host.thread(900, 900, "qemu", 0);
    host.kvm_vm(900, 1);
    host.thread(900, 901, "CPU 0/KVM", 0);
    host.file("/proc/900/cmdline", "qemu\0-name\0web\0");
    host.file("/proc/900/task/901/cgroup", "0::/web\n");
    host.file("/proc/sys/kernel/osrelease", "7.3.4-rt\n");
    host.file("/sys/fs/cgroup/web/cpu.max", "5000 100000\n");
    let stat = "/sys/fs/cgroup/web/cpu.stat";
    let after = |times: u64, stopped_us: u64| {
        host.file(stat, "nr_throttled 40\nthrottled_usec 3000\n");
        let text = format!("nr_throttled {times}\nthrottled_usec {stopped_us}\n");
        host.edit(|state| state.after_waiting.insert(stat.into(), text));
        found(&examine(&host.machine()), "scheduling.cpu-quota-holds")
    };
    assert_eq!(after(40, 3000).0, Status::Ok);
    assert_eq!(after(45, 3800).0, Status::Ok);
    let (status, text) = after(45, 3000);
    assert_eq!(status, Status::Warn);
    let said = "/web/cpu.max is 5000 100000 (VM web): it runs out (5 times in 500 ms) and stops nothing now";
    assert!(text.contains(said), "{text}");
}
