//! Random hosts and targets: undo restores everything.

use proptest::prelude::*;

use super::crash::crashing;
use super::scenario::{control, nic, threaded_irq};
use crate::cpu_set::CpuSet;
use crate::engine::Snapshot;
use crate::fake::{FakeHost, FakeState, Fault};
use crate::method::{Method, RtVm, Target};
use crate::parse::{PF_KTHREAD, PF_NO_SETAFFINITY, PF_USER_WORKER};
use crate::settings::threads::{Policy, RESET_ON_FORK, Scheduling};

fn scheduling() -> impl Strategy<Value = Scheduling> {
    prop_oneof![
        (-20..20, 0_u64..2, 0_u64..3).prop_map(|(nice, flags, slice)| Scheduling {
            nice,
            flags: flags * RESET_ON_FORK,
            runtime_ns: slice * 1_000_000,
            ..Scheduling::normal()
        }),
        (1_u32..=99).prop_map(|priority| Scheduling::fifo(priority, 0)),
        (1_u32..=99).prop_map(|priority| Scheduling {
            policy: Policy::RoundRobin,
            ..Scheduling::fifo(priority, RESET_ON_FORK)
        }),
        Just(Scheduling {
            policy: Policy::Idle,
            ..Scheduling::normal()
        }),
        Just(Scheduling {
            policy: Policy::Deadline,
            runtime_ns: 1_000_000,
            deadline_ns: 5_000_000,
            period_ns: 10_000_000,
            ..Scheduling::normal()
        }),
    ]
}

prop_compose! {
    fn thread_changes()(
        scheduling in scheduling(),
        cpus in prop::collection::btree_set(0_usize..6, 1..5),
    ) -> (Scheduling, CpuSet) {
        (scheduling, cpus.into_iter().collect())
    }
}

/// A random host with RT NICs `rt0`, `rt1`, a bulk NIC, VMs 100, 200 and other threads.
fn random_host() -> impl Strategy<Value = FakeHost> {
    (
        2_usize..6,
        prop::collection::vec((any::<u8>(), thread_changes()), 1..12),
        prop::collection::vec(thread_changes(), 20),
        prop::collection::vec((any::<bool>(), any::<bool>(), 0_usize..6), 9),
    )
        .prop_map(|(cpus, others, changes, irqs)| {
            let host = FakeHost::new(cpus);
            host.thread(1, 1, "init (x) y", 0);
            host.thread(2, 2, "kthreadd", PF_KTHREAD);
            host.writable_file("/sys/devices/virtual/workqueue/cpumask", "ff\n");
            host.writable_file("/proc/irq/default_smp_affinity", "00000000,000000ff\n");
            host.writable_file("/proc/sys/kernel/sched_rt_runtime_us", "950000\n");
            host.writable_file("/proc/sys/net/core/rtnet_prio", "0\n");
            host.writable_file("/proc/sys/net/core/rtnet_quantum", "64\t64\n");
            host.fair_servers();
            nic(&host, "rt0", 30, 40);
            nic(&host, "rt1", 32, 42);
            nic(&host, "bulk0", 34, 44);
            threaded_irq(&host, 9, 50, "acpi", 0);
            host.thread(51, 51, "napi/rt0-8193", PF_KTHREAD);
            host.thread(SERVICE, SERVICE, "service", 0);
            host.thread(SERVICE, SERVICE + 1, "service", 0);
            for pid in [100, 200] {
                host.thread(pid, pid, "qemu", 0);
                host.thread(pid, pid + 1, "CPU 0/KVM", 0);
                host.thread(pid, pid + 2, "CPU 1/KVM", 0);
                host.thread(pid, pid + 3, "vhost-1", PF_USER_WORKER);
                host.kvm_vm(pid, 2);
            }
            for (tid, (kind, _)) in (300..).zip(&others) {
                let flags = [0, PF_KTHREAD, PF_KTHREAD | PF_NO_SETAFFINITY][usize::from(kind % 3)];
                host.thread(tid, tid, "other", flags);
            }
            host.edit(|state| {
                let tids: Vec<u32> = state.threads.keys().copied().collect();
                let all = others
                    .iter()
                    .map(|(_, change)| change)
                    .chain(&changes)
                    .cycle();
                for (tid, (scheduling, cpus)) in tids.into_iter().zip(all) {
                    let cpus = cpus.intersection(&state.online);
                    let thread = state.threads.get_mut(&tid).unwrap();
                    thread.scheduling = *scheduling;
                    if !cpus.is_empty() {
                        thread.cpus = cpus;
                    }
                }
                let online = state.online.clone();
                for (irq, (managed, deferred, cpu)) in state.irqs.values_mut().zip(&irqs) {
                    irq.managed = *managed && irq.name.starts_with("bulk");
                    irq.deferred = *deferred;
                    irq.effective = cpu % online.len();
                }
            });
            host
        })
}

/// A process of the host that serves without a VM.
const SERVICE: u32 = 90;

fn random_target() -> impl Strategy<Value = (Target, Method)> {
    (
        prop::sample::subsequence(vec!["rt0", "rt1"], 1..=2),
        prop::sample::subsequence(vec![100_u32, 200], 1..=2),
        prop::sample::subsequence(vec![0_u32, 1], 0..=2),
        prop::bool::ANY,
        prop::option::of(0_usize..2),
        any::<bool>(),
        prop::sample::select(vec![
            Method::PreemptRt,
            Method::Dedicated,
            Method::RtPollList,
        ]),
    )
        .prop_map(
            |(nics, vms, rt_vcpus, with_process, dedicated_cpu, disable_rt_throttling, method)| {
                let rt_vms = vms.into_iter().map(|pid| RtVm {
                    pid,
                    rt_vcpus: rt_vcpus.clone(),
                });
                let target = Target {
                    rt_nics: nics.into_iter().map(Into::into).collect(),
                    rt_vms: rt_vms.collect(),
                    rt_processes: with_process.then_some(SERVICE).into_iter().collect(),
                    dedicated_cpu,
                    disable_rt_throttling,
                    ..Target::default()
                };
                (target, method)
            },
        )
}

/// The state without threads that have ended.
fn without(mut state: FakeState, gone: &[u32]) -> FakeState {
    state.threads.retain(|tid, _| !gone.contains(tid));
    state
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn apply_then_undo_restores_every_host((host, (target, method)) in (random_host(), random_target())) {
        let directory = super::scenario::directory();
        let control = control(&host, &directory);
        let (before, snapshot) = (host.state(), control.snapshot().unwrap());
        control.apply(&target, method).unwrap();
        let shown = control.show().unwrap();
        prop_assert!(shown.strays.is_empty(), "{:?}", shown.strays);
        let undone = control.undo().unwrap();
        prop_assert!(undone.failed.is_empty() && undone.changed_by_others.is_empty());
        prop_assert_eq!(control.snapshot().unwrap().differences(&snapshot), Vec::<String>::new());
        prop_assert_eq!(host.state(), before);
    }

    #[test]
    fn ended_threads_are_tolerated(
        (host, (target, method)) in (random_host(), random_target()),
        gone in prop::sample::subsequence(vec![1_u32, 40, 51, SERVICE, 100, 101, 102, 103, 200, 300], 0..10),
    ) {
        let directory = super::scenario::directory();
        let control = control(&host, &directory);
        let before = host.state();
        control.apply(&target, method).unwrap();
        host.edit(|state| state.threads.retain(|tid, _| !gone.contains(tid)));
        let undone = control.undo().unwrap();
        prop_assert!(undone.failed.is_empty());
        prop_assert_eq!(host.state(), without(before, &gone));
    }

    #[test]
    fn a_crash_or_refusal_anywhere_is_undone(
        (host, (target, method)) in (random_host(), random_target()),
        at in 0_usize..60,
        fault in prop::sample::select(vec![
            Fault::CrashBefore,
            Fault::CrashAfter,
            Fault::Ignore,
            Fault::Refuse(libc::EIO),
            Fault::Refuse(libc::EPERM),
        ]),
    ) {
        let directory = super::scenario::directory();
        let control = control(&host, &directory);
        let before = host.state();
        host.fault_at(at, fault);
        let crashed = crashing(|| {
            let _ = control.apply(&target, method);
        });
        host.heal();
        let undone = control.undo().unwrap();
        prop_assert!(undone.failed.is_empty(), "{crashed} {:?}", undone);
        prop_assert_eq!(host.state(), before);
    }

    #[test]
    fn snapshots_survive_json(host in random_host()) {
        let snapshot = Snapshot::take(&host.machine()).unwrap();
        let text = serde_json::to_string(&snapshot).unwrap();
        prop_assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), snapshot);
    }

    #[test]
    fn journals_of_any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let directory = super::scenario::directory();
        std::fs::write(directory.path().join("journal.jsonl"), bytes).unwrap();
        let storage = std::sync::Arc::new(crate::engine::Directory::new(directory.path()));
        let _ = crate::engine::journal::JournalFile::new(storage).read();
    }
}
