//! The peer `tuned`: it sets what tuned and libvirt set, needs their boot, and is taken back.

use super::scenario::{control, directory, paper_host, paper_target, tuned_host};
use crate::Blame;
use crate::cpu_set::CpuSet;
use crate::fake::FakeHost;
use crate::method::{Method, RtVm, Target};
use crate::parse::{PF_KTHREAD, PF_NO_SETAFFINITY};
use crate::settings::files::known;
use crate::settings::threads::{RESET_ON_FORK, Scheduling};

const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// With the threads of each CPU that tuned ranks.
fn host() -> FakeHost {
    let host = tuned_host(2);
    for (tid, name) in [
        (14, "rcuc/1"),
        (15, "ktimers/1"),
        (16, "rcub/0"),
        (17, "ksoftirqd/1"),
    ] {
        host.thread(tid, tid, name, PF_KTHREAD | PF_NO_SETAFFINITY);
    }
    // A process that calls itself so is none of them.
    host.thread(600, 600, "rcuc/0", 0);
    host
}

#[test]
fn tuned_ranks_and_places_what_the_profile_and_the_domain_name_and_nothing_of_the_path() {
    let (host, directory) = (host(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    control.apply(&paper_target(), Method::Tuned).unwrap();
    let state = host.state();
    for (tid, scheduling) in [
        // libvirt: <vcpusched scheduler="fifo" priority="1"/>
        (102, Scheduling::fifo(1, RESET_ON_FORK)),
        (12, Scheduling::fifo(2, 0)),
        (14, Scheduling::fifo(4, 0)),
        (15, Scheduling::fifo(2, 0)),
        (16, Scheduling::fifo(4, 0)),
        (17, Scheduling::fifo(2, 0)),
    ] {
        assert_eq!(state.threads[&tid].scheduling, scheduling, "{tid}");
    }
    // Neither a NIC's thread nor a vhost worker nor the grace periods' thread is among them.
    for tid in [13, 40, 41, 44, 109, 101, 600] {
        let (now, old) = (&state.threads[&tid], &before.threads[&tid]);
        assert_eq!(now.scheduling, old.scheduling, "{tid}");
    }
    // The RT VCPU alone is on the isolated CPU: emulator, vhost, VCPU 0 and others are not.
    for (tid, cpu) in [
        (102, "1"),
        (100, "0"),
        (101, "0"),
        (109, "0"),
        (201, "0"),
        (1, "0"),
    ] {
        assert_eq!(state.threads[&tid].cpus.to_string(), cpu, "{tid}");
    }
    // Nor an interrupt, those of the RT NIC included.
    for (irq, fake) in &state.irqs {
        assert_eq!(fake.cpus, CpuSet::single(0), "{irq}");
    }
    for (path, _, value) in known::FILES.into_iter().filter(|(path, ..)| *path != THP) {
        assert_eq!(state.files[path].trim(), value, "{path}");
    }
    assert_eq!(state.files[THP], "always madvise [never]\n");
    let queues = "/sys/devices/virtual/workqueue";
    for mask in ["cpumask", "writeback/cpumask"] {
        assert_eq!(state.files[&format!("{queues}/{mask}")], "fd\n", "{mask}");
    }
    assert_eq!(state.files["/proc/sys/kernel/sched_rt_runtime_us"], "-1\n");
    // tuned does not know the fair server.
    let is_server = |path: &&String| path.contains("fair_server");
    for path in before.files.keys().filter(is_server) {
        assert_eq!(state.files[path], before.files[path], "{path}");
    }
    assert!(!control.show().unwrap().has_drifted());
    let again = control.apply(&paper_target(), Method::Tuned).unwrap();
    assert_eq!(again.steps.len(), 0);
    assert_eq!(control.undo().unwrap().failed, [] as [String; 0]);
    assert_eq!(host.state(), before);
}

#[test]
fn a_host_that_was_not_booted_for_tuned_is_refused_with_the_words_for_its_boot() {
    let host = paper_host(4);
    for isolated in ["", "\n", "0-3\n", "(null)\n"] {
        host.file("/sys/devices/system/cpu/isolated", isolated);
        let before = host.state();
        let error = control(&host, &directory())
            .apply(&paper_target(), Method::Tuned)
            .unwrap_err();
        assert_eq!(error.blame().exit_code(), 3, "{error}");
        let text = error.to_string();
        for part in [
            "isolcpus=managed_irq,domain,3 ",
            "nohz_full=3 ",
            "rcu_nocbs=3 ",
            "irqaffinity=0-2",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(host.state(), before);
    }
}

#[test]
fn each_vcpu_has_an_isolated_cpu_of_its_own_or_the_peer_is_refused() {
    let host = tuned_host(4);
    host.file("/sys/devices/system/cpu/isolated", "2-3\n");
    let target = |rt_vcpus: &[u32]| Target {
        // The peer asks for no NIC.
        rt_nics: vec![],
        rt_vms: vec![RtVm {
            pid: 100,
            rt_vcpus: rt_vcpus.to_vec(),
        }],
        ..Target::default()
    };
    let directory = directory();
    let control = control(&host, &directory);
    control.apply(&target(&[0, 1]), Method::Tuned).unwrap();
    let cpus = |tid: u32| host.state().threads[&tid].cpus.to_string();
    assert_eq!(
        (cpus(101), cpus(102), cpus(109)),
        ("2".into(), "3".into(), "0-1".into())
    );
    control.undo().unwrap();
    host.file("/sys/devices/system/cpu/isolated", "3\n");
    let before = host.state();
    let error = control.apply(&target(&[0, 1]), Method::Tuned).unwrap_err();
    assert_eq!(error.blame(), Blame::Input, "{error}");
    assert!(error.to_string().contains("for 2 VCPUs"), "{error}");
    assert_eq!(host.state(), before);
}

#[test]
fn what_a_kernel_has_no_file_for_is_passed_over() {
    let (host, directory) = (host(), directory());
    host.edit(|state| {
        for (path, ..) in known::FILES {
            state.files.remove(path);
        }
    });
    let control = control(&host, &directory);
    control.apply(&paper_target(), Method::Tuned).unwrap();
    assert!(!control.show().unwrap().has_drifted());
    assert_eq!(host.state().threads[&102].cpus.to_string(), "1");
}
