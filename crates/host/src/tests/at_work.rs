//! VMs that are made, paused or about to end: what they lack then is no fault of theirs.

use super::net::{FILE, host, profile};
use super::scenario::{control, directory};
use crate::fake::FakeHost;
use crate::profile::{Profile, VcpuBudget};

const EXITING: u64 = 0x4;
const SIGNALED: u64 = 0x400;
const IN_KVM: &str = "16 0x1c 0xae80 0x0 0x0 0x0 0x0 0x7ffd8 0x7f1c4\n";
/// `futex(2)`, as QEMU's VCPU threads wait in while they are stopped.
const STOPPED: &str = "202 0x5633 0x189 0x0 0x0 0x0 0xffffffff 0x7ffd8 0x7f1c4\n";

/// The VCPU threads of VM `rt`.
const VCPUS: [u32; 2] = [101, 102];

fn warnings(host: &FakeHost, profile: &Profile) -> Vec<String> {
    let directory = directory();
    let plan = control(host, &directory).plan_profile(profile).unwrap();
    plan.warnings
}

/// What VM `rt` is doing, whether it is at work then, and what makes it so.
type Situation = (&'static str, bool, fn(&FakeHost));

fn situations() -> [Situation; 7] {
    fn syscalls(host: &FakeHost, texts: [&str; 2]) {
        for (thread, text) in VCPUS.into_iter().zip(texts) {
            host.file(&format!("/proc/100/task/{thread}/syscall"), text);
        }
    }
    fn flag(host: &FakeHost, flag: u64) {
        syscalls(host, [IN_KVM; 2]);
        for thread in VCPUS {
            host.edit(|state| state.threads.get_mut(&thread).unwrap().flags |= flag);
        }
    }
    [
        ("a user who may not look cannot tell", true, |_| {}),
        ("one VCPU waits in KVM", true, |host| {
            syscalls(host, [IN_KVM, STOPPED]);
        }),
        ("one VCPU runs", true, |host| {
            syscalls(host, ["running\n", STOPPED]);
        }),
        ("its monitor has stopped it", false, |host| {
            syscalls(host, [STOPPED, "-1 0x7ffd8 0x7f1c4\n"]);
        }),
        ("it is killed and does not know yet", false, |host| {
            syscalls(host, [IN_KVM, "running\n"]);
            for thread in VCPUS {
                let path = format!("/proc/100/task/{thread}/status");
                host.file(&path, "Name:\tCPU\nSigPnd:\t0000000000000100\n");
            }
        }),
        ("it is killed and knows", false, |host| flag(host, SIGNALED)),
        ("it exits", false, |host| flag(host, EXITING)),
    ]
}

#[test]
fn a_missing_vhost_worker_is_told_of_a_vm_at_work_alone() {
    for (what, is_at_work, become_so) in situations() {
        let host = host();
        host.edit(|state| state.threads.remove(&109));
        become_so(&host);
        let said = warnings(&host, &profile(FILE));
        let told = said.iter().any(|it| it.contains("no vhost worker"));
        assert_eq!(told, is_at_work, "{what}: {said:?}");
    }
}

#[test]
fn a_missing_vcpu_is_told_of_a_vm_at_work_alone() {
    let mut budgeted = profile(FILE);
    let budget = VcpuBudget {
        runtime_ns: 4_000_000,
        deadline_ns: 10_000_000,
        period_ns: 10_000_000,
        ..VcpuBudget::default()
    };
    budgeted.vms[0].budgets.insert(2, budget);
    let mut named = profile(FILE);
    named.vms[0].rt_vcpus.push(2);
    for (what, is_at_work, become_so) in situations() {
        let host = host();
        become_so(&host);
        let said = warnings(&host, &budgeted);
        let told = said.iter().any(|it| it.contains("runs without it"));
        assert_eq!(told, is_at_work, "{what}: {said:?}");
        // One that the file names is a mistake there.
        let directory = directory();
        let refused = control(&host, &directory).plan_profile(&named);
        let told = refused.is_err_and(|error| error.to_string().contains("no VCPU 2"));
        assert_eq!(told, is_at_work, "{what}");
    }
}

#[test]
fn a_single_vcpu_is_told_of_a_vm_at_work_alone() {
    for (what, is_at_work, become_so) in situations() {
        let host = host();
        host.edit(|state| state.links.remove("/proc/100/fd/21"));
        become_so(&host);
        let said = warnings(&host, &profile(FILE));
        let told = said.iter().any(|it| it.contains("has one VCPU"));
        assert_eq!(told, is_at_work, "{what}: {said:?}");
    }
}

/// The plan's note asks for another VCPU; where there is none, a machine sees it.
#[test]
fn a_budget_that_a_guests_timers_begin_is_told() {
    let said = |vcpus: usize, begins_with_request: bool| {
        let host = host();
        if vcpus == 1 {
            host.edit(|state| state.links.remove("/proc/100/fd/21"));
        }
        let mut budgeted = profile(FILE);
        let budget = VcpuBudget {
            runtime_ns: 4_000_000,
            deadline_ns: 10_000_000,
            period_ns: 10_000_000,
            ..VcpuBudget::default()
        };
        budgeted.vms[0].budgets.insert(0, budget);
        budgeted.vms[0].begins_with_request = begins_with_request;
        let said = warnings(&host, &budgeted);
        said.iter().any(|it| it.contains("interface = \"prm\""))
    };
    assert!(said(1, true));
    assert!(!said(1, false) && !said(2, true));
}
