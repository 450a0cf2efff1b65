//! The receive path's profile: what it sets, refuses, keeps up to date and takes back.

use std::fs;

use super::scenario::{control, paper_host, paper_target};
use crate::Blame;
use crate::engine::State;
use crate::error::HostError;
use crate::fake::{FakeFlowSteering, FakeHost, FakeState};
use crate::method::Method;
use crate::parse::{PF_KTHREAD, PF_USER_WORKER};
use crate::profile::{Profile, file};
use crate::settings::links::{FlowMatch, FlowRule};
use crate::settings::threads::{RESET_ON_FORK, Scheduling};

pub(super) const FILE: &str = r#"
[net]
budget_packets = 64
budget_time = "4ms"
levels_from = 70

[kernel]
ksoftirqd = "normal"
rcu = 3
fair_server = "2ms"

[class.rt]
irq = 80
vhost = 75
vcpu = 70
path_cpus = [1]
tap_qdisc = "noqueue"

[class.bulk]
irq = "normal"
napi = "normal"
threaded_napi = true
tap_batch = 8

[[nic]]
name = "rt0"
class = "rt"
queues = [{ queue = 1, class = "bulk" }]
steer = [{ queue = 1, mac = "52:54:00:00:00:09" }]

[[nic]]
name = "bulk0"
class = "bulk"

[[vm]]
name = "rt"
class = "rt"

[[vm]]
name = "bulk"
class = "bulk"

[[vm]]
name = "absent"
class = "rt"
"#;

pub(super) fn profile(text: &str) -> Profile {
    file::parse("steadyvm.toml", text).unwrap()
}

pub(super) fn host() -> FakeHost {
    let host = paper_host(2);
    host.edit(|state| {
        state
            .flow_steering
            .insert("rt0".into(), FakeFlowSteering::default());
    });
    host
}

/// The state without the NAPI threads that `threaded` has started: the kernel keeps them.
pub(super) fn kept(mut state: FakeState) -> FakeState {
    state
        .threads
        .retain(|_, thread| !thread.comm.starts_with("napi/"));
    state.napi_threads.clear();
    state
}

fn directory() -> tempfile::TempDir {
    super::scenario::directory()
}

#[test]
fn every_class_gets_its_rank_and_undo_takes_all_of_it_back() {
    let (host, directory) = (host(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    let applied = control.apply_profile(&profile(FILE)).unwrap();
    assert_eq!(applied.warnings.len(), 1, "{:?}", applied.warnings);
    assert!(applied.warnings[0].contains("\"absent\" does not run"));
    let state = host.state();
    let of = |tid: u32| state.threads[&tid].scheduling;
    // Queue 0 of rt0 is class rt, its queue 1 and all of bulk0 are class bulk.
    assert_eq!(of(40), Scheduling::fifo(80, 0));
    assert_eq!(
        (of(41), of(44), of(45)),
        (
            Scheduling::normal(),
            Scheduling::normal(),
            Scheduling::normal()
        )
    );
    assert_eq!(of(109), Scheduling::fifo(75, 0));
    assert_eq!(of(102), Scheduling::fifo(70, RESET_ON_FORK));
    assert_eq!(
        of(101),
        Scheduling::normal(),
        "VCPU 0 keeps the guest's housekeeping"
    );
    assert_eq!(of(13), Scheduling::fifo(3, 0));
    assert_eq!(of(209), Scheduling::normal());
    assert_eq!(state.irqs[&30].cpus.to_string(), "1");
    assert_eq!(
        state.irqs[&31].cpus.to_string(),
        "0-1",
        "queue 1's class has no CPUs"
    );
    assert_eq!(state.threads[&109].cpus.to_string(), "1");
    assert_eq!(state.files["/proc/sys/net/core/netdev_budget"], "64\n");
    assert_eq!(
        state.files["/proc/sys/net/core/netdev_budget_usecs"],
        "4000\n"
    );
    let server = |name| state.files[&crate::settings::fair_server::file(1, name)].as_str();
    assert_eq!(
        (server("runtime"), server("period")),
        ("2000000\n", "40000000\n")
    );
    assert_eq!(state.qdiscs["tap-rt"], "noqueue");
    assert!(!state.qdiscs.contains_key("tap-bulk"));
    let steering = &state.flow_steering["rt0"];
    let rule = FlowRule {
        matches: FlowMatch::DestinationMac([0x52, 0x54, 0, 0, 0, 9]),
        queue: 1,
    };
    assert!(steering.on);
    assert_eq!(steering.rules[&0], Some(rule));
    // bulk0 polls in threads, rt0 in its IRQ threads.
    let threaded = |nic: &str| {
        &state.files[&format!("{}/threaded", state.links[&format!("/sys/class/net/{nic}")])]
    };
    assert_eq!(
        (threaded("rt0").as_str(), threaded("bulk0").as_str()),
        ("0\n", "1\n")
    );
    let shown = control.show().unwrap();
    assert_eq!(
        (shown.state, shown.method),
        (State::Applied, Some(Method::RtProfile.into()))
    );
    assert_eq!(shown.settings.len(), applied.in_force);
    assert!(
        shown.settings.iter().all(|setting| setting.holds),
        "{:?}",
        shown.settings
    );
    let undone = control.undo_profile().unwrap();
    assert_eq!(undone.failed, [] as [String; 0]);
    assert_eq!(kept(host.state()), kept(before));
}

#[test]
fn a_plan_names_the_vms_and_their_threads_that_settings_are_of() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    let plan = control.plan_profile(&profile(FILE)).unwrap();
    let names: Vec<_> = plan.vms.iter().map(|vm| vm.name.as_str()).collect();
    assert_eq!(names, ["rt", "bulk", "absent"]);
    assert_eq!((plan.vms[2].pid, plan.vms[2].threads.len()), (None, 0));
    let rt = &plan.vms[0];
    assert!(rt.pid.is_some());
    // Each thread of the VM that a step is of is among them, and says what it is.
    let of_rt = plan.steps.iter().filter_map(|step| {
        let what = rt.threads.get(&step.change.thread()?)?;
        Some(what.as_str())
    });
    let of_rt: Vec<_> = of_rt.collect();
    assert!(
        of_rt.iter().any(|what| what.starts_with("VCPU ")),
        "{of_rt:?}"
    );
    assert!(of_rt.contains(&"vhost worker"), "{of_rt:?}");
}

#[test]
fn threads_of_the_monitor_have_the_ranks_of_its_class() {
    let host = paper_host(2);
    host.thread(100, 120, "IO iothread0", 0);
    let before = host.state();
    let directory = directory();
    let control = control(&host, &directory);
    let with = |lines: &str| {
        format!(
            "[class.rt]\nvcpu = 70\n{lines}[[nic]]\nname = \"rt0\"\nclass = \"rt\"\n\
             [[vm]]\nname = \"rt\"\nclass = \"rt\"\n"
        )
    };
    let rank = |tid: u32| host.state().threads[&tid].scheduling;
    // Nobody asked.
    control.apply_profile(&profile(&with(""))).unwrap();
    assert_eq!([rank(100), rank(120)], [Scheduling::normal(); 2]);

    let plan = control.plan_profile(&profile(&with("io = 71\nmain = 72\n")));
    let threads = &plan.unwrap().vms[0].threads;
    assert_eq!(
        (&*threads[&100], &*threads[&120]),
        ("main thread", "IO thread")
    );
    control
        .apply_profile(&profile(&with("io = 71\nmain = 72\n")))
        .unwrap();
    // What the monitor starts later is no real-time thread.
    assert_eq!(rank(100), Scheduling::fifo(72, RESET_ON_FORK));
    assert_eq!(rank(120), Scheduling::fifo(71, RESET_ON_FORK));
    control.undo().unwrap();
    assert_eq!(kept(host.state()), kept(before));

    for (lines, what) in [
        ("io = 69\n", "io = 69 stands below vcpu = 70"),
        (
            "main = \"normal\"\n",
            "main = normal stands below vcpu = 70",
        ),
    ] {
        let error = file::parse("steadyvm.toml", &with(lines))
            .unwrap_err()
            .to_string();
        assert!(error.contains(what), "{error}");
    }
    // A tenant keeps its monitor busy as it likes.
    let below = format!("[kernel]\nrcu = 77\n{}", with("main = 79\n"));
    let error = file::parse("steadyvm.toml", &below)
        .unwrap_err()
        .to_string();
    assert!(error.contains("rcu = 77"), "{error}");
}

#[test]
fn threads_that_a_setting_starts_get_their_rank_in_the_same_apply() {
    let (host, directory) = (host(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    let text =
        "[class.c]\nthreaded_napi = true\nnapi = 60\n[[nic]]\nname = \"bulk0\"\nclass = \"c\"\n";
    let plan = control.plan_profile(&profile(text)).unwrap();
    assert_eq!(plan.steps.len(), 1, "the threads do not exist yet");
    assert_eq!(host.mutations(), 0);
    control.apply_profile(&profile(text)).unwrap();
    for tid in [64, 65] {
        assert_eq!(
            host.state().threads[&tid].scheduling,
            Scheduling::fifo(60, 0)
        );
    }
    control.undo_profile().unwrap();
    for tid in [64, 65] {
        assert_eq!(host.state().threads[&tid].scheduling, Scheduling::normal());
    }
    assert_eq!(kept(host.state()), kept(before));
}

#[test]
fn a_queue_of_threaded_napi_has_a_thread_of_its_own_class() {
    let (host, directory) = (host(), directory());
    let text = "[class.a]\nthreaded_napi = true\nnapi = 60\n[class.b]\nnapi = 70\npath_cpus = [0]\n\
                [[nic]]\nname = \"rt0\"\nclass = \"a\"\nqueues = [{ queue = 1, class = \"b\" }]\n";
    control(&host, &directory)
        .apply_profile(&profile(text))
        .unwrap();
    let state = host.state();
    assert_eq!(state.threads[&60].scheduling, Scheduling::fifo(60, 0));
    assert_eq!(state.threads[&61].scheduling, Scheduling::fifo(70, 0));
    assert_eq!(state.threads[&61].cpus.to_string(), "0");
    // One NAPI for the whole NIC cannot be two queues'.
    let host = self::host();
    host.edit(|state| state.napi_threads.insert("rt0".into(), vec![60]));
    let before = host.state();
    let other = self::directory();
    let error = control(&host, &other)
        .apply_profile(&profile(text))
        .unwrap_err();
    assert!(
        error.to_string().contains("cannot be told apart"),
        "{error}"
    );
    assert_eq!(error.blame().exit_code(), 3);
    assert_eq!(kept(host.state()), kept(before));
}

#[test]
fn a_ranked_cards_packets_stay_in_the_context_that_polls_them() {
    let (host, directory) = (host(), directory());
    let steering = |card: &str, slot: u32| {
        format!("/sys/devices/pci0000:00/0000:00:{slot:02}.0/net/{card}/queues/rx-0/rps_cpus")
    };
    let [ranked, normal] = [steering("rt0", 30), steering("bulk0", 34)];
    for path in [&ranked, &normal] {
        assert!(host.state().files.contains_key(path), "{path}");
        host.writable_file(path, "00000000,00000003\n");
    }
    let before = host.state();
    let control = control(&host, &directory);
    control.apply_profile(&profile(FILE)).unwrap();
    let state = host.state();
    assert_eq!(state.files[&ranked], "0\n");
    assert_eq!(state.files[&normal], before.files[&normal]);
    control.undo_profile().unwrap();
    assert_eq!(kept(host.state()), kept(before));
}

/// What came by no NAPI of its own waits in a CPU's backlog, for ksoftirqd or, since Linux 6.10, for a thread of PREEMPT_RT.
#[test]
fn the_backlogs_threads_have_ksoftirqds_rank() {
    let (host, directory) = (host(), directory());
    host.thread(19, 19, "backlog_napi/0", PF_KTHREAD);
    let rank = |to: Scheduling| {
        host.edit(|state| {
            for tid in [12, 19] {
                state.threads.get_mut(&tid).unwrap().scheduling = to;
            }
        });
    };
    rank(Scheduling::fifo(60, 0));
    let before = host.state();
    let control = control(&host, &directory);
    control.apply_profile(&profile(FILE)).unwrap();
    for tid in [12, 19] {
        let found = host.state().threads[&tid].scheduling;
        assert_eq!(found, Scheduling::normal(), "{tid}");
    }
    control.undo_profile().unwrap();
    assert_eq!(kept(host.state()), kept(before));
}

#[test]
fn applying_again_changes_only_what_does_not_hold() {
    let (host, directory) = (host(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    let first = control.apply_profile(&profile(FILE)).unwrap();
    let (mutations, state) = (host.mutations(), host.state());
    let again = control.apply_profile(&profile(FILE)).unwrap();
    assert_eq!((again.steps.len(), again.in_force), (0, first.in_force));
    assert_eq!(host.mutations(), mutations);
    // A VM is started and someone else has set an IRQ thread back.
    host.thread(300, 300, "qemu-system-x86", 0);
    host.thread(300, 301, "CPU 0/KVM", 0);
    host.thread(300, 302, "CPU 1/KVM", 0);
    host.thread(300, 309, "vhost-300", PF_USER_WORKER);
    host.kvm_vm(300, 2);
    host.file("/proc/300/cmdline", "qemu\0-name\0absent\0");
    host.edit(|state| state.threads.get_mut(&40).unwrap().scheduling = Scheduling::fifo(50, 0));
    let later = control.apply_profile(&profile(FILE)).unwrap();
    assert_eq!(later.warnings, [] as [String; 0]);
    let subjects: Vec<String> = later
        .steps
        .iter()
        .map(|step| step.change.subject())
        .collect();
    assert_eq!(subjects.len(), 4, "{subjects:?}");
    assert_eq!(host.state().threads[&40], state.threads[&40]);
    assert_eq!(
        host.state().threads[&309].scheduling,
        Scheduling::fifo(75, 0)
    );
    control.undo_profile().unwrap();
    let mut after = host.state();
    after.files.remove("/proc/300/cmdline");
    assert_eq!(after.threads[&309].scheduling, Scheduling::normal());
    assert_eq!(
        after.threads[&40], before.threads[&40],
        "as it was before the first apply"
    );
    assert_eq!(after.files, before.files);
}

#[test]
fn what_a_new_profile_does_not_want_is_taken_back() {
    let (host, directory) = (host(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    control.apply_profile(&profile(FILE)).unwrap();
    let smaller = profile(
        "[net]\nbudget_packets = 32\n[class.c]\ntap_qdisc = \"prio\"\n[[vm]]\nname = \"rt\"\nclass = \"c\"\n",
    );
    let plan = control.plan_profile(&smaller).unwrap();
    assert_eq!(plan.steps.len(), 2);
    let applied = control.apply_profile(&smaller).unwrap();
    assert_eq!((applied.steps.len(), applied.in_force), (2, 2));
    assert_eq!(applied.taken_back.restored, plan.taken_back.len());
    let mut expected = kept(before.clone());
    expected
        .files
        .insert("/proc/sys/net/core/netdev_budget".into(), "32\n".into());
    expected.qdiscs.insert("tap-rt".into(), "prio".into());
    assert_eq!(kept(host.state()), expected);
    control.undo_profile().unwrap();
    assert_eq!(kept(host.state()), kept(before));
}

#[test]
fn what_does_not_fit_the_host_is_refused_and_changes_nothing() {
    let host = host();
    host.file("/sys/class/net/br0/mtu", "1500\n");
    let class = "[class.c]\nirq = 60\n";
    let nic = |name: &str, more: &str| {
        format!("{class}[[nic]]\nname = \"{name}\"\nclass = \"c\"\n{more}")
    };
    for (text, code, what) in [
        (
            nic("eth9", ""),
            2,
            "line 3 column 1: there is no network interface `eth9`",
        ),
        (nic("br0", ""), 2, "br0 has no interrupt"),
        (
            nic("rt0", "queues = [{ queue = 5, class = \"c\" }]"),
            2,
            "rt0 has no queue 5",
        ),
        (
            nic("rt0", "steer = [{ queue = 7, udp = 1 }]"),
            2,
            "rt0 has no queue 7",
        ),
        (
            nic("bulk0", "steer = [{ queue = 0, udp = 1 }]"),
            3,
            "bulk0 cannot steer",
        ),
        (
            nic("rt0", "").replace("irq = 60", "path_cpus = [0, 7]"),
            2,
            "not all are online",
        ),
    ] {
        let (before, directory) = (host.state(), directory());
        let error = control(&host, &directory)
            .apply_profile(&profile(&text))
            .unwrap_err();
        assert_eq!(error.blame().exit_code(), code, "{error}");
        assert!(error.to_string().contains(what), "{error}");
        assert_eq!(host.state(), before);
    }
}

#[test]
fn a_queueing_discipline_that_someone_set_is_left() {
    let (host, directory) = (host(), directory());
    host.edit(|state| state.qdiscs.insert("tap-rt".into(), "htb".into()));
    let control = control(&host, &directory);
    let applied = control.apply_profile(&profile(FILE)).unwrap();
    assert!(
        applied
            .warnings
            .iter()
            .any(|warning| warning.contains("htb"))
    );
    assert_eq!(host.state().qdiscs["tap-rt"], "htb");
    control.undo_profile().unwrap();
    assert_eq!(host.state().qdiscs["tap-rt"], "htb");
}

/// libvirt gives its taps `noqueue`, and QEMU makes a VM before its virtual CPUs.
#[test]
fn a_domain_that_libvirt_starts_is_no_cause_for_a_warning_or_an_error() {
    let (host, directory) = (host(), directory());
    host.edit(|state| state.qdiscs.insert("tap-rt".into(), "noqueue".into()));
    let command = "qemu-system-x86_64\0-name\0guest=absent,debug-threads=on\0";
    host.file("/proc/700/cmdline", command);
    host.thread(700, 700, "qemu-system-x86", 0);
    host.kvm_vm(700, 0);
    let control = control(&host, &directory);
    let applied = control.apply_profile(&profile(FILE)).unwrap();
    assert_eq!(applied.warnings.len(), 1, "{:?}", applied.warnings);
    assert!(applied.warnings[0].contains("\"absent\" does not run"));
    control.undo_profile().unwrap();
    assert_eq!(host.state().qdiscs["tap-rt"], "noqueue");
}

/// A monitor that exits loses its threads before its files: it does not run, and that is no error.
#[test]
fn a_vm_that_is_about_to_end_is_no_error() {
    const EXITING: u64 = 0x4;
    let (host, directory) = (host(), directory());
    let command = "qemu-system-x86_64\0-name\0guest=absent,debug-threads=on\0";
    host.file("/proc/700/cmdline", command);
    host.thread(700, 700, "qemu-system-x86", EXITING);
    host.kvm_vm(700, 1);
    let control = control(&host, &directory);
    let applied = control.apply_profile(&profile(FILE)).unwrap();
    assert!(applied.warnings[0].contains("\"absent\" does not run"));
    control.undo_profile().unwrap();
    // One that goes on and cannot be told is one.
    host.thread(700, 700, "qemu-system-x86", 0);
    let error = control.apply_profile(&profile(FILE)).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no thread that is known as a VCPU"),
        "{error}"
    );
}

#[test]
fn flow_rules_of_others_keep_their_places() {
    let (host, directory) = (host(), directory());
    host.edit(|state| {
        let steering = state.flow_steering.get_mut("rt0").unwrap();
        steering.rules.insert(0, None);
        steering.rules.insert(2, None);
    });
    let before = host.state();
    let control = control(&host, &directory);
    control.apply_profile(&profile(FILE)).unwrap();
    let rules = host.state().flow_steering["rt0"].rules.clone();
    assert_eq!(rules.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
    assert!(rules[&1].is_some());
    control.undo_profile().unwrap();
    assert_eq!(kept(host.state()), kept(before));
}

#[test]
fn methods_and_profiles_do_not_mix() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    control.apply(&paper_target(), Method::Dedicated).unwrap();
    let error = control.apply_profile(&profile(FILE)).unwrap_err();
    assert!(matches!(error, HostError::InForce { .. }), "{error}");
    let error = control.undo_profile().unwrap_err();
    assert_eq!(error.blame(), Blame::Input);
    assert!(error.to_string().contains("steadyvm undo"), "{error}");
    control.undo().unwrap();
    control.apply_profile(&profile(FILE)).unwrap();
    let error = control
        .apply(&paper_target(), Method::PreemptRt)
        .unwrap_err();
    assert!(matches!(error, HostError::InForce { .. }), "{error}");
}

#[test]
fn method_rt_profile_puts_the_other_nics_below_the_rt_path() {
    let (host, directory) = (host(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    let plan = control.plan(&paper_target(), Method::RtProfile).unwrap();
    assert_eq!(host.state(), before);
    let applied = control.apply(&paper_target(), Method::RtProfile).unwrap();
    assert!(applied.steps.len() >= plan.steps.len());
    let state = host.state();
    for (tid, scheduling) in [
        (40, Scheduling::fifo(80, 0)),
        (109, Scheduling::fifo(75, 0)),
        (102, Scheduling::fifo(70, RESET_ON_FORK)),
        (64, Scheduling::normal()),
    ] {
        assert_eq!(state.threads[&tid].scheduling, scheduling, "{tid}");
    }
    // Applying again is no error and changes nothing.
    let mutations = host.mutations();
    let again = control.apply(&paper_target(), Method::RtProfile).unwrap();
    assert_eq!((again.steps.len(), host.mutations()), (0, mutations));
    control.undo().unwrap();
    assert_eq!(kept(host.state()), kept(before));
}

#[test]
fn shorter_pieces_follow_longer_ones_and_undo_knows_the_first() {
    let (host, directory) = (host(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    for piece_us in [20_000, 1500, 700] {
        let text = format!("[kernel]\nfair_server = \"{piece_us}us\"\n");
        let applied = control.apply_profile(&profile(&text)).unwrap();
        assert_eq!((applied.steps.len(), applied.in_force), (2, 2));
        let runtime = &host.state().files[&crate::settings::fair_server::file(0, "runtime")];
        assert_eq!(runtime, &format!("{piece_us}000\n"));
        assert!(
            control
                .show()
                .unwrap()
                .settings
                .iter()
                .all(|setting| setting.holds)
        );
    }
    assert_eq!(control.undo_profile().unwrap().restored, 2);
    assert_eq!(host.state(), before);
}

#[test]
fn a_journal_of_another_version_is_named_and_kept() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    control.apply(&paper_target(), Method::PreemptRt).unwrap();
    let path = directory.path().join("state/journal.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let other = text.replacen("\"schema_version\":2", "\"schema_version\":3", 1);
    assert_ne!(text, other);
    fs::write(&path, &other).unwrap();
    let in_force = host.state();
    let error = control.undo().unwrap_err();
    assert!(error.to_string().contains("version is 3"), "{error}");
    assert_eq!(error.blame().exit_code(), 3);
    assert_eq!(
        (fs::read_to_string(&path).unwrap(), host.state()),
        (other, in_force)
    );
    fs::write(&path, &text).unwrap();
    assert_eq!(control.undo().unwrap().restored, 7);
}
