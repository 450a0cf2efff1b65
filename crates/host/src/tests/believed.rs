//! Who is believed that a process is a VM, and what that costs.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use steadyvm_config::File;

use crate::control::HostControl;
use crate::discover::{self, Processes, VmSelector};
use crate::fake::FakeHost;
use crate::fake::paper::paper_host;
use crate::method::{Method, Target};
use crate::profile::file;
use crate::settings::Machine;
use crate::settings::files::HostTree;
use crate::settings::threads::Scheduling;
use steadyvm_config::User;

const PASSWD: &str =
    "root:x:0:0::/root:/bin/sh\nlibvirt-qemu:x:64055:994::/:\nalice:x:1000:1000::/:\n";

/// A host whose process 1 is in the namespaces of all that have none of their own.
fn host() -> FakeHost {
    let host = FakeHost::new(2);
    host.file("/etc/passwd", PASSWD);
    host
}

/// A VM with one VCPU, of a user, by QEMU's words.
fn qemu(host: &FakeHost, pid: u32, user: u32, name: &str) {
    vm(host, pid, user, &format!("qemu\0-name\0guest={name}\0"));
}

fn vm(host: &FakeHost, pid: u32, user: u32, command_line: &str) {
    host.thread(pid, pid, "qemu-system-x86", 0);
    host.thread(pid, pid + 1, "CPU 0/KVM", 0);
    host.kvm_vm(pid, 1);
    host.user(pid, user);
    host.file(&format!("/proc/{pid}/cmdline"), command_line);
}

fn cgroup(host: &FakeHost, pid: u32, path: &str) {
    host.file(&format!("/proc/{pid}/cgroup"), &format!("0::{path}\n"));
}

fn namespaces(host: &FakeHost, pid: u32, kind: &str, number: u32) {
    let path = format!("/proc/{pid}/ns/{kind}");
    host.edit(|state| state.links.insert(path, format!("{kind}:[{number}]")));
}

/// The process that is found, and what is warned of.
fn find(host: &FakeHost, wanted: &VmSelector, users: &[User]) -> (Option<u32>, Vec<String>) {
    let machine = host.machine();
    let threads = machine.all_threads().unwrap();
    let mut warnings = Vec::new();
    let processes = Processes::of(&threads);
    let found = discover::find_vm(&machine, &processes, wanted, users, &mut warnings).unwrap();
    (found.map(|vm| vm.pid), warnings)
}

fn name(name: &str) -> VmSelector {
    VmSelector::Name(name.into())
}

fn unit(unit: &str) -> VmSelector {
    VmSelector::Unit(unit.into())
}

#[test]
fn a_name_is_believed_of_root_of_libvirts_and_of_whom_the_file_names() {
    let host = host();
    qemu(&host, 100, 1000, "web");
    let (found, warnings) = find(&host, &name("web"), &[]);
    assert_eq!(found, None);
    // Which process, which user, who is believed, what to write.
    for part in [
        "process 100",
        "1000 (alice)",
        "0 (root), 64055 (libvirt-qemu)",
        "`user = \"alice\"`",
    ] {
        assert!(warnings[0].contains(part), "{warnings:?}");
    }
    for user in [User::Name("alice".into()), User::Number(1000)] {
        assert_eq!(find(&host, &name("web"), &[user]), (Some(100), vec![]));
    }
    for user in [0, 64055] {
        host.user(100, user);
        assert_eq!(find(&host, &name("web"), &[]), (Some(100), vec![]));
    }
    // Whom the file names is in libvirt's place, not beside; root is always one.
    let alice = [User::Name("alice".into())];
    assert_eq!(find(&host, &name("web"), &alice).0, None);
    host.user(100, 0);
    assert_eq!(find(&host, &name("web"), &alice).0, Some(100));
    // Libvirt's number on a host without libvirt is anybody's.
    host.user(100, 64055);
    host.file("/etc/passwd", "root:x:0:0::/root:/bin/sh\n");
    assert_eq!(find(&host, &name("web"), &[]).0, None);
    // A user of nobody's name is told by number.
    let (_, warnings) = find(&host, &name("web"), &[]);
    assert!(warnings[0].contains("`user = 64055`"), "{warnings:?}");
}

#[test]
fn a_name_that_is_not_believed_is_told_from_one_that_is() {
    let host = host();
    qemu(&host, 100, 0, "web");
    qemu(&host, 200, 1000, "web");
    qemu(&host, 300, 0, "web");
    namespaces(&host, 1, "pid", 1);
    namespaces(&host, 100, "pid", 1);
    namespaces(&host, 300, "pid", 2);
    let machine = host.machine();
    let threads = machine.all_threads().unwrap();
    let all = discover::all_vms(&machine, &Processes::of(&threads));
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    let expected = ["web", "web (user 1000 (alice))", "web (in a container)"];
    assert_eq!(names, expected);
}

#[test]
fn who_is_not_believed_makes_nothing_ambiguous_whatever_many_they_are() {
    let host = host();
    for pid in (200..300).step_by(10) {
        qemu(&host, pid, 1000, "web");
        cgroup(&host, pid, "/system.slice/web.service");
    }
    qemu(&host, 400, 64055, "web");
    cgroup(&host, 400, "/system.slice/web.service");
    for wanted in [name("web"), unit("web.service")] {
        let (found, warnings) = find(&host, &wanted, &[]);
        assert_eq!(found, Some(400));
        let [warning] = warnings.as_slice() else {
            panic!("{warnings:?}");
        };
        assert!(warning.contains("process 220") && warning.contains("there are more"));
        assert!(!warning.contains("process 230"), "{warning}");
    }
    // Of processes without a VM nothing is said.
    host.edit(|state| state.links.clear());
    assert_eq!(find(&host, &name("web"), &[]), (None, vec![]));
}

/// Real, effective, saved, of files: a program with the set-user-ID bit has root's effective one, and what its caller gave it.
#[test]
fn all_users_of_a_process_have_to_be_believed() {
    let host = host();
    qemu(&host, 100, 0, "web");
    for (users, is_believed) in [
        ("0\t0\t0\t0", true),
        ("1000\t0\t0\t0", false),
        ("0\t1000\t0\t0", false),
        ("0\t0\t1000\t0", false),
        ("1000\t0\t1000\t1000", false),
    ] {
        host.file("/proc/100/status", &format!("Name:\tx\nUid:\t{users}\n"));
        let found = find(&host, &name("web"), &[]).0;
        assert_eq!(found.is_some(), is_believed, "{users}");
    }
}

#[test]
fn a_unit_is_matched_from_the_root_and_never_in_a_container() {
    let host = host();
    qemu(&host, 100, 0, "x");
    for place in [
        "/lxc.payload.web/system.slice/web.service",
        "/machine.slice/machine-a.scope/system.slice/web.service",
        "/user.slice/user-0.slice/user@0.service/app.slice/web.service",
        "/system.slice/docker.service/web.service",
    ] {
        cgroup(&host, 100, place);
        let (found, warnings) = find(&host, &unit("web.service"), &[]);
        assert_eq!(found, None, "{place}");
        assert!(warnings[0].contains(place), "{warnings:?}");
    }
    cgroup(&host, 100, "/system.slice/web.service/vcpus");
    for kind in ["pid", "cgroup"] {
        namespaces(&host, 1, kind, 1);
        namespaces(&host, 100, kind, 1);
    }
    for wanted in [unit("web.service"), name("x")] {
        assert_eq!(find(&host, &wanted, &[]), (Some(100), vec![]));
        for kind in ["pid", "cgroup"] {
            namespaces(&host, 100, kind, 2);
            let (found, warnings) = find(&host, &wanted, &[]);
            assert_eq!(found, None);
            let told = warnings[0].contains("container") && warnings[0].contains("web.service");
            assert!(told, "{warnings:?}");
            namespaces(&host, 100, kind, 1);
        }
    }
    // A cgroup is taken as it is, of whomever, unless the file says of whom.
    namespaces(&host, 100, "cgroup", 2);
    host.user(100, 1000);
    let wanted = VmSelector::Cgroup("/system.slice/web.service".into());
    assert_eq!(find(&host, &wanted, &[]).0, Some(100));
    assert_eq!(find(&host, &wanted, &[User::Number(7)]).0, None);
    assert_eq!(find(&host, &wanted, &[User::Number(1000)]).0, Some(100));
}

/// TOML reads `\x2d` in ordinary quotes as a dash.
#[test]
fn a_unit_whose_escapes_were_read_is_found() {
    let host = host();
    qemu(&host, 100, 0, "x");
    let scope = r"machine-qemu\x2d1\x2dweb.scope";
    cgroup(
        &host,
        100,
        &format!("/machine.slice/{scope}/libvirt/emulator"),
    );
    let file = |quoted: &str| {
        let text = format!("[[vm]]\nname = \"a\"\nclass = \"rt\"\n{quoted}\n");
        let profile = file::of(&File::parse("f", &text).unwrap()).unwrap();
        profile.vms[0].selector()
    };
    for quoted in [
        r"unit = 'machine-qemu\x2d1\x2dweb.scope'",
        r#"unit = "machine-qemu\x2d1\x2dweb.scope""#,
        r#"unit = "machine-qemu\\x2d1\\x2dweb.scope""#,
        r#"cgroup = "/machine.slice/machine-qemu\x2d1\x2dweb.scope""#,
    ] {
        assert_eq!(
            find(&host, &file(quoted), &[]),
            (Some(100), vec![]),
            "{quoted}"
        );
    }
    // The one that is written so is meant, where there are both.
    qemu(&host, 200, 0, "y");
    cgroup(&host, 200, "/machine.slice/machine-qemu-1-web.scope");
    assert_eq!(
        find(&host, &unit("machine-qemu-1-web.scope"), &[]).0,
        Some(200)
    );
    assert_eq!(find(&host, &unit(scope), &[]).0, Some(100));
}

#[test]
fn on_proxmox_the_number_names_a_vm_and_its_tenants_name_does_not() {
    let host = host();
    vm(
        &host,
        100,
        0,
        "kvm\0-id\x00100\0-name\0web,debug-threads=on\0",
    );
    vm(
        &host,
        200,
        0,
        "kvm\0-id\x00101\0-name\0web,debug-threads=on\0",
    );
    vm(
        &host,
        300,
        0,
        "kvm\0-id\x00102\0-name\x00100,debug-threads=on\0",
    );
    assert_eq!(find(&host, &name("100"), &[]), (Some(100), vec![]));
    assert_eq!(find(&host, &name("web"), &[]), (None, vec![]));
    cgroup(&host, 200, "/qemu.slice/101.scope");
    assert_eq!(find(&host, &unit("101.scope"), &[]).0, Some(200));
}

/// `steadyvm up` names its threads, which Linux cuts, and has a file of memory of the whole name.
#[test]
fn vms_of_steadyvm_up_are_told_apart_by_their_whole_names() {
    let host = host();
    let up = |pid: u32, name: &str, has_file: bool| {
        let cut = |role: &str| {
            format!("{role}/{name}")
                .chars()
                .take(15)
                .collect::<String>()
        };
        host.thread(pid, pid, "steadyvm", 0);
        host.thread(pid, pid + 1, &cut("vcpu0"), 0);
        host.kvm_vm(pid, 1);
        host.file(&format!("/proc/{pid}/cmdline"), "steadyvm\0up\0vm.toml\0");
        if has_file {
            let target = format!("/memfd:steadyvm-up:{name} (deleted)");
            host.open(pid, 50, &target, None);
        }
    };
    up(100, "production-a", true);
    up(200, "production-b", true);
    assert_eq!(find(&host, &name("production-a"), &[]), (Some(100), vec![]));
    assert_eq!(find(&host, &name("production-b"), &[]), (Some(200), vec![]));
    assert_eq!(find(&host, &name("production-c"), &[]), (None, vec![]));
    assert_eq!(find(&host, &name("productio"), &[]), (None, vec![]));
    // Of an older one the start alone is known: it counts if nobody else may be meant.
    up(300, "production-c", false);
    assert_eq!(find(&host, &name("production-a"), &[]), (Some(100), vec![]));
    assert_eq!(find(&host, &name("production-c"), &[]), (Some(300), vec![]));
    up(400, "production-d", false);
    let (found, warnings) = find(&host, &name("production-c"), &[]);
    assert_eq!(found, None);
    assert!(warnings[0].contains("has cut"), "{warnings:?}");
    // Nobody takes nine characters of another's name.
    host.user(400, 1000);
    assert_eq!(find(&host, &name("production-c"), &[]).0, Some(300));
    let all = discover::all_vms(
        &host.machine(),
        &Processes::of(&host.machine().all_threads().unwrap()),
    );
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "production-a",
        "production-b",
        "productio",
        "productio (user 1000 (alice))",
    ];
    assert_eq!(names, expected);
}

#[test]
fn what_was_sought_and_what_runs_is_told() {
    let host = host();
    let machine = host.machine();
    let absent = |wanted: &VmSelector| {
        let threads = machine.all_threads().unwrap();
        discover::absent_vm(&machine, &Processes::of(&threads), wanted)
    };
    assert_eq!(
        absent(&name("web1")),
        "no VM is called \"web1\"; no VM runs that KVM knows of"
    );
    qemu(&host, 100, 0, "default_\u{1b}web");
    cgroup(&host, 100, "/system.slice/web@1.service");
    assert_eq!(
        absent(&name("web1")),
        "no VM is called \"web1\"; these run: default_\\u{1b}web (process 100)"
    );
    assert_eq!(
        absent(&unit("web.service")),
        "no VM is in unit web.service; these run: default_\\u{1b}web (process 100 in \
         /system.slice/web@1.service)"
    );
    for pid in (200..300).step_by(10) {
        qemu(&host, pid, 0, &format!("vm{pid}"));
    }
    assert!(absent(&name("web1")).ends_with(", 3 more"));
}

/// A tree that counts how often each file is read.
struct Counting {
    tree: Arc<dyn HostTree>,
    reads: Mutex<BTreeMap<String, usize>>,
}

impl Counting {
    fn count(&self, path: &str) {
        let mut reads = self.reads.lock().unwrap();
        *reads.entry(path.to_owned()).or_default() += 1;
    }
}

impl HostTree for Counting {
    fn read_bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        self.count(path);
        self.tree.read_bytes(path)
    }

    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        self.tree.write(path, value)
    }

    fn write_from(&self, cpu: usize, path: &str, value: &str) -> io::Result<()> {
        self.tree.write_from(cpu, path, value)
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.count(path);
        self.tree.list(path)
    }

    fn real_path(&self, path: &str) -> io::Result<String> {
        self.tree.real_path(path)
    }

    fn link(&self, path: &str) -> io::Result<String> {
        self.count(path);
        self.tree.link(path)
    }

    fn character_device(&self, path: &str) -> io::Result<Option<String>> {
        self.tree.character_device(path)
    }

    fn can_open(&self, path: &str) -> io::Result<()> {
        self.tree.can_open(path)
    }
}

/// It was a reading of every process's cgroup for each VM.
#[test]
fn a_look_reads_each_process_once_however_many_vms_are_looked_for() {
    const VMS: u32 = 40;
    let host = host();
    for number in 0..VMS {
        let pid = 100 + 10 * number;
        qemu(&host, pid, 64055, &format!("vm{number}"));
        cgroup(&host, pid, &format!("/machine.slice/vm-{number}.scope"));
    }
    let counting = Arc::new(Counting {
        tree: Arc::new(host.clone()),
        reads: Mutex::default(),
    });
    let machine = Machine {
        tree: Arc::clone(&counting) as Arc<dyn HostTree>,
        ..host.machine()
    };
    let threads = machine.all_threads().unwrap();
    counting.reads.lock().unwrap().clear();
    let processes = Processes::of(&threads);
    for number in 0..VMS {
        for wanted in [
            unit(&format!("vm-{number}.scope")),
            VmSelector::Cgroup(format!("/machine.slice/vm-{number}.scope")),
            name(&format!("vm{number}")),
            name(&format!("absent{number}")),
        ] {
            let mut warnings = Vec::new();
            let found =
                discover::find_vm(&machine, &processes, &wanted, &[], &mut warnings).unwrap();
            let is_there = !matches!(&wanted, VmSelector::Name(name) if name.starts_with("absent"));
            assert_eq!(found.is_some(), is_there);
            assert_eq!(warnings, [""; 0]);
            if !is_there {
                discover::absent_vm(&machine, &processes, &wanted);
            }
        }
    }
    let reads = counting.reads.lock().unwrap();
    let is_once = |path: &&String| {
        ["cgroup", "cmdline", "status"]
            .iter()
            .any(|file| path.ends_with(file) && path.matches('/').count() == 3)
            || path.starts_with("/etc/")
            || path.starts_with("/sys/")
            || path.contains("/ns/")
    };
    let once: Vec<_> = reads.iter().filter(|(path, _)| is_once(path)).collect();
    assert!(once.len() > 3 * VMS as usize, "{once:?}");
    for (path, count) in once {
        assert_eq!(*count, 1, "{path}");
    }
}

/// Of a process that is named by number, its start is noted: whoever has its number later is another.
#[test]
fn a_later_process_of_the_same_number_gets_nothing() {
    let host = paper_host(2);
    let place = tempfile::tempdir().unwrap();
    let control = HostControl::new(host.machine(), place.path().join("state"));
    host.thread(500, 500, "service", 0);
    let target = Target {
        rt_nics: vec!["rt0".into()],
        rt_processes: vec![500],
        ..Target::default()
    };
    control.apply(&target, Method::PreemptRt).unwrap();
    let ranked = |host: &FakeHost| host.state().threads[&500].scheduling != Scheduling::normal();
    assert!(ranked(&host));
    host.edit(|state| state.threads.remove(&500));
    host.thread(500, 500, "another", 0);
    host.edit(|state| state.threads.get_mut(&500).unwrap().start_time = 4711);
    let desired = control.desired_in_force().unwrap().unwrap();
    let report = control.reconcile(&desired).unwrap();
    assert!(!ranked(&host));
    assert!(
        report
            .warnings
            .iter()
            .any(|it| it == "process 500 has ended"),
        "{:?}",
        report.warnings
    );
}
