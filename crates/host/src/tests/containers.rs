//! Programs without a VM: the threads of their cgroup that a file names have budgets, and nothing else of them changes.

use super::scenario::{control, directory, paper_host};
use crate::cpu_set::CpuSet;
use crate::discover::{self, Processes, VmSelector};
use crate::fake::FakeHost;
use crate::profile::{Profile, VcpuBudget, VmProfile, file};
use crate::settings::threads::{Policy, RESET_ON_FORK, Scheduling};
use steadyvm_config::User;

const POD: &str = "/kubepods.slice/kubepods-pod1.slice";

fn program(host: &FakeHost, pid: u32, cgroup: &str, threads: &[(u32, &str)]) {
    host.thread(pid, pid, "runtime", 0);
    for (tid, name) in threads {
        host.thread(pid, *tid, name, 0);
    }
    let path = format!("0::{cgroup}/cri-containerd-1.scope\n");
    host.file(&format!("/proc/{pid}/cgroup"), &path);
}

fn wanted(name: &str) -> VmSelector {
    VmSelector::Threads {
        cgroup: POD.into(),
        name: name.into(),
    }
}

/// The process and the threads that are found, and what is warned of.
fn find(host: &FakeHost, name: &str, users: &[User]) -> (Option<(u32, Vec<u32>)>, Vec<String>) {
    let machine = host.machine();
    let threads = machine.all_threads().unwrap();
    let processes = Processes::of(&threads);
    let mut warnings = Vec::new();
    let found = discover::find_vm(&machine, &processes, &wanted(name), users, &mut warnings);
    let found = found.unwrap().map(|vm| {
        let tids = vm.vcpus.into_values().map(|thread| thread.tid);
        (vm.pid, tids.collect())
    });
    (found, warnings)
}

#[test]
fn threads_are_found_in_their_cgroup_alone_and_those_of_the_first_process() {
    let host = FakeHost::new(2);
    assert_eq!(find(&host, "cycle*", &[]), (None, vec![]));
    program(
        &host,
        100,
        POD,
        &[(101, "log"), (102, "cycle1"), (103, "cycle0")],
    );
    program(
        &host,
        200,
        "/kubepods.slice/kubepods-pod10.slice",
        &[(201, "cycle0")],
    );
    program(&host, 300, POD, &[(301, "cycle0")]);
    assert_eq!(
        find(&host, "cycle*", &[]),
        (Some((100, vec![102, 103])), vec![])
    );
    assert_eq!(find(&host, "cycle0", &[]), (Some((100, vec![103])), vec![]));
    assert_eq!(find(&host, "cycle", &[]), (None, vec![]));
    // A VM in the same cgroup is another thing.
    assert_eq!(find(&host, "CPU 0/KVM", &[]), (None, vec![]));
    // The program is started again.
    host.edit(|state| state.threads.retain(|_, thread| thread.pid != 100));
    assert_eq!(find(&host, "cycle*", &[]), (Some((300, vec![301])), vec![]));
}

#[test]
fn a_user_is_a_condition_where_the_file_has_one() {
    let host = FakeHost::new(2);
    program(&host, 100, POD, &[(101, "cycle")]);
    host.user(100, 1000);
    assert_eq!(find(&host, "cycle", &[]).0, Some((100, vec![101])));
    let (found, warnings) = find(&host, "cycle", &[User::Number(7)]);
    assert_eq!(found, None);
    assert!(warnings[0].contains("process 100"), "{warnings:?}");
    // Who has no thread of that name is not spoken of.
    assert_eq!(find(&host, "other", &[User::Number(7)]), (None, vec![]));
}

fn profile(budgets: u32) -> Profile {
    let text = format!(
        "[[vm]]\nname = \"pod\"\nclass = \"rt\"\ncgroup = \"{POD}\"\nthreads = \"cycle*\"\nperiod = \"10ms\"\nbudget = \"2ms\"\n"
    );
    let mut profile = file::parse("steadyvm.toml", &text).unwrap();
    let budget = |number| {
        let budget = VcpuBudget {
            runtime_ns: 1_000_000,
            deadline_ns: 10_000_000,
            period_ns: 10_000_000,
            cpu: Some(number),
            rank: 0,
        };
        (number, budget)
    };
    profile.vms[0].budgets = (0..budgets).map(budget).collect();
    profile
}

fn scheduling(host: &FakeHost, tid: u32) -> Scheduling {
    host.state().threads[&tid].scheduling
}

fn newest() -> FakeHost {
    let host = paper_host(2);
    host.file("/proc/sys/kernel/osrelease", "6.12.117-rt\n");
    host
}

#[test]
fn as_many_threads_as_the_plan_has_get_budgets_and_all_others_stay_normal() {
    let (host, directory) = (newest(), directory());
    program(
        &host,
        400,
        POD,
        &[
            (401, "log"),
            (402, "cycle0"),
            (403, "cycle1"),
            (404, "cycle2"),
        ],
    );
    let before = host.state();
    let control = control(&host, &directory);
    control.apply_profile(&profile(2)).unwrap();
    let expected = Scheduling::deadline(1_000_000, 10_000_000, 10_000_000, RESET_ON_FORK);
    for tid in [402, 403] {
        assert_eq!(scheduling(&host, tid), expected, "{tid}");
        let cpus = host.state().threads[&tid].cpus.clone();
        assert_eq!(cpus, CpuSet::single(tid as usize - 402));
    }
    for tid in [400, 401, 404] {
        assert_eq!(host.state().threads[&tid], before.threads[&tid], "{tid}");
    }
    control.undo().unwrap();
    assert_eq!(host.state(), before);
}

/// They may begin later: until then the rest is in force, and nothing is a fault.
#[test]
fn a_program_whose_threads_have_not_begun_lacks_nothing() {
    let (host, directory) = (newest(), directory());
    program(&host, 400, POD, &[(402, "cycle0")]);
    let control = control(&host, &directory);
    let plan = control.plan_profile(&profile(2)).unwrap();
    assert_eq!(plan.warnings, Vec::<String>::new());
    control.apply_profile(&profile(2)).unwrap();
    assert_eq!(scheduling(&host, 402).policy, Policy::Deadline);
    host.edit(|state| state.threads.retain(|tid, _| *tid != 402));
    let plan = control.plan_profile(&profile(2)).unwrap();
    let told = "no thread is called \"cycle*\" in cgroup /kubepods.slice/kubepods-pod1.slice";
    let is_told = plan.warnings.iter().any(|it| it.contains(told));
    assert!(is_told, "{:?}", plan.warnings);
}

#[test]
fn a_file_with_threads_says_where_they_are_and_what_they_get() {
    let of = |lines: &str| {
        let text = format!("[[vm]]\nname = \"a\"\nclass = \"rt\"\n{lines}\n");
        file::parse("f", &text)
    };
    let budget = "period = \"10ms\"\nbudget = \"2ms\"";
    for (lines, fault) in [
        (format!("threads = \"a\"\n{budget}"), "no cgroup"),
        ("cgroup = \"/a\"\nthreads = \"a\"".into(), "nothing to give"),
        (
            format!("cgroup = \"/a\"\nthreads = \"a\"\nnic = \"e\"\n{budget}"),
            "whose cards",
        ),
        (
            format!("cgroup = \"/a\"\nthreads = \"\"\n{budget}"),
            "no name of a thread",
        ),
        (
            format!("cgroup = \"/a\"\nthreads = \"*\"\n{budget}"),
            "no name of a thread",
        ),
        (
            format!("cgroup = \"/a\"\nthreads = \"of-sixteen-bytes\"\n{budget}"),
            "no name of a thread",
        ),
        (
            format!("cgroup = \"/a\"\nthreads = \"a\\u0007\"\n{budget}"),
            "no name of a thread",
        ),
    ] {
        let error = of(&lines).unwrap_err().to_string();
        assert!(error.contains(fault), "{lines}: {error}");
    }
    let read = of(&format!(
        "cgroup = \"/a\"\nthreads = \"of-fifteen-byte*\"\n{budget}"
    ))
    .unwrap();
    let expected = VmSelector::Threads {
        cgroup: "/a".into(),
        name: "of-fifteen-byte*".into(),
    };
    assert_eq!(
        read.vms.iter().map(VmProfile::selector).collect::<Vec<_>>(),
        [expected]
    );
}
