//! What the methods set, refuse and undo.

use super::net;
use super::scenario::{
    FIFO_50, bound_fair_servers, control, nic, paper_host, paper_target, threaded_irq,
};
use crate::cpu_set::CpuSet;
use crate::engine::State;
use crate::error::HostError;
use crate::fake::{FakeHost, Fault};
use crate::method::{Method, RtVm, Target};
use crate::parse::PF_KTHREAD;
use crate::settings::Change;
use crate::settings::threads::{RESET_ON_FORK, Scheduling};
use crate::{Blame, discover};

fn directory() -> tempfile::TempDir {
    super::scenario::directory()
}

#[test]
fn vanilla_changes_nothing_and_leaves_no_journal() {
    let (host, directory) = (paper_host(2), directory());
    let before = host.state();
    let control = control(&host, &directory);
    assert!(
        control
            .apply(&paper_target(), Method::Vanilla)
            .unwrap()
            .steps
            .is_empty()
    );
    assert_eq!(host.state(), before);
    assert_eq!(control.show().unwrap().state, State::None);
    control.apply(&paper_target(), Method::PreemptRt).unwrap();
}

#[test]
fn preempt_rt_orders_the_path_of_the_rt_vm_only() {
    let (host, directory) = (paper_host(2), directory());
    let before = host.state();
    let control = control(&host, &directory);
    let applied = control.apply(&paper_target(), Method::PreemptRt).unwrap();
    // Four threads of the path, RCU's, and the fair servers of two CPUs.
    assert_eq!(applied.steps.len(), 7);
    let mut expected = before.clone();
    bound_fair_servers(&mut expected);
    for (tid, scheduling) in [
        (40, Scheduling::fifo(80, 0)),
        (41, Scheduling::fifo(80, 0)),
        (109, Scheduling::fifo(75, 0)),
        (102, Scheduling::fifo(70, RESET_ON_FORK)),
        (13, Scheduling::fifo(76, 0)),
    ] {
        expected.threads.get_mut(&tid).unwrap().scheduling = scheduling;
    }
    assert_eq!(host.state(), expected);
    let shown = control.show().unwrap();
    assert_eq!(
        (shown.state, shown.method),
        (State::Applied, Some(Method::PreemptRt.into()))
    );
    assert!(shown.settings.iter().all(|setting| setting.holds));
    assert_eq!(control.undo().unwrap().restored, 7);
    assert_eq!(host.state(), before);
}

#[test]
fn methods_with_levels_are_those_without_and_the_level_of_the_rt_nic() {
    for (without, with) in [
        (Method::PreemptRt, Method::RtPollList),
        (Method::RtProfile, Method::RtLevels),
    ] {
        let (host, directory) = (net::host(), directory());
        let before = host.state();
        let control = control(&host, &directory);
        control.apply(&paper_target(), without).unwrap();
        let mut expected = host.state();
        control.undo().unwrap();
        control.apply(&paper_target(), with).unwrap();
        assert_eq!(control.show().unwrap().method, Some(with.into()));
        // IRQ threads of other NICs stay at 50, below it; all of the RT path is at it or above.
        let lowest_of_the_path = expected.threads[&102].scheduling.priority;
        let file = "/proc/sys/net/core/rtnet_prio".to_owned();
        let from = format!("{lowest_of_the_path}\n");
        expected.files.insert(file, from);
        let file = "/proc/sys/net/core/rtnet_quantum".to_owned();
        expected.files.insert(file, "16\t64\n".to_owned());
        assert_eq!(net::kept(host.state()), net::kept(expected), "{with}");
        // What is made as a network profile is also taken back as one.
        let undone = if with.switches().profile {
            control.undo_profile()
        } else {
            assert!(control.undo_profile().is_err());
            control.undo()
        };
        assert_eq!(undone.unwrap().failed, [] as [String; 0]);
        assert_eq!(net::kept(host.state()), net::kept(before), "{with}");
    }
}

#[test]
fn methods_with_levels_need_the_patches() {
    for (method, instead) in [
        (Method::RtPollList, Method::PreemptRt),
        (Method::RtLevels, Method::RtProfile),
    ] {
        let (host, directory) = (net::host(), directory());
        host.edit(|state| state.files.remove("/proc/sys/net/core/rtnet_prio"));
        let before = host.state();
        let error = control(&host, &directory)
            .apply(&paper_target(), method)
            .unwrap_err();
        assert_eq!(error.blame().exit_code(), 3);
        let text = error.to_string();
        let parts = [
            "rtnet_prio",
            "kernel/patches/6.12",
            method.name(),
            instead.name(),
        ];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        assert_eq!(host.state(), before);
    }
}

#[test]
fn dedicated_leaves_the_cpu_to_the_rt_path() {
    let (host, directory) = (paper_host(2), directory());
    host.writable_file(
        "/sys/devices/pci0000:00/0000:00:34.0/net/bulk0/queues/rx-0/rps_cpus",
        "3\n",
    );
    let before = host.state();
    let control = control(&host, &directory);
    let applied = control.apply(&paper_target(), Method::Dedicated).unwrap();
    assert_eq!(applied.dedicated_cpu, Some(1));
    let state = host.state();
    for (tid, thread) in &state.threads {
        let on_it = [102, 109].contains(tid);
        let unmovable = thread.comm.starts_with("irq/") || thread.comm == "ksoftirqd/0";
        let expected = if on_it { "1" } else { "0" };
        assert!(
            unmovable || thread.cpus.to_string() == expected,
            "{tid}: {thread:?}"
        );
    }
    for (irq, fake) in &state.irqs {
        let cpu = usize::from([30, 31].contains(irq));
        assert_eq!(
            (&fake.cpus, fake.effective),
            (&CpuSet::single(cpu), cpu),
            "{irq}"
        );
    }
    assert_eq!(
        state.files["/sys/devices/virtual/workqueue/cpumask"],
        "fd\n"
    );
    assert_eq!(state.files["/proc/irq/default_smp_affinity"], "fd\n");
    let rps = "/sys/devices/pci0000:00/0000:00:34.0/net/bulk0/queues/rx-0/rps_cpus";
    assert_eq!(state.files[rps], "1\n");
    assert_eq!(state.threads[&40].scheduling, Scheduling::fifo(80, 0));
    assert_eq!(control.show().unwrap().strays, [] as [String; 0]);
    let undone = control.undo().unwrap();
    assert_eq!(undone.failed, [] as [String; 0]);
    assert_eq!(host.state(), before);
}

#[test]
fn interrupts_of_a_vms_own_devices_have_the_rank_of_those_of_rt_nics_unless_told() {
    let target = |keep_vfio| Target {
        keep_vfio,
        ..paper_target()
    };
    for (method, keep_vfio, scheduling, cpu) in [
        (Method::PreemptRt, false, Scheduling::fifo(80, 0), None),
        (Method::PreemptRt, true, FIFO_50, None),
        (Method::Dedicated, false, Scheduling::fifo(80, 0), Some(1)),
    ] {
        let (host, directory) = (paper_host(2), directory());
        super::discovery::give_function(&host);
        let before = host.state();
        let control = control(&host, &directory);
        control.apply(&target(keep_vfio), method).unwrap();
        let state = host.state();
        assert_eq!(state.threads[&80].scheduling, scheduling, "{method}");
        assert_eq!(state.threads[&81].scheduling, FIFO_50, "another VM's");
        if let Some(cpu) = cpu {
            assert_eq!(state.irqs[&70].cpus, CpuSet::single(cpu));
            assert_eq!(state.irqs[&71].cpus, CpuSet::single(0));
        }
        control.undo().unwrap();
        assert_eq!(host.state(), before);
    }
}

#[test]
fn a_process_of_the_host_can_be_the_service() {
    let (host, directory) = (paper_host(2), directory());
    host.thread(300, 300, "netrt", 0);
    host.thread(300, 301, "netrt-worker", 0);
    let before = host.state();
    let control = control(&host, &directory);
    let target = Target {
        rt_vms: vec![],
        rt_processes: vec![300, 300],
        ..paper_target()
    };
    control.apply(&target, Method::PreemptRt).unwrap();
    let mut expected = before.clone();
    bound_fair_servers(&mut expected);
    for (tid, scheduling) in [
        (40, Scheduling::fifo(80, 0)),
        (41, Scheduling::fifo(80, 0)),
        (300, Scheduling::fifo(70, RESET_ON_FORK)),
        (301, Scheduling::fifo(70, RESET_ON_FORK)),
        (13, Scheduling::fifo(76, 0)),
    ] {
        expected.threads.get_mut(&tid).unwrap().scheduling = scheduling;
    }
    assert_eq!(host.state(), expected);
    control.undo().unwrap();
    assert_eq!(host.state(), before);

    control.apply(&target, Method::Dedicated).unwrap();
    let state = host.state();
    for (tid, cpu) in [(300, "1"), (301, "1"), (1, "0"), (109, "0")] {
        assert_eq!(state.threads[&tid].cpus.to_string(), cpu, "{tid}");
    }
    assert_eq!(
        (state.irqs[&30].effective, state.irqs[&34].effective),
        (1, 0)
    );
    control.undo().unwrap();
    assert_eq!(host.state(), before);
}

#[test]
fn threads_started_meanwhile_are_widened_by_undo() {
    let (host, directory) = (paper_host(4), directory());
    host.edit(|state| state.threads.get_mut(&200).unwrap().cpus = "0,3".parse().unwrap());
    let control = control(&host, &directory);
    control.apply(&paper_target(), Method::Dedicated).unwrap();
    host.fork(1, 500, 20_000);
    host.fork(500, 501, 20_001);
    host.fork(200, 502, 20_002);
    host.fork(1, 503, 20_003);
    host.edit(|state| state.threads.get_mut(&503).unwrap().cpus = "2".parse().unwrap());
    assert_eq!(host.state().threads[&501].cpus.to_string(), "0-2");
    assert_eq!(host.state().threads[&502].cpus.to_string(), "0");
    assert_eq!(control.undo().unwrap().heirs, 3);
    let state = host.state();
    for (tid, cpus) in [(500, "0-3"), (501, "0-3"), (502, "0,3"), (503, "2")] {
        assert_eq!(state.threads[&tid].cpus.to_string(), cpus, "{tid}");
    }
}

#[test]
fn a_kernel_without_preempt_rt_is_refused_with_what_to_do() {
    let (host, directory) = (paper_host(2), directory());
    host.edit(|state| state.files.remove("/sys/kernel/realtime"));
    host.file(
        "/proc/sys/kernel/version",
        "#1 SMP PREEMPT_DYNAMIC Debian\n",
    );
    for method in [Method::PreemptRt, Method::Dedicated] {
        let error = control(&host, &directory)
            .apply(&paper_target(), method)
            .unwrap_err();
        assert_eq!(error.blame().exit_code(), 3);
        let text = error.to_string();
        assert!(
            text.contains("PREEMPT_RT") && text.contains("vanilla"),
            "{text}"
        );
    }
}

#[test]
fn bad_targets_are_refused_by_name() {
    let host = paper_host(2);
    host.thread(300, 300, "bash", 0);
    host.thread(400, 400, "a-monitor", 0);
    host.kvm_vm(400, 2);
    host.file("/sys/class/net/br0/mtu", "1500\n");
    let good = paper_target();
    let vm = |pid, rt_vcpus: &[u32]| {
        vec![RtVm {
            pid,
            rt_vcpus: rt_vcpus.to_vec(),
        }]
    };
    let cases = [
        (
            Target {
                rt_nics: vec![],
                ..good.clone()
            },
            "--nic",
        ),
        (
            Target {
                rt_vms: vec![],
                ..good.clone()
            },
            "--vm",
        ),
        (
            Target {
                rt_nics: vec!["rt9".into()],
                ..good.clone()
            },
            "bulk0, rt0",
        ),
        (
            Target {
                rt_nics: vec!["../rt0".into()],
                ..good.clone()
            },
            "no network interface",
        ),
        (
            Target {
                rt_nics: vec!["br0".into()],
                ..good.clone()
            },
            "no IRQ thread",
        ),
        (
            Target {
                rt_vms: vm(999, &[1]),
                ..good.clone()
            },
            "no process 999",
        ),
        (
            Target {
                rt_vms: vm(300, &[1]),
                ..good.clone()
            },
            "holds no KVM VM",
        ),
        (
            Target {
                rt_vms: vm(400, &[1]),
                ..good.clone()
            },
            "no thread that is known as a VCPU",
        ),
        (
            Target {
                rt_vms: vm(100, &[5]),
                ..good.clone()
            },
            "its VCPUs are 0, 1",
        ),
        (
            Target {
                dedicated_cpu: Some(7),
                ..good.clone()
            },
            "CPU 7 is not online",
        ),
    ];
    for (target, expected) in cases {
        refused(&host, &target, expected);
    }
}

#[test]
fn bad_processes_are_refused_by_name() {
    let host = paper_host(2);
    for (pid, expected) in [
        (999, "no process 999"),
        (12, "belongs to the kernel"),
        (100, "name it once"),
    ] {
        let target = Target {
            rt_processes: vec![pid],
            ..paper_target()
        };
        refused(&host, &target, expected);
    }
}

/// Refused as the caller's mistake, with nothing changed.
fn refused(host: &FakeHost, target: &Target, expected: &str) {
    let before = host.state();
    let error = control(host, &directory())
        .apply(target, Method::Dedicated)
        .unwrap_err();
    assert!(error.to_string().contains(expected), "{error}");
    assert_eq!(error.blame(), Blame::Input, "{error}");
    assert_eq!(host.state(), before);
}

#[test]
fn one_cpu_cannot_be_dedicated() {
    let (host, directory) = (paper_host(1), directory());
    let error = control(&host, &directory)
        .apply(&paper_target(), Method::Dedicated)
        .unwrap_err();
    assert_eq!(error.blame().exit_code(), 3);
}

#[test]
fn applying_twice_asks_for_undo_first() {
    let (host, directory) = (paper_host(2), directory());
    let control = control(&host, &directory);
    control.apply(&paper_target(), Method::PreemptRt).unwrap();
    let error = control
        .apply(&paper_target(), Method::Dedicated)
        .unwrap_err();
    assert!(matches!(error, HostError::InForce { .. }));
    assert!(error.to_string().contains("steadyvm undo"));
    control.undo().unwrap();
    control.apply(&paper_target(), Method::Dedicated).unwrap();
}

#[test]
fn a_journal_from_before_a_reboot_is_dropped() {
    let (host, directory) = (paper_host(2), directory());
    let control = control(&host, &directory);
    control.apply(&paper_target(), Method::PreemptRt).unwrap();
    host.file("/proc/sys/kernel/random/boot_id", "boot-2\n");
    let before = host.state();
    assert_eq!(control.show().unwrap().state, State::BeforeReboot);
    assert_eq!(control.undo().unwrap().restored, 0);
    assert_eq!(host.state(), before);
    assert_eq!(control.show().unwrap().state, State::None);
}

#[test]
fn undo_without_a_journal_does_nothing() {
    let (host, directory) = (paper_host(2), directory());
    assert_eq!(
        control(&host, &directory).undo().unwrap(),
        crate::Undone::default()
    );
    assert_eq!(host.mutations(), 0);
}

#[test]
fn a_recycled_thread_number_is_not_touched() {
    let (host, directory) = (paper_host(2), directory());
    let control = control(&host, &directory);
    control.apply(&paper_target(), Method::PreemptRt).unwrap();
    host.edit(|state| {
        state.threads.get_mut(&102).unwrap().start_time += 5000;
        state.threads.remove(&109);
    });
    let recycled = host.state().threads[&102].clone();
    let undone = control.undo().unwrap();
    assert_eq!((undone.vanished, undone.restored), (2, 5));
    assert_eq!(host.state().threads[&102], recycled);
}

#[test]
fn what_others_changed_since_is_left_and_reported() {
    let (host, directory) = (paper_host(2), directory());
    let control = control(&host, &directory);
    control.apply(&paper_target(), Method::PreemptRt).unwrap();
    host.edit(|state| {
        state.threads.get_mut(&102).unwrap().scheduling = Scheduling::fifo(42, 0);
    });
    let undone = control.undo().unwrap();
    assert_eq!(undone.changed_by_others.len(), 1);
    assert!(undone.changed_by_others[0].contains("FIFO 42"));
    assert_eq!(
        host.state().threads[&102].scheduling,
        Scheduling::fifo(42, 0)
    );
}

#[test]
fn managed_interrupts_of_others_are_skipped_and_of_the_rt_nic_refused() {
    let (host, directory) = (paper_host(2), directory());
    host.edit(|state| state.irqs.get_mut(&34).unwrap().managed = true);
    let control = control(&host, &directory);
    let applied = control.apply(&paper_target(), Method::Dedicated).unwrap();
    assert_eq!(applied.skipped.len(), 1, "{:?}", applied.skipped);
    assert!(applied.skipped[0].contains("IRQ 34"));
    control.undo().unwrap();
    host.edit(|state| state.irqs.get_mut(&31).unwrap().managed = true);
    let before = host.state();
    let error = control
        .apply(&paper_target(), Method::Dedicated)
        .unwrap_err();
    assert!(error.to_string().contains("IRQ 31 (rt0-TxRx-1)"), "{error}");
    assert_eq!(
        (error.blame().exit_code(), host.state() == before),
        (3, true)
    );
}

#[test]
fn an_interrupt_returns_to_the_cpu_that_served_it() {
    let (host, directory) = (paper_host(2), directory());
    host.edit(|state| {
        for irq in state.irqs.values_mut() {
            irq.deferred = true;
        }
    });
    let before = host.state();
    let control = control(&host, &directory);
    control.apply(&paper_target(), Method::Dedicated).unwrap();
    crate::HostTree::wait(&host, std::time::Duration::ZERO);
    assert_eq!(host.state().irqs[&35].effective, 0);
    control.undo().unwrap();
    assert_eq!(host.state(), before);
}

#[test]
fn a_setting_that_the_kernel_ignores_fails_and_rolls_back() {
    let (host, directory) = (paper_host(2), directory());
    let before = host.state();
    host.fault_at(0, Fault::Ignore);
    let error = control(&host, &directory)
        .apply(&paper_target(), Method::PreemptRt)
        .unwrap_err();
    assert!(error.to_string().contains("did not keep"), "{error}");
    assert_eq!(host.state(), before);
}

#[test]
fn what_cannot_be_restored_stays_in_the_journal() {
    let (host, directory) = (paper_host(2), directory());
    let before = host.state();
    let control = control(&host, &directory);
    control.apply(&paper_target(), Method::PreemptRt).unwrap();
    host.fault_at(0, Fault::Refuse(libc::EPERM));
    let undone = control.undo().unwrap();
    assert_eq!((undone.failed.len(), undone.restored), (1, 6));
    assert_eq!(control.show().unwrap().state, State::Incomplete);
    host.heal();
    assert_eq!(control.undo().unwrap().restored, 1);
    assert_eq!(host.state(), before);
}

/// A VM of `steadyvm up` has outsourced sockets and no tap: nobody carries packets into it. One with a
/// tap and no vhost worker has its packets carried at normal priority, which is warned about.
#[test]
fn a_vm_with_outsourced_sockets_needs_no_vhost_worker() {
    let (host, directory) = (paper_host(2), directory());
    host.file("/proc/sys/kernel/osrelease", "6.12.0\n");
    host.thread(300, 300, "steadyvm", 0);
    host.thread(300, 301, "vcpu0/echo", 0);
    host.thread(300, 302, "vcpu1/echo", 0);
    host.kvm_vm(300, 2);
    let target = Target {
        rt_vms: vec![RtVm {
            pid: 300,
            rt_vcpus: vec![1],
        }],
        ..paper_target()
    };
    let control = control(&host, &directory);
    let plan = control.plan(&target, Method::PreemptRt).unwrap();
    assert_eq!(plan.warnings, [] as [String; 0]);
    let set = |tid: u32| {
        plan.steps.iter().any(
            |step| matches!(&step.change, Change::ThreadPolicy(change) if change.setting.thread.tid == tid),
        )
    };
    assert!(set(302) && !set(301) && !set(300));
    host.file("/proc/300/fdinfo/9", "pos:\t0\niff:\ttap0\n");
    host.file("/sys/class/net/tap0/tun_flags", "0x5002\n");
    let plan = control.plan(&target, Method::PreemptRt).unwrap();
    assert!(plan.warnings[0].contains("no vhost worker"));
}

#[test]
fn the_fair_server_is_left_where_asked_and_told_of_where_it_cannot_be_reached() {
    let (host, directory) = (paper_host(2), directory());
    let control = control(&host, &directory);
    let target = Target {
        keep_fair_server: true,
        ..paper_target()
    };
    let files = host.state().files;
    for method in [
        Method::PreemptRt,
        Method::RtPollList,
        Method::RtProfile,
        Method::RtLevels,
    ] {
        control.apply(&target, method).unwrap();
        let now = host.state().files;
        let is_server = |path: &str| path.contains("fair_server");
        assert!(
            files
                .iter()
                .all(|(path, old)| !is_server(path) || now[path] == *old)
        );
        control.undo().unwrap();
    }
    // Without debugfs, and before there was one.
    host.edit(|state| state.files.retain(|path, _| !path.contains("fair_server")));
    let applied = control.apply(&paper_target(), Method::PreemptRt).unwrap();
    let told = |applied: &crate::Report| {
        let mut warnings = applied.warnings.iter();
        warnings.any(|warning| warning.contains("mount debugfs"))
    };
    assert!(told(&applied), "{:?}", applied.warnings);
    control.undo().unwrap();
    host.file("/proc/sys/kernel/osrelease", "6.11.9-rt\n");
    assert!(!told(
        &control.apply(&paper_target(), Method::PreemptRt).unwrap()
    ));
}

#[test]
fn a_kernel_that_is_locked_down_is_named_and_the_rest_is_applied() {
    let (host, directory) = (paper_host(2), directory());
    let control = control(&host, &directory);
    host.lock_down("integrity");
    let before = host.state();
    let applied = control.apply(&paper_target(), Method::PreemptRt).unwrap();
    let of_server = |warning: &&String| warning.contains("fair_server");
    let told = applied.warnings.iter().find(of_server).unwrap();
    assert!(
        told.contains("locked down") && told.contains("Secure Boot"),
        "{told}"
    );
    assert!(!told.contains("mount"), "{told}");
    assert_ne!(host.state(), before);
    control.undo().unwrap();
    assert_eq!(host.state(), before);
    // Locked by hand while the servers are bounded: undo says why it cannot give them back.
    host.lock_down("none");
    control.apply(&paper_target(), Method::PreemptRt).unwrap();
    host.lock_down("integrity");
    let undone = control.undo().unwrap();
    let said = format!("{undone:?}");
    assert!(said.contains("locked down"), "{said}");
}

#[test]
fn rt_throttling_is_touched_only_when_asked() {
    let (host, directory) = (paper_host(2), directory());
    let control = control(&host, &directory);
    let path = "/proc/sys/kernel/sched_rt_runtime_us";
    host.file("/proc/sys/kernel/osrelease", "6.1.0-rt\n");
    let applied = control.apply(&paper_target(), Method::PreemptRt).unwrap();
    assert!(
        applied
            .warnings
            .iter()
            .any(|warning| warning.contains(path))
    );
    assert_eq!(host.state().files[path], "950000\n");
    control.undo().unwrap();
    let target = Target {
        disable_rt_throttling: true,
        ..paper_target()
    };
    control.apply(&target, Method::PreemptRt).unwrap();
    assert_eq!(host.state().files[path], "-1\n");
    control.undo().unwrap();
    assert_eq!(host.state().files[path], "950000\n");
}

#[test]
fn finds_old_vhost_kernel_threads_virtio_nics_and_napi_threads() {
    let host = FakeHost::new(2);
    host.thread(100, 100, "qemu", 0);
    host.thread(100, 101, "CPU 0/KVM", 0);
    host.kvm_vm(100, 1);
    host.thread(60, 60, "vhost-100", PF_KTHREAD);
    host.thread(61, 61, "vhost-999", PF_KTHREAD);
    host.thread(62, 62, "napi/eth0-8193", PF_KTHREAD);
    host.thread(63, 63, "napi/eth01-8194", PF_KTHREAD);
    let pci = "/sys/devices/pci0000:00/0000:00:03.0";
    host.file(&format!("{pci}/virtio2/net/eth0/mtu"), "1500");
    host.file(&format!("{pci}/msi_irqs/25"), "msix");
    host.edit(|state| {
        let net = format!("{pci}/virtio2/net/eth0");
        state
            .links
            .insert("/sys/class/net/eth0".into(), net.clone());
        state
            .links
            .insert(format!("{net}/device"), format!("{pci}/virtio2"));
    });
    threaded_irq(&host, 25, 70, "virtio2-input.0", 0);
    threaded_irq(&host, 26, 71, "virtio20-input.0", 0);
    let machine = host.machine();
    let threads = machine.all_threads().unwrap();
    let tids = |ids: &[crate::settings::ThreadId]| ids.iter().map(|id| id.tid).collect::<Vec<_>>();
    let vm = discover::vm(&machine, &threads, 100).unwrap();
    assert_eq!(tids(&vm.vhost_workers), [60]);
    let nic = discover::nic(&machine, &threads, "eth0").unwrap();
    assert_eq!(nic.irqs.keys().copied().collect::<Vec<_>>(), [25]);
    assert_eq!(
        (tids(&nic.irq_threads), tids(&nic.napi_threads)),
        (vec![70], vec![62])
    );
}

#[test]
fn finds_unnamed_vcpus_through_debugfs() {
    let host = FakeHost::new(2);
    for tid in 100..103 {
        host.thread(100, tid, "qemu-system-x86", 0);
    }
    host.kvm_vm(100, 2);
    host.file("/sys/kernel/debug/kvm/100-10/vcpu1/pid", "102\n");
    // Not a descriptor of its own.
    host.file("/sys/kernel/debug/kvm/100-12/vcpu0/pid", "101\n");
    host.file("/sys/kernel/debug/kvm/1001-12/vcpu0/pid", "101\n");
    let machine = host.machine();
    let vm = discover::vm(&machine, &machine.all_threads().unwrap(), 100).unwrap();
    assert_eq!(vm.vcpus[&1].tid, 102);
    assert_eq!(vm.vcpus.len(), 1);
}

/// KVM knows the thread of a VCPU from its first run on: until then its name tells, and the VM has as many VCPUs as ever.
#[test]
fn a_vcpu_that_has_not_run_yet_is_told_by_its_name() {
    let host = FakeHost::new(2);
    host.thread(100, 100, "qemu-system-x86", 0);
    host.thread(100, 101, "CPU 0/KVM", 0);
    host.thread(100, 102, "CPU 1/KVM", 0);
    // One that says so, and is another by KVM's word.
    host.thread(100, 103, "CPU 0/KVM", 0);
    host.kvm_vm(100, 3);
    host.file("/sys/kernel/debug/kvm/100-10/vcpu0/pid", "101\n");
    host.file("/sys/kernel/debug/kvm/100-10/vcpu1/pid", "0\n");
    host.file("/sys/kernel/debug/kvm/100-10/vcpu2/pid", "103\n");
    let machine = host.machine();
    let vm = discover::vm(&machine, &machine.all_threads().unwrap(), 100).unwrap();
    let tids: Vec<u32> = vm.vcpus.values().map(|thread| thread.tid).collect();
    assert_eq!(tids, [101, 102, 103]);
}

#[test]
fn a_vm_of_one_vcpu_is_real_time_as_a_whole() {
    let (host, directory) = (paper_host(2), directory());
    nic(&host, "spare0", 38, 48);
    let target = Target {
        rt_vms: vec![RtVm {
            pid: 200,
            rt_vcpus: vec![],
        }],
        ..paper_target()
    };
    let applied = control(&host, &directory)
        .apply(&target, Method::PreemptRt)
        .unwrap();
    assert!(
        applied
            .warnings
            .iter()
            .any(|warning| warning.contains("one VCPU"))
    );
    assert_eq!(host.state().threads[&201].scheduling.priority, 70);
    assert_eq!(host.state().threads[&48].scheduling, FIFO_50);
}

#[test]
fn two_at_once_are_refused() {
    let (host, directory) = (paper_host(2), directory());
    let runtime = crate::engine::lock::Runtime::new(directory.path());
    let _lock = runtime.lock(std::time::Duration::ZERO).unwrap();
    let error = control(&host, &directory).undo().unwrap_err();
    assert!(matches!(error, HostError::Busy { .. }));
}
