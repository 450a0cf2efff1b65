//! Cpusets that shrink, CPUs that go offline, and interrupts that find no vector, while a CPU is
//! dedicated.

use super::scenario::{control, paper_host, paper_target};
use crate::cpu_set::CpuSet;
use crate::fake::Fault;
use crate::method::Method;

fn directory() -> tempfile::TempDir {
    super::scenario::directory()
}

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

#[test]
fn a_cpuset_that_shrank_does_not_keep_undo_from_ending() {
    // Those that are left include some of before, none that it was moved to, or only the dedicated.
    for left in ["0", "0-1", "1", "2", "1-2"] {
        let (host, directory) = (paper_host(3), directory());
        host.cpuset(200, &cpus("0-2"));
        let before = host.state();
        let control = control(&host, &directory);
        control.apply(&paper_target(), Method::Dedicated).unwrap();
        assert_eq!(host.state().threads[&200].cpus.to_string(), "0-1");
        host.cpuset(200, &cpus(left));
        let undone = control.undo().unwrap();
        assert_eq!(undone.failed, [] as [String; 0], "{left}");
        assert_eq!(undone.changed_by_others, [] as [String; 0], "{left}");
        // What the kernel remembers is the old set: it is there when the cpuset is wide again.
        host.cpuset(200, &cpus("0-2"));
        assert_eq!(host.state(), before, "{left}");
    }
}

#[test]
fn what_nothing_is_left_of_is_told_with_the_old_value() {
    let (host, directory) = (paper_host(4), directory());
    host.cpuset(200, &cpus("0-3"));
    host.edit(|state| state.threads.get_mut(&200).unwrap().cpus = cpus("2-3"));
    let control = control(&host, &directory);
    control.apply(&paper_target(), Method::Dedicated).unwrap();
    assert_eq!(host.state().threads[&200].cpus.to_string(), "2");
    host.cpuset(200, &cpus("0-1"));
    let undone = control.undo().unwrap();
    assert_eq!(undone.failed, [] as [String; 0]);
    let told = undone.notes.iter().chain(&undone.changed_by_others);
    let told: Vec<&String> = told.filter(|line| line.contains("thread 200")).collect();
    assert_eq!(told.len(), 1, "{undone:?}");
    assert!(told[0].contains("2-3"), "{told:?}");
}

#[test]
fn a_cpu_that_went_offline_does_not_keep_undo_from_ending() {
    let (host, directory) = (paper_host(3), directory());
    let before = host.state();
    let control = control(&host, &directory);
    control.apply(&paper_target(), Method::Dedicated).unwrap();
    host.set_online(&cpus("0-1"));
    let undone = control.undo().unwrap();
    assert_eq!(undone.failed, [] as [String; 0]);
    // Its fair server is written from the CPU itself.
    assert_eq!(undone.postponed.len(), 1, "{undone:?}");
    assert!(undone.postponed[0].contains("CPU 2"));
    // Which hinders nobody, and is made good when the CPU is back.
    control.apply(&paper_target(), Method::PreemptRt).unwrap();
    control.undo().unwrap();
    host.set_online(&cpus("0-2"));
    assert_eq!(control.undo().unwrap().restored, 1);
    assert_eq!(control.undo().unwrap(), crate::Undone::default());
    assert_eq!(host.state().files, {
        let mut files = before.files;
        let online = "/sys/devices/system/cpu/online".to_owned();
        files.insert(online, "0-2\n".into());
        files
    });
}

/// A watch finds nothing to do about it, and `status` nothing that is not in force.
#[test]
fn a_cpu_that_goes_and_comes_back_leaves_all_in_force() {
    let (host, directory) = (paper_host(2), directory());
    let before = host.state();
    let control = control(&host, &directory);
    control.apply(&paper_target(), Method::PreemptRt).unwrap();
    for online in ["0", "0-1"] {
        host.set_online(&cpus(online));
        let plan = control.plan(&paper_target(), Method::PreemptRt).unwrap();
        assert_eq!((plan.steps, plan.taken_back), (vec![], vec![]), "{online}");
        control.apply(&paper_target(), Method::PreemptRt).unwrap();
        assert!(!control.show().unwrap().has_drifted(), "{online}");
    }
    assert_eq!(control.undo().unwrap().failed, [] as [String; 0]);
    let mut after = host.state();
    let online = "/sys/devices/system/cpu/online".to_owned();
    after
        .files
        .insert(online.clone(), before.files[&online].clone());
    assert_eq!(after, before);
}

#[test]
fn an_interrupt_without_a_vector_says_so() {
    for (number, what) in [(libc::ENOSPC, "vectors"), (libc::EIO, "managed")] {
        let (host, directory) = (paper_host(2), directory());
        let control = control(&host, &directory);
        let plan = control.plan(&paper_target(), Method::Dedicated).unwrap();
        let is_irq = |step: &&crate::planner::Step| step.change.subject().contains("IRQ 30");
        let step = plan.steps.iter().find(is_irq).unwrap();
        host.fault_at(0, Fault::Refuse(number));
        let error = step.change.make(&host.machine()).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert!(!error.contains("--state-dir"), "{error}");
    }
}

#[test]
fn a_refused_priority_is_explained_where_groups_need_a_budget() {
    for (has_groups, what) in [(true, "cpu.rt_runtime_us"), (false, "sudo")] {
        let (host, directory) = (paper_host(2), directory());
        if has_groups {
            host.file("/sys/fs/cgroup/cpu/cpu.rt_runtime_us", "950000\n");
        }
        host.fault_at(0, Fault::Refuse(libc::EPERM));
        let error = control(&host, &directory)
            .apply(&paper_target(), Method::PreemptRt)
            .unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
}
