//! Applying again: for VMs that came later, VMs and threads that end meanwhile, and devices that
//! cannot be set.

use super::net::{FILE, host, kept, profile};
use super::scenario::{control, nic, paper_host, paper_target};
use crate::error::HostError;
use crate::fake::{FakeHost, Fault};
use crate::method::{Method, RtVm, Switches, Target};
use crate::parse::PF_USER_WORKER;
use crate::settings::threads::{RESET_ON_FORK, Scheduling};

fn directory() -> tempfile::TempDir {
    super::scenario::directory()
}

fn start_vm(host: &FakeHost, pid: u32) {
    host.thread(pid, pid, "qemu-system-x86", 0);
    host.thread(pid, pid + 1, "CPU 0/KVM", 0);
    host.thread(pid, pid + 2, "CPU 1/KVM", 0);
    host.thread(pid, pid + 9, &format!("vhost-{pid}"), PF_USER_WORKER);
    host.kvm_vm(pid, 2);
}

fn with_vm(pid: u32) -> Target {
    let mut target = paper_target();
    target.rt_vms.push(RtVm {
        pid,
        rt_vcpus: vec![1],
    });
    target
}

#[test]
fn a_method_is_brought_up_to_date_for_a_vm_that_came_later() {
    for method in Method::of_hosts() {
        let (host, directory) = (host(), directory());
        let control = control(&host, &directory);
        // The peer gives no such ranks: tests/tuned.rs.
        if [Method::Vanilla, Method::Tuned].contains(&method) {
            continue;
        }
        start_vm(&host, 300);
        let before = host.state();
        control.apply(&paper_target(), method).unwrap();
        let first = host.state();
        assert_eq!(first.threads[&302].scheduling, Scheduling::normal());
        control.apply(&with_vm(300), method).unwrap();
        let state = host.state();
        for (tid, rank) in [
            (302, Scheduling::fifo(70, RESET_ON_FORK)),
            (309, Scheduling::fifo(75, 0)),
            (102, Scheduling::fifo(70, RESET_ON_FORK)),
        ] {
            assert_eq!(state.threads[&tid].scheduling, rank, "{method}: {tid}");
        }
        if method == Method::Dedicated {
            for tid in [302, 309, 102] {
                assert_eq!(state.threads[&tid].cpus.to_string(), "1", "{tid}");
            }
            assert_eq!(state.threads[&301].cpus.to_string(), "0");
        }
        let mutations = host.mutations();
        let again = control.apply(&with_vm(300), method).unwrap();
        assert_eq!(
            (again.steps.len(), host.mutations()),
            (0, mutations),
            "{method}"
        );
        assert!(!control.show().unwrap().has_drifted(), "{method}");
        // One that is no longer named has its own again.
        control.apply(&paper_target(), method).unwrap();
        assert_eq!(kept(host.state()), kept(first), "{method}");
        assert_eq!(control.undo().unwrap().failed, [] as [String; 0]);
        assert_eq!(kept(host.state()), kept(before), "{method}");
    }
}

#[test]
fn threads_that_came_later_are_moved_off_the_dedicated_cpu_by_the_next_apply() {
    let (host, directory) = (paper_host(3), directory());
    let control = control(&host, &directory);
    control.apply(&paper_target(), Method::Dedicated).unwrap();
    host.thread(500, 500, "late", 0);
    let shown = control.show().unwrap();
    assert_eq!(shown.strays, ["CPUs of thread 500 (late)"]);
    assert!(shown.has_drifted());
    control.apply(&paper_target(), Method::Dedicated).unwrap();
    assert_eq!(host.state().threads[&500].cpus.to_string(), "0-1");
    assert!(!control.show().unwrap().has_drifted());
    control.undo().unwrap();
    assert_eq!(host.state().threads[&500].cpus.to_string(), "0-2");
}

#[test]
fn any_thread_may_end_at_any_step_of_apply() {
    let methods = [Method::PreemptRt, Method::Dedicated, Method::RtProfile];
    let vm = |pid| RtVm {
        pid,
        rt_vcpus: vec![],
    };
    let target = Target {
        rt_vms: vec![vm(100), vm(200)],
        ..paper_target()
    };
    for method in methods {
        let steps = {
            let (host, directory) = (host(), directory());
            control(&host, &directory).apply(&target, method).unwrap();
            host.mutations()
        };
        assert!(steps > 8);
        // A VCPU, a vhost worker, a whole small process, a thread of the kernel.
        for tid in [201, 209, 102, 2, 13, 41] {
            for at in 0..steps {
                let (host, directory) = (host(), directory());
                let mut before = host.state();
                let control = control(&host, &directory);
                host.fault_at(at, Fault::End(tid));
                match control.apply(&target, method) {
                    Ok(_) => {
                        let state = host.state();
                        // What is left of the path has its rank.
                        for (other, priority) in [(40, 80), (109, 75)] {
                            let thread = &state.threads[&other];
                            assert_eq!(thread.scheduling.priority, priority, "{method} {tid} {at}");
                        }
                        assert!(
                            !control.show().unwrap().has_drifted(),
                            "{method} {tid} {at}"
                        );
                    }
                    // A VM whose last known VCPU ended while its monitor runs is no VM.
                    Err(HostError::RolledBack { .. }) if tid == 201 || tid == 102 => {}
                    Err(error) => panic!("{method} {tid} at {at}: {error}"),
                }
                host.heal();
                control.undo().unwrap();
                before.threads.remove(&tid);
                assert_eq!(kept(host.state()), kept(before), "{method} {tid} at {at}");
            }
        }
    }
}

#[test]
fn a_vm_that_ends_while_another_is_served_does_not_take_it_along() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    host.fault_at(3, Fault::End(209));
    let mut target = with_vm(200);
    target.rt_vms[1].rt_vcpus = vec![];
    control.apply(&target, Method::PreemptRt).unwrap();
    // Then all of it ends.
    host.edit(|state| state.threads.retain(|_, thread| thread.pid != 200));
    let shown = control.show().unwrap();
    assert!(shown.has_drifted());
    control.apply(&paper_target(), Method::PreemptRt).unwrap();
    assert_eq!(host.state().threads[&102].scheduling.priority, 70);
    assert!(!control.show().unwrap().has_drifted());
}

#[test]
fn a_nic_that_nobody_named_and_that_cannot_be_threaded_is_skipped() {
    let (host, directory) = (host(), directory());
    nic(&host, "wlp3s0", 38, 48);
    let before = host.state();
    // The kernel refuses it for this NIC alone.
    let path = host.state().links["/sys/class/net/wlp3s0"].clone() + "/threaded";
    host.edit(|state| state.unthreadable.insert(path));
    let control = control(&host, &directory);
    let applied = control.apply(&paper_target(), Method::RtProfile).unwrap();
    assert_eq!(applied.skipped.len(), 1, "{:?}", applied.skipped);
    assert!(
        applied.skipped[0].contains("wlp3s0"),
        "{:?}",
        applied.skipped
    );
    assert_eq!(host.state().threads[&102].scheduling.priority, 70);
    let shown = control.show().unwrap();
    assert!(
        !shown.has_drifted() && shown.skipped.len() == 1,
        "{shown:?}"
    );
    control.undo().unwrap();
    let mut after = kept(host.state());
    after.unthreadable.clear();
    assert_eq!(after, kept(before));
    // One that the user named is an error.
    let text = "[class.c]\nthreaded_napi = true\n[[nic]]\nname = \"wlp3s0\"\nclass = \"c\"\n";
    let error = control.apply_profile(&profile(text)).unwrap_err();
    assert!(error.to_string().contains("wlp3s0"), "{error}");
}

#[test]
fn a_profile_in_force_is_not_replaced_by_a_method_of_another_name() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    control.apply_profile(&profile(FILE)).unwrap();
    let in_force = host.state();
    for method in [Method::PreemptRt, Method::Dedicated, Method::Vanilla] {
        let error = control.apply(&paper_target(), method).unwrap_err();
        assert!(matches!(error, HostError::InForce { .. }), "{error}");
    }
    let both: Switches = "rt+dedicated+profile".parse().unwrap();
    control.apply(&paper_target(), both).unwrap();
    assert_eq!(host.state().threads[&102].cpus.to_string(), "1");
    assert_ne!(host.state(), in_force);
    control.undo_profile().unwrap();
}
