//! Services of the host, by their systemd units: found, ranked, kept, taken back.

use proptest::prelude::*;

use super::crash::crashing;
use super::scenario::{control, directory, paper_host};
use crate::Blame;
use crate::error::HostError;
use crate::fake::{FakeHost, Fault};
use crate::planner::Group;
use crate::profile::{Profile, file};
use crate::settings::threads::{Policy, RESET_ON_FORK, Scheduling};

const PASSWD: &str =
    "root:x:0:0::/root:/bin/sh\nopenvswitch:x:998:998::/:\nalice:x:1000:1000::/:\n";
const FILE: &str = r#"
[class.clock]
vcpu = 85

[[host_service]]
unit = "ptp4l.service"
class = "clock"
cpus = [1]

[[host_service]]
unit = "ovs-vswitchd.service"
user = "openvswitch"
rank = 60
"#;

fn profile(text: &str) -> Profile {
    file::parse("steadyvm.toml", text).unwrap()
}

/// A process of a unit, with a second thread.
fn start(host: &FakeHost, pid: u32, unit: &str) {
    host.thread(pid, pid, "daemon", 0);
    host.thread(pid, pid + 1, "worker", 0);
    let path = format!("0::/system.slice/{unit}\n");
    host.file(&format!("/proc/{pid}/cgroup"), &path);
}

/// A host where both services of [`FILE`] run, and one that nobody names.
fn host() -> FakeHost {
    let host = paper_host(2);
    host.file("/etc/passwd", PASSWD);
    start(&host, 400, "ptp4l.service");
    start(&host, 410, "ovs-vswitchd.service");
    host.user(410, 998);
    start(&host, 420, "cron.service");
    host
}

fn rank(host: &FakeHost, tid: u32) -> Scheduling {
    host.state().threads[&tid].scheduling
}

fn fifo(priority: u32) -> Scheduling {
    Scheduling::fifo(priority, RESET_ON_FORK)
}

#[test]
fn all_threads_of_a_unit_get_its_rank_and_cpus_and_undo_takes_them_back() {
    let (host, directory) = (host(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    let applied = control.apply_profile(&profile(FILE)).unwrap();
    assert_eq!(applied.warnings, [] as [String; 0]);
    for tid in [400, 401] {
        assert_eq!(rank(&host, tid), fifo(85), "{tid}");
        assert_eq!(host.state().threads[&tid].cpus.to_string(), "1");
    }
    for tid in [410, 411] {
        assert_eq!(rank(&host, tid), fifo(60), "{tid}");
        assert_eq!(host.state().threads[&tid].cpus.to_string(), "0-1");
    }
    assert_eq!(rank(&host, 420), Scheduling::normal());
    let shown = control.show().unwrap();
    assert!(!shown.has_drifted());
    let subjects: Vec<&str> = shown
        .settings
        .iter()
        .map(|it| it.subject.as_str())
        .collect();
    assert!(
        subjects.contains(&"policy of thread 400 (daemon)"),
        "{subjects:?}"
    );
    assert_eq!(control.undo().unwrap().restored, 6);
    assert_eq!(host.state(), before);
}

#[test]
fn a_unit_that_starts_again_or_a_thread_that_it_starts_gets_its_rank_again() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    control.apply_profile(&profile(FILE)).unwrap();
    host.edit(|state| state.threads.retain(|tid, _| ![400, 401].contains(tid)));
    let desired = control.desired_in_force().unwrap().unwrap();
    let report = control.reconcile_each(&desired).unwrap();
    assert!(
        report.warnings[0].contains("ptp4l.service does not run"),
        "{:?}",
        report.warnings
    );
    start(&host, 500, "ptp4l.service");
    host.thread(410, 415, "handler", 0);
    assert!(control.show().unwrap().has_drifted());
    control.reconcile_each(&desired).unwrap();
    assert_eq!(
        [500, 501, 415].map(|tid| rank(&host, tid).priority),
        [85, 85, 60]
    );
    assert!(!control.show().unwrap().has_drifted());
    control.undo().unwrap();
    for tid in [500, 501, 410, 411, 415] {
        assert_eq!(rank(&host, tid), Scheduling::normal(), "{tid}");
    }
}

#[test]
fn only_units_of_the_systems_systemd_and_processes_of_root_are_believed() {
    for (what, words) in [
        (
            "user",
            "user 1000 (alice), and only these are believed: 0 (root)",
        ),
        ("login", "no unit of the system's systemd"),
        ("container", "runs in a container"),
    ] {
        let (host, directory) = (host(), directory());
        match what {
            "user" => host.user(400, 1000),
            "login" => host.file(
                "/proc/400/cgroup",
                "0::/user.slice/user-1000.slice/user@1000.service/ptp4l.service\n",
            ),
            _ => host.edit(|state| {
                state
                    .links
                    .insert("/proc/1/ns/pid".into(), "pid:[1]".into());
                state
                    .links
                    .insert("/proc/410/ns/pid".into(), "pid:[1]".into());
                state
                    .links
                    .insert("/proc/400/ns/pid".into(), "pid:[2]".into());
                for (pid, number) in [(1, 1), (400, 1), (410, 1)] {
                    let link = format!("/proc/{pid}/ns/cgroup");
                    state.links.insert(link, format!("cgroup:[{number}]"));
                }
            }),
        }
        let control = control(&host, &directory);
        let applied = control.apply_profile(&profile(FILE)).unwrap();
        assert_eq!(rank(&host, 400), Scheduling::normal(), "{what}");
        assert_eq!(rank(&host, 410), fifo(60), "{what}");
        assert!(
            applied.warnings[0].contains(words),
            "{:?}",
            applied.warnings
        );
        assert!(
            !applied.warnings[0].contains("[[vm]]"),
            "{:?}",
            applied.warnings
        );
    }
}

#[test]
fn a_budget_is_enforced_by_the_kernel_and_taken_back() {
    let (host, directory) = (host(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    let text = "[[host_service]]\nunit = \"ptp4l.service\"\nbudget = \"1ms\"\nperiod = \"20ms\"\n";
    control.apply_profile(&profile(text)).unwrap();
    let found = rank(&host, 401);
    let budget = (found.policy, found.runtime_ns, found.period_ns);
    assert_eq!(budget, (Policy::Deadline, 1_000_000, 20_000_000));
    control.undo().unwrap();
    assert_eq!(host.state().threads, before.threads);
}

#[test]
fn a_unit_of_a_vm_is_refused_and_the_others_are_served() {
    let (host, directory) = (host(), directory());
    host.file("/proc/100/cgroup", "0::/machine.slice/rt.scope\n");
    let text = format!("{FILE}[[host_service]]\nunit = \"rt.scope\"\nrank = 5\n");
    let control = control(&host, &directory);
    let report = control.apply_profile_each(&profile(&text), &[]).unwrap();
    let [failure] = &report.failed[..] else {
        panic!("{:?}", report.failed);
    };
    assert_eq!(failure.group, Group::HostService("rt.scope".into()));
    assert!(
        failure.error.contains("has a VM, of process 100"),
        "{failure:?}"
    );
    assert_eq!(rank(&host, 101), Scheduling::normal());
    assert_eq!(rank(&host, 400), fifo(85));
}

#[test]
fn what_a_service_cannot_have_is_refused() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    let before = host.state();
    let offline = "[[host_service]]\nunit = \"ptp4l.service\"\ncpus = [7]\n";
    let mut planned =
        profile("[[host_service]]\nunit = \"ptp4l.service\"\nbudget = \"1ms\"\nperiod = \"2ms\"\n");
    let vm = profile("[class.a]\nvcpu = 5\n[[vm]]\nname = \"rt\"\nclass = \"a\"\n").vms;
    let budget = crate::profile::VcpuBudget {
        runtime_ns: 1_000_000,
        deadline_ns: 10_000_000,
        period_ns: 10_000_000,
        cpu: Some(0),
        rank: 0,
    };
    planned.vms = vm;
    planned.vms[0].budgets.insert(1, budget);
    for (profile, words) in [
        (profile(offline), "CPUs 7, of which not all are online"),
        (planned, "nobody would admit it"),
    ] {
        let error = control.apply_profile(&profile).unwrap_err();
        assert!(matches!(error, HostError::BadInput { .. }), "{error}");
        assert_eq!(error.blame(), Blame::Input);
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.to_string().contains("line 1"), "{error}");
        assert_eq!(host.state(), before);
    }
}

#[test]
fn a_table_that_is_wrong_is_told_with_its_place() {
    let unit = "[[host_service]]\nunit = \"ptp4l.service\"\n";
    for (text, place, words) in [
        (
            "[[host_service]]\nrank = 5\n".to_owned(),
            "line 1",
            "missing field `unit`",
        ),
        (unit.to_owned(), "line 1", "asks for nothing"),
        (format!("{unit}rank = 99\n"), "line 3", "1 to 98"),
        (
            format!("{unit}rank = 5\nclass = \"rt\"\n"),
            "line 1",
            "more than one of",
        ),
        (
            format!("{unit}rank = 5\nbudget = \"1ms\"\n"),
            "line 1",
            "more than one of",
        ),
        (
            format!("{unit}class = \"best-effort\"\n"),
            "line 1",
            "has no vcpu",
        ),
        (
            format!("{unit}class = \"none\"\n"),
            "line 1",
            "no class \"none\"",
        ),
        (
            format!("{unit}budget = \"1ms\"\n"),
            "line 1",
            "one of budget and period",
        ),
        (
            format!("{unit}rank = 5\nperiod = \"1ms\"\n"),
            "line 1",
            "one of budget and period",
        ),
        (
            format!("{unit}budget = \"1ms\"\nperiod = \"10ns\"\n"),
            "line 3",
            "SCHED_DEADLINE asks for",
        ),
        (
            format!("{unit}budget = \"1ms\"\nperiod = \"5ms\"\ncpus = [0]\n"),
            "line 5",
            "takes no thread with CPUs of its own",
        ),
        (format!("{unit}cpus = []\n"), "line 3", "cpus is empty"),
        (format!("{unit}cpus = [99999]\n"), "line 3", "no CPU 99999"),
        (
            format!("{unit}rank = 5\nuser = \"\"\n"),
            "line 4",
            "names no user",
        ),
        (
            format!("{unit}rank = 5\n{unit}rank = 6\n"),
            "line 4",
            "is there twice",
        ),
        (
            "[[host_service]]\nunit = \"ptp4l\"\nrank = 5\n".to_owned(),
            "line 2",
            "no systemd unit",
        ),
        (
            "[[host_service]]\nunit = \"a@.service\"\nrank = 5\n".to_owned(),
            "line 2",
            "template",
        ),
        (
            "[[host_service]]\nunit = \"system.slice\"\nrank = 5\n".to_owned(),
            "line 2",
            "a slice",
        ),
        (format!("{unit}prio = 5\n"), "line 3", "unknown field"),
    ] {
        let error = file::parse("steadyvm.toml", &text).unwrap_err();
        assert_eq!(error.blame(), Blame::Input, "{text}");
        let error = error.to_string();
        assert!(
            error.contains(place) && error.contains(words),
            "{text}: {error}"
        );
    }
}

#[test]
fn a_crash_or_refusal_at_any_step_is_undone() {
    let host = host();
    let before = host.state();
    for fault in [
        Fault::CrashBefore,
        Fault::CrashAfter,
        Fault::Refuse(libc::EPERM),
    ] {
        for at in 0.. {
            let directory = directory();
            let control = control(&host, &directory);
            let start = host.mutations();
            host.fault_at(at, fault);
            let crashed = crashing(|| {
                let _ = control.apply_profile(&profile(FILE));
            });
            let reached = host.mutations() > start + at;
            host.heal();
            let undone = control.undo().unwrap();
            assert_eq!(undone.failed, [] as [String; 0], "{crashed} at {at}");
            assert_eq!(host.state(), before, "{fault:?} at {at}");
            if !reached {
                break;
            }
        }
    }
}

#[test]
fn doctor_names_a_service_that_vcpus_run_before() {
    let host = host();
    let of = |host: &FakeHost| {
        let report = crate::doctor::examine(&host.machine());
        let of_services = |id: &str| id.starts_with("scheduling.host-service.");
        let checks = report
            .checks
            .into_iter()
            .filter(|check| of_services(&check.id));
        checks.collect::<Vec<_>>()
    };
    assert_eq!(of(&host), [], "no VCPU has a rank");
    host.edit(|state| state.threads.get_mut(&102).unwrap().scheduling = Scheduling::fifo(70, 0));
    let found = of(&host);
    assert_eq!(found.len(), 2, "cron may wait: {found:?}");
    assert!(
        found[0].found.contains("2 of its threads are normal"),
        "{:?}",
        found[0]
    );
    assert!(
        found[1]
            .fix
            .contains("unit = \"ptp4l.service\" and a rank above 70"),
        "{:?}",
        found[1]
    );
    let directory = directory();
    let control = control(&host, &directory);
    control.apply_profile(&profile(FILE)).unwrap();
    let found = of(&host);
    let is_ok = |check: &crate::doctor::Check| check.status == crate::doctor::Status::Ok;
    assert!(found.iter().all(is_ok), "{found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Whatever scheduling the threads had, and whichever of them end meanwhile.
    #[test]
    fn undo_restores_every_service(
        was in prop::collection::vec((0_u32..3, 1_u32..99, -20..20_i32), 4),
        asked in prop::sample::select(vec![
            "rank = \"normal\"", "rank = 98", "class = \"rt\"", "budget = \"1ms\"\nperiod = \"9ms\"",
            "cpus = [0]", "cpus = [1]\nrank = 3",
        ]),
        gone in prop::sample::subsequence(vec![400_u32, 401, 410, 411], 0..4),
    ) {
        let (host, directory) = (host(), directory());
        host.edit(|state| {
            for (tid, (kind, priority, nice)) in [400, 401, 410, 411].into_iter().zip(was) {
                let scheduling = match kind {
                    0 => Scheduling { nice, ..Scheduling::normal() },
                    1 => Scheduling::fifo(priority, 0),
                    _ => Scheduling { policy: Policy::RoundRobin, ..Scheduling::fifo(priority, RESET_ON_FORK) },
                };
                state.threads.get_mut(&tid).unwrap().scheduling = scheduling;
            }
        });
        let mut before = host.state();
        let control = control(&host, &directory);
        let text = ["ptp4l", "ovs-vswitchd"].map(|name| {
            format!("[[host_service]]\nunit = \"{name}.service\"\nuser = \"openvswitch\"\n{asked}\n")
        });
        control.apply_profile(&profile(&text.concat())).unwrap();
        host.edit(|state| state.threads.retain(|tid, _| !gone.contains(tid)));
        before.threads.retain(|tid, _| !gone.contains(tid));
        let undone = control.undo().unwrap();
        prop_assert!(undone.failed.is_empty() && undone.changed_by_others.is_empty(), "{:?}", undone);
        prop_assert_eq!(host.state(), before);
    }
}
