//! One fault stops one group: a VM, a card, a part of the host. The others are served, and it is as it was before.

use std::collections::BTreeSet;

use super::crash::crashing;
use super::net::{FILE, host, kept, profile};
use super::scenario::{control, directory};
use crate::control::HostControl;
use crate::cpu_set::CpuSet;
use crate::engine::{Failure, Report};
use crate::fake::{FakeHost, FakeState, Fault};
use crate::planner::Group;
use crate::profile::{Profile, ThreadPriority, VcpuBudget};
use crate::settings::threads::Policy;
use crate::undone::Undone;

/// `FILE` with its second VM ranked, too, by a class of its own: VCPU 0 of VM `bulk` is thread 201.
fn two_vms() -> Profile {
    profile(&format!(
        "{}\n[class.ranked]\nvcpu = 5\n",
        FILE.replace(
            "name = \"bulk\"\nclass = \"bulk\"",
            "name = \"bulk\"\nclass = \"ranked\"",
        )
    ))
}

fn vm(name: &str) -> Group {
    Group::Vm(name.into())
}

fn groups(report: &Report) -> Vec<Group> {
    report
        .failed
        .iter()
        .map(|failure| failure.group.clone())
        .collect()
}

fn apply(control: &HostControl, profile: &Profile) -> Report {
    control.apply_profile_each(profile, &[]).unwrap()
}

fn rank(host: &FakeHost, tid: u32) -> u32 {
    host.state().threads[&tid].scheduling.priority
}

/// Settings that hold of those that a whole apply makes, by group.
fn holding(whole: &Report, host: &FakeHost) -> BTreeSet<(Group, String)> {
    let machine = host.machine();
    let holds = whole
        .steps
        .iter()
        .filter(|step| step.change.read(&machine).is_ok_and(|now| now.is_new));
    holds
        .map(|step| (step.group.clone(), step.change.subject()))
        .collect()
}

#[test]
fn whatever_step_the_kernel_refuses_only_its_group_is_as_it_was() {
    let whole = {
        let (host, directory) = (host(), directory());
        apply(&control(&host, &directory), &two_vms())
    };
    let all: BTreeSet<Group> = whole.steps.iter().map(|step| step.group.clone()).collect();
    assert_eq!(all.len(), 5, "{all:?}");
    let mut failed = BTreeSet::new();
    for at in 0.. {
        let (host, directory) = (host(), directory());
        let before = host.state();
        let control = control(&host, &directory);
        let start = host.mutations();
        host.fault_at(at, Fault::Refuse(libc::EPERM));
        let report = apply(&control, &two_vms());
        let reached = host.mutations() > start + at;
        host.heal();
        if !reached {
            assert_eq!(report.failed, []);
            break;
        }
        // Settings that the host can do without are skipped, as ever.
        let [of_one] = &groups(&report)[..] else {
            assert_eq!((report.failed.len(), report.skipped.len()), (0, 1), "{at}");
            control.undo().unwrap();
            continue;
        };
        let expected: BTreeSet<(Group, String)> = whole
            .steps
            .iter()
            .filter(|step| step.group != *of_one)
            .map(|step| (step.group.clone(), step.change.subject()))
            .collect();
        assert_eq!(holding(&whole, &host), expected, "refused at {at}");
        assert!(report.failed[0].error.contains("Operation not permitted"));
        let shown = control.show().unwrap();
        assert_eq!(shown.failed, report.failed);
        assert!(shown.has_drifted());
        failed.insert(of_one.clone());
        // Tried again, it is served.
        assert_eq!(apply(&control, &two_vms()).failed, []);
        assert!(!control.show().unwrap().has_drifted());
        let undone = control.undo().unwrap();
        assert_eq!(undone.failed, [] as [String; 0]);
        assert_eq!(kept(host.state()), kept(before), "refused at {at}");
    }
    assert_eq!(failed, all, "each group has failed once");
}

#[test]
fn a_group_that_was_served_keeps_what_it_had_if_a_new_setting_fails() {
    let (host, directory) = (host(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    apply(&control, &two_vms());
    // Another rank for each VM's VCPU; that of VM `rt` is refused.
    let mut other = two_vms();
    for vm in &mut other.vms {
        vm.class.vcpu = vm.class.vcpu.map(|_| ThreadPriority::Fifo(6));
        vm.class.cpus = None;
    }
    let start = host.mutations();
    for at in 0..8 {
        host.fault_at(at, Fault::Refuse(libc::EPERM));
        let report = apply(&control, &other);
        host.heal();
        if groups(&report) == [vm("rt")] {
            assert!(host.mutations() > start);
            assert_eq!((rank(&host, 102), rank(&host, 201)), (70, 6));
            let vhost = host.state().threads[&109].cpus.to_string();
            assert_eq!(
                vhost, "1",
                "what it no longer asks for is taken back with the rest only"
            );
            // Not tried again as long as it would be the same.
            let held_off = report.failed.clone();
            let mutations = host.mutations();
            let again = control.apply_profile_each(&other, &held_off).unwrap();
            assert_eq!(again.failed, held_off);
            assert_eq!(host.mutations(), mutations);
            assert_eq!(control.undo().unwrap().changed_by_others, [] as [String; 0]);
            assert_eq!(kept(host.state()), kept(before));
            return;
        }
        apply(&control, &two_vms());
    }
    panic!("VM rt was never refused");
}

#[test]
fn a_card_a_cpu_or_a_vm_that_is_not_there_yet_stops_no_other() {
    let absent_nic = FILE.replace("\"bulk0\"", "\"late0\"");
    let offline = FILE.replace("tap_batch = 8", "path_cpus = [7]");
    for (text, failing) in [
        (absent_nic, vec![Group::Nic("late0".into())]),
        // The class of a queue of rt0, of bulk0 and of a VM.
        (
            offline,
            vec![
                Group::Nic("rt0".into()),
                Group::Nic("bulk0".into()),
                vm("bulk"),
            ],
        ),
    ] {
        let (host, directory) = (host(), directory());
        let control = control(&host, &directory);
        let wanted = profile(&text);
        let error = control.apply_profile(&wanted).unwrap_err();
        assert_eq!(error.blame().exit_code(), 2, "all or nothing: {error}");
        let plan = control.plan_profile_each(&wanted).unwrap();
        let report = apply(&control, &wanted);
        assert_eq!(report.failed, plan.failed);
        assert_eq!(groups(&report), failing);
        assert_eq!(rank(&host, 102), 70, "VM rt is served");
        assert!(
            report
                .failed
                .iter()
                .all(|failure| failure.subject.is_none())
        );
        // Nothing more to do, and it is told again.
        let mutations = host.mutations();
        assert_eq!(apply(&control, &wanted).failed, report.failed);
        assert_eq!(host.mutations(), mutations);
    }
}

#[test]
fn a_card_that_comes_later_is_served_then_and_one_that_goes_takes_nothing_with_it() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    let wanted = profile(&FILE.replace("\"bulk0\"", "\"late0\""));
    assert_eq!(
        groups(&apply(&control, &wanted)),
        [Group::Nic("late0".into())]
    );
    crate::fake::paper::nic(&host, "late0", 38, 50);
    host.edit(|state| drop(state.napi_threads.insert("late0".into(), vec![68, 69])));
    let report = apply(&control, &wanted);
    assert_eq!(report.failed, []);
    assert_eq!(host.state().threads[&50].scheduling.policy, Policy::Normal);
    host.edit(|state| {
        for tid in [50, 51, 68, 69] {
            state.threads.remove(&tid);
        }
        let of_card = |path: &String| path.contains("late0");
        state.files.retain(|path, _| !of_card(path));
        state.links.retain(|path, _| !of_card(path));
        state.irqs.retain(|_, irq| !irq.name.starts_with("late0"));
    });
    let report = apply(&control, &wanted);
    assert_eq!(groups(&report), [Group::Nic("late0".into())]);
    assert_eq!(rank(&host, 102), 70);
    let settings = control.show().unwrap().settings;
    let of_card = settings
        .iter()
        .filter(|setting| setting.subject.contains("late0"));
    assert_eq!(of_card.count(), 0, "what has gone is not recorded any more");
}

#[test]
fn an_ambiguous_name_stops_its_vm_alone_whatever_the_order_of_the_tables() {
    let table = |name: &str| format!("[[vm]]\nname = \"{name}\"\nclass = \"{name}\"\n");
    let classes = "[class.rt]\nvcpu = 70\n[class.bulk]\nvcpu = 5\n";
    for order in [["rt", "bulk"], ["bulk", "rt"]] {
        let (host, directory) = (host(), directory());
        // A second process that is called as VM `rt` is.
        host.file("/proc/300/cmdline", "qemu-system-x86_64\0-name\0guest=rt\0");
        host.thread(300, 300, "qemu-system-x86", 0);
        host.thread(300, 301, "CPU 0/KVM", 0);
        host.kvm_vm(300, 1);
        let before = host.state();
        let control = control(&host, &directory);
        let wanted = profile(&format!("{classes}{}{}", table(order[0]), table(order[1])));
        let report = apply(&control, &wanted);
        assert_eq!(groups(&report), [vm("rt")], "{order:?}");
        assert!(report.failed[0].error.contains("process 300"));
        assert_eq!(
            (rank(&host, 102), rank(&host, 301), rank(&host, 201)),
            (0, 0, 5)
        );
        control.undo().unwrap();
        assert_eq!(host.state(), before);
    }
}

#[test]
fn two_tables_that_mean_one_vm_fail_both_and_flip_nothing() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    let mut wanted = two_vms();
    let mut other = wanted.vms[0].clone();
    "other".clone_into(&mut other.name);
    other.pid = Some(100);
    other.class.vcpu = Some(ThreadPriority::Fifo(60));
    wanted.vms.push(other);
    let report = apply(&control, &wanted);
    assert_eq!(groups(&report), [vm("rt"), vm("other")]);
    let error = &report.failed[0].error;
    assert!(
        error.contains("\"rt\"") && error.contains("\"other\"") && error.contains("60"),
        "{error}"
    );
    assert_eq!((rank(&host, 102), rank(&host, 201)), (0, 5));
    let mutations = host.mutations();
    apply(&control, &wanted);
    assert_eq!(host.mutations(), mutations);
}

fn budget(profile: &mut Profile, name: &str, vcpu: u32, percent: u64, cpu: Option<u32>) {
    let budget = VcpuBudget {
        runtime_ns: percent * 100_000,
        deadline_ns: 10_000_000,
        period_ns: 10_000_000,
        cpu,
        rank: 0,
    };
    let mut vms = profile.vms.iter_mut();
    let vm = vms.find(|vm| vm.name == name).unwrap();
    vm.budgets.insert(vcpu, budget);
}

/// Our admission in the kernel's place: a VM that comes later pushes nobody out, wherever its table stands.
#[test]
fn a_budget_that_has_no_room_stops_its_vm_and_never_one_that_runs() {
    let (host, directory) = (host(), directory());
    host.file("/proc/sys/kernel/osrelease", "6.12.117-rt\n");
    let control = control(&host, &directory);
    let mut first = two_vms();
    budget(&mut first, "bulk", 0, 60, Some(1));
    assert_eq!(apply(&control, &first).failed, []);
    let mut both = first.clone();
    // `rt` stands before `bulk` in the file.
    budget(&mut both, "rt", 1, 60, Some(1));
    let report = apply(&control, &both);
    assert_eq!(groups(&report), [vm("rt")]);
    assert!(
        report.failed[0].error.contains("CPU 1"),
        "{:?}",
        report.failed
    );
    let state = host.state();
    assert_eq!(state.threads[&201].scheduling.policy, Policy::Deadline);
    assert_eq!(state.threads[&201].cpus, CpuSet::single(1));
    assert_eq!(rank(&host, 102), 70, "as it was before");
}

/// What the fair servers of a host have, CPU by CPU.
fn fair_servers(state: &FakeState) -> Vec<[String; 2]> {
    let value = |cpu, name| state.files[&crate::settings::fair_server::file(cpu, name)].clone();
    let cpus = state.online.iter();
    cpus.map(|cpu| [value(cpu, "runtime"), value(cpu, "period")])
        .collect()
}

/// A watch that was killed while a VM started goes on from its journal: nothing of a VM that runs is taken back.
#[test]
fn an_apply_that_was_interrupted_is_adopted() {
    let (total, whole) = {
        let (host, directory) = (host(), directory());
        apply(&control(&host, &directory), &two_vms());
        (host.mutations(), fair_servers(&host.state()))
    };
    let mut halves = 0;
    for at in 0..total {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let (host, directory) = (host(), directory());
            let before = host.state();
            let control = control(&host, &directory);
            host.fault_at(at, fault);
            assert!(crashing(|| drop(apply(&control, &two_vms()))), "{at}");
            host.heal();
            let (old, found) = (fair_servers(&before), fair_servers(&host.state()));
            let mut values = found.iter().zip(old.iter().zip(&whole));
            let is_half = values.any(|(now, (old, new))| now != old && now != new);
            halves += usize::from(is_half);
            let report = apply(&control, &two_vms());
            assert_eq!(report.failed, []);
            // Each setting is made once, by one of the two. A fair server that is half made is begun anew.
            let again = usize::from(matches!(fault, Fault::CrashBefore));
            let more = host.mutations() - (total + again);
            assert!(more == 0 || is_half, "{more} more: {fault:?} at {at}");
            assert!(!control.show().unwrap().has_drifted());
            let undone = control.undo().unwrap();
            assert_eq!(
                (undone.failed.len(), undone.changed_by_others.len()),
                (0, 0)
            );
            assert_eq!(kept(host.state()), kept(before), "{fault:?} at {at}");
            assert_eq!(control.undo().unwrap(), Undone::default());
        }
    }
    assert!(halves > 0 && halves < total, "{halves} of {total}");
}

/// A crash while a group fails, and one while it is taken back, are undone as any other.
#[test]
fn a_crash_while_a_group_is_taken_back_is_undone() {
    for refused in 0..12 {
        for at in refused + 1..refused + 8 {
            let (host, directory) = (host(), directory());
            let before = host.state();
            let control = control(&host, &directory);
            host.fault_at(refused, Fault::Refuse(libc::EPERM));
            host.fault_at(at, Fault::CrashAfter);
            let crashed = crashing(|| drop(apply(&control, &two_vms())));
            host.heal();
            let undone = control.undo().unwrap();
            assert_eq!(
                (undone.failed.len(), undone.changed_by_others.len()),
                (0, 0)
            );
            assert_eq!(kept(host.state()), kept(before), "{refused} {at} {crashed}");
        }
    }
}

#[test]
fn failures_are_told_in_words() {
    let failure = Failure {
        group: vm("a\u{1b}[2J"),
        error: "no".into(),
        subject: None,
    };
    assert_eq!(failure.to_string(), "VM \"a\\u{1b}[2J\": no");
    let json = serde_json::to_string(&failure).unwrap();
    assert_eq!(serde_json::from_str::<Failure>(&json).unwrap(), failure);
    for (group, words) in [
        (Group::Host, "this host"),
        (Group::Nic("eth1".into()), "card eth1"),
        (Group::Process(7), "process 7"),
    ] {
        assert_eq!(group.to_string(), words);
        let json = serde_json::to_string(&group).unwrap();
        assert_eq!(serde_json::from_str::<Group>(&json).unwrap(), group);
    }
}
