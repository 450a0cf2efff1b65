//! Which process is a VM: real processes, and real KVM VMs where this machine makes any.

#![allow(clippy::unwrap_used)]

mod processes;

use std::fs;
use std::path::{Path, PathBuf};

use steadyvm_host::profile::{Class, Profile, TapQdisc, ThreadPriority, VmProfile, file};
use steadyvm_host::{Change, HostControl, HostError, Machine, Plan, RtVm, WantedVm, discover};

use discover::{Processes, User, VmSelector};

use processes::{Looks, Process, has_kvm, make_tap, start};

const MONITOR: &[&str] = &["CPU 0/KVM", "CPU 1/KVM"];

/// A name that no other process of this machine has.
fn name(of: &str) -> String {
    format!("{of}-of-{}", std::process::id())
}

/// A VM with two VCPUs, by QEMU's words.
fn qemu(name: &str) -> Process {
    let looks = Looks {
        vcpus: 2,
        threads: MONITOR,
        ..Looks::default()
    };
    start(
        &looks,
        &["-name", &format!("guest={name},debug-threads=on")],
    )
}

/// Who runs this test: not root everywhere.
fn this_user() -> User {
    // SAFETY: takes no arguments and cannot fail.
    User::Number(unsafe { libc::geteuid() })
}

fn profile(name: &str) -> Profile {
    Profile {
        vms: vec![VmProfile {
            name: name.to_owned(),
            users: vec![this_user()],
            class: Class {
                name: "rt".into(),
                vhost: Some(ThreadPriority::Fifo(75)),
                vcpu: Some(ThreadPriority::Fifo(70)),
                ..Class::default()
            },
            ..VmProfile::default()
        }],
        ..Profile::default()
    }
}

fn plan(profile: &Profile) -> Result<Plan, HostError> {
    let directory = tempfile::tempdir().unwrap();
    let control = HostControl::new(Machine::real(), directory.path().join("state"));
    control.plan_profile(profile)
}

/// The threads that a profile for VM `name` ranks: process and name.
fn ranked(name: &str) -> Result<Vec<(u32, String)>, HostError> {
    ranked_by(&profile(name))
}

fn ranked_by(profile: &Profile) -> Result<Vec<(u32, String)>, HostError> {
    let plan = plan(profile)?;
    let ranked = plan.steps.iter().filter_map(|step| match &step.change {
        Change::ThreadPolicy(change) => {
            let thread = &change.setting.thread;
            Some((thread.pid, thread.comm.clone()))
        }
        _ => None,
    });
    Ok(ranked.collect())
}

#[test]
fn an_impostor_gets_nothing_and_the_vm_its_ranks() {
    if !has_kvm() {
        return;
    }
    let rt = name("rt");
    // Started first, so that it has the lower number.
    let looks = Looks {
        threads: &["CPU 1/KVM", "vhost-1"],
        is_nobody: true,
        ..Looks::default()
    };
    let _impostor = start(&looks, &["-name", &rt]);
    assert_eq!(ranked(&rt).unwrap(), []);
    let vm = qemu(&rt);
    assert_eq!(ranked(&rt).unwrap(), [(vm.pid, "CPU 1/KVM".into())]);
}

fn is_root() -> bool {
    let is_root = this_user() == User::Number(0);
    if !is_root {
        eprintln!("skipped: only root starts processes of others");
    }
    is_root
}

/// What is warned of a VM by name.
fn warnings(name: &str) -> Vec<String> {
    plan(&profile(name)).unwrap().warnings
}

#[test]
fn who_may_use_kvm_is_not_believed_for_that() {
    if !(has_kvm() && is_root()) {
        return;
    }
    let rt = name("believed");
    let looks = Looks {
        vcpus: 2,
        threads: MONITOR,
        is_nobody: true,
        ..Looks::default()
    };
    let impostor = start(&looks, &["-name", &rt]);
    assert_eq!(ranked(&rt).unwrap(), []);
    let told = warnings(&rt).join("\n");
    let who = format!("process {} is of user 65534", impostor.pid);
    assert!(told.contains(&who) && told.contains("`user = "), "{told}");
    // It stands in nobody's way.
    let vm = qemu(&rt);
    assert_eq!(ranked(&rt).unwrap(), [(vm.pid, "CPU 1/KVM".into())]);
    drop(vm);
    let mut profile = profile(&rt);
    profile.vms[0].users = vec![User::Number(65534)];
    let expected = [(impostor.pid, "CPU 1/KVM".into())];
    assert_eq!(ranked_by(&profile).unwrap(), expected);
}

#[test]
fn root_of_a_container_is_not_believed() {
    if !(has_kvm() && is_root()) {
        return;
    }
    let rt = name("contained");
    for wrapper in [
        &["unshare", "--cgroup"][..],
        &["unshare", "--pid", "--fork", "--kill-child"],
    ] {
        let looks = Looks {
            vcpus: 2,
            threads: MONITOR,
            wrapper,
            ..Looks::default()
        };
        let _impostor = start(&looks, &["-name", &rt]);
        assert_eq!(ranked(&rt).unwrap(), [], "{wrapper:?}");
        let told = warnings(&rt).join("\n");
        assert!(told.contains("runs in a container"), "{told}");
        let vm = qemu(&rt);
        let expected = [(vm.pid, "CPU 1/KVM".into())];
        assert_eq!(ranked(&rt).unwrap(), expected, "{wrapper:?}");
    }
}

#[test]
fn what_a_vm_is_started_by_is_not_the_vm() {
    if !has_kvm() {
        return;
    }
    let rt = name("wrapped");
    let looks = Looks {
        vcpus: 2,
        threads: MONITOR,
        wrapper: &["timeout", "600"],
        ..Looks::default()
    };
    let vm = start(&looks, &["-name", &rt]);
    let _search = start(&Looks::default(), &["/srv", "-name", &rt]);
    assert_eq!(ranked(&rt).unwrap(), [(vm.pid, "CPU 1/KVM".into())]);
}

#[test]
fn two_vms_of_one_name_are_both_named() {
    if !has_kvm() {
        return;
    }
    let rt = name("twins");
    let (one, other) = (qemu(&rt), qemu(&rt));
    let error = ranked(&rt).unwrap_err();
    let text = error.to_string();
    for pid in [one.pid, other.pid] {
        assert!(text.contains(&pid.to_string()), "{text}");
    }
    assert_eq!(error.blame().exit_code(), 2);
}

/// A cgroup of the test's own; it goes with this value, after the processes in it.
struct Cgroup {
    directory: PathBuf,
}

impl Cgroup {
    /// Makes `path` below the root of version 2, which a host with version 1 has beside it; none where the test may
    /// not, and says so.
    fn make(path: &str) -> Option<Self> {
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        let is_root = |root: &&str| Path::new(root).join("cgroup.controllers").exists();
        let Some(root) = roots.into_iter().find(is_root) else {
            eprintln!("skipped: cgroups of version 2 are not mounted");
            return None;
        };
        let directory = Path::new(root).join(path);
        if let Err(error) = fs::create_dir_all(&directory) {
            eprintln!("skipped: cannot make {}: {error}", directory.display());
            return None;
        }
        Some(Self { directory })
    }

    fn take(&self, process: &Process) {
        fs::write(self.directory.join("cgroup.procs"), process.pid.to_string()).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.directory);
        // What it is in, if that is the test's, too.
        let _ = self.directory.parent().map(fs::remove_dir);
    }
}

#[test]
fn vms_of_a_unit_or_a_cgroup_are_found_whatever_they_are_called() {
    if !has_kvm() {
        return;
    }
    let slice = format!("svt{}.slice", std::process::id());
    let unit = format!("svt-vm-{}.service", std::process::id());
    let Some(cgroup) = Cgroup::make(&format!("{slice}/{unit}")) else {
        return;
    };
    let called = name("in-unit");
    // What steadyvm.toml says of it.
    let User::Number(user) = this_user() else {
        unreachable!()
    };
    let of_file = |key: &str, value: &str| {
        let text = format!(
            "[class.rt]\nvcpu = 70\n[[vm]]\nname = \"label\"\nclass = \"rt\"\nuser = {user}\n{key} = \"{value}\"\n"
        );
        let profile = file::parse("steadyvm.toml", &text).unwrap();
        let ranked = ranked_by(&profile)?;
        let of_vms = ranked.into_iter().filter(|(_, comm)| comm.ends_with("KVM"));
        Ok::<_, HostError>(of_vms.collect::<Vec<_>>())
    };
    assert_eq!(of_file("unit", &unit).unwrap(), []);
    let (vm, elsewhere) = (qemu(&called), qemu(&name("elsewhere")));
    cgroup.take(&vm);
    let expected = [(vm.pid, "CPU 1/KVM".to_owned())];
    assert_eq!(of_file("unit", &unit).unwrap(), expected);
    assert_eq!(
        of_file("cgroup", &format!("/{slice}/{unit}")).unwrap(),
        expected
    );
    // One above is as good.
    assert_eq!(of_file("cgroup", &format!("/{slice}")).unwrap(), expected);
    assert_eq!(of_file("unit", "svt-other.service").unwrap(), []);
    // Two in it: both are named, with the place of the table.
    cgroup.take(&elsewhere);
    let said = of_file("unit", &unit).unwrap_err().to_string();
    for part in [
        vm.pid.to_string(),
        elsewhere.pid.to_string(),
        "line 3".into(),
        unit.clone(),
    ] {
        assert!(said.contains(&part), "{said}");
    }
    drop((vm, elsewhere));
}

#[test]
fn a_vm_is_found_by_the_name_that_a_command_line_has_or_the_error_names_those_that_run() {
    if !has_kvm() {
        return;
    }
    let rt = name("asked");
    let find = |text: &str| {
        let wanted: WantedVm = text.parse().unwrap();
        wanted.find(&Machine::real(), &mut Vec::new())
    };
    let other = qemu(&name("other"));
    let error = find(&rt).unwrap_err();
    assert_eq!(error.blame().exit_code(), 2);
    let said = error.to_string();
    let running = format!("{} (process {})", name("other"), other.pid);
    assert!(said.contains(&rt) && said.contains(&running), "{said}");
    let vm = qemu(&rt);
    let expected = |rt_vcpus: &[u32]| RtVm {
        pid: vm.pid,
        rt_vcpus: rt_vcpus.to_vec(),
    };
    assert_eq!(find(&rt).unwrap(), expected(&[]));
    assert_eq!(find(&format!("{rt}:1,0")).unwrap(), expected(&[0, 1]));
    assert_eq!(find(&format!("{}:1", vm.pid)).unwrap(), expected(&[1]));
    let twin = qemu(&rt);
    let said = find(&rt).unwrap_err().to_string();
    for pid in [vm.pid, twin.pid] {
        assert!(said.contains(&format!("process {pid}")), "{said}");
    }
}

#[test]
fn vms_are_found_by_any_monitors_words() {
    if !has_kvm() {
        return;
    }
    let rt = name("words");
    let looks = Looks {
        vcpus: 2,
        threads: MONITOR,
        ..Looks::default()
    };
    let mixed = format!("debug-threads=on,guest={rt}");
    let comma = format!("guest={rt},,b");
    for (words, asked) in [
        (&["-name", &mixed][..], rt.clone()),
        (&["-name", &comma], format!("{rt},b")),
        // Proxmox VE: the number, and a name that says nothing.
        (&["-id", "1234567", "-name", &rt], "1234567".into()),
        (&["--id", &rt, "--api-sock", "x"], rt.clone()),
    ] {
        let vm = start(&looks, words);
        let found = ranked(&asked).unwrap();
        assert_eq!(found, [(vm.pid, "CPU 1/KVM".into())], "{words:?} {asked}");
    }
}

#[test]
fn a_vm_of_steadyvm_up_is_found_by_its_threads_and_its_cards_are_ranked() {
    if !has_kvm() {
        return;
    }
    // Linux keeps 15 bytes: enough for the start of a name.
    let rt = format!("u{}x-and-more", std::process::id());
    let cut = |role: &str| format!("{role}/{rt}").chars().take(15).collect::<String>();
    let names = ["vcpu0", "vcpu1", "net0", "disk0"].map(cut);
    let looks = Looks {
        vcpus: 2,
        threads: &[&names[0], &names[1], &names[2], &names[3]],
        ..Looks::default()
    };
    let vm = start(&looks, &["up", "vm.toml"]);
    let expected = [&names[2], &names[1]].map(|name| (vm.pid, name.clone()));
    assert_eq!(ranked(&rt).unwrap(), expected);
}

#[test]
fn only_workers_of_the_kernel_are_vhosts() {
    if !has_kvm() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, "").unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (net, vsock) = (file("vhost-net"), file("vhost-vsock"));
    let rt = name("vhost");
    let workers = |kernel_workers: &[&str], files: &[&str]| {
        let looks = Looks {
            vcpus: 1,
            threads: &["CPU 0/KVM", "vhost-7"],
            kernel_workers,
            files,
            ..Looks::default()
        };
        let vm = start(&looks, &["-name", &rt]);
        let ranked = ranked(&rt).unwrap();
        let names = ranked.into_iter().filter(|(pid, _)| *pid == vm.pid);
        let names: Vec<String> = names.map(|(_, comm)| comm).collect();
        // The VCPU is ranked, too, by KVM's word where debugfs is mounted, else by its thread's name.
        assert_eq!(
            names.len(),
            1 + kernel_workers.len() * usize::from(files == [&net])
        );
        let vhosts = names.into_iter().filter(|name| name.starts_with("vhost"));
        vhosts.collect::<Vec<_>>()
    };
    assert_eq!(workers(&["vhost-8"], &[&net]), ["vhost-8"]);
    // The worker of a device that carries no packets.
    assert_eq!(workers(&["vhost-8"], &[&vsock]), [""; 0]);
    assert_eq!(workers(&[], &[&net]), [""; 0]);
}

#[test]
fn a_process_without_a_vm_is_refused_by_number_too() {
    let looks = Looks {
        threads: MONITOR,
        ..Looks::default()
    };
    let process = start(&looks, &[]);
    let machine = Machine::real();
    let threads = machine.all_threads().unwrap();
    let error = discover::vm(&machine, &threads, process.pid).unwrap_err();
    assert!(error.to_string().contains("kvm-vm"), "{error}");
    assert_eq!(error.blame().exit_code(), 2);
}

#[test]
fn a_tap_of_another_network_namespace_is_left_even_if_one_here_has_its_name() {
    if !has_kvm() {
        return;
    }
    let rt = name("pod");
    let tap = format!("svt{}", std::process::id());
    let mut profile = profile(&rt);
    profile.vms[0].class.tap_qdisc = Some(TapQdisc::Noqueue);
    profile.vms[0].class.tap_batch = Some(4);
    let changes = |has_network_namespace| {
        let looks = Looks {
            vcpus: 2,
            threads: MONITOR,
            // All threads of the process, unlike the system call in one of them.
            wrapper: if has_network_namespace {
                &["unshare", "--net"]
            } else {
                &[]
            },
            tap: &tap,
            ..Looks::default()
        };
        let _vm = start(&looks, &["-name", &rt]);
        let _ours = has_network_namespace.then(|| make_tap(&tap));
        let plan = plan(&profile).unwrap();
        let on_tap = |change: &Change| change.subject().contains(&tap);
        let steps = plan
            .steps
            .iter()
            .filter(|step| on_tap(&step.change))
            .count();
        let told = plan.warnings.iter().any(|told| told.contains("namespace"));
        (steps > 0, told)
    };
    assert_eq!(changes(false), (true, false));
    assert_eq!(changes(true), (false, true));
}

/// A host with many VMs: what one look costs that finds each of them by its unit. Files alone stand for the processes: a
/// machine that tests has no room for so many. By hand: `cargo test --release -p steadyvm-host --test vms -- --ignored
/// --nocapture many`.
#[test]
#[ignore = "prints a time, which depends on the machine"]
fn many_vms_by_unit() {
    const VMS: u32 = 1000;
    let place = tempfile::tempdir().unwrap();
    let write = |path: String, text: &str| {
        let path = place.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let unit = |vm: u32| format!("machine-qemu\\x2d{vm}\\x2dvm{vm}.scope");
    for vm in 0..VMS {
        let pid = 100_000 + 20 * vm;
        let stat = |tid: u32, comm: &str| {
            format!("{tid} ({comm}) S 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {tid} 0 0\n")
        };
        let mut threads = vec![(pid, "qemu-system-x86".to_owned())];
        threads.extend((0..4).map(|number| (pid + 1 + number, format!("CPU {number}/KVM"))));
        threads.extend((0..3).map(|number| (pid + 10 + number, format!("worker {number}"))));
        for (tid, comm) in threads {
            write(format!("proc/{pid}/task/{tid}/stat"), &stat(tid, &comm));
        }
        let group = format!("0::/machine.slice/{}/libvirt/emulator\n", unit(vm));
        write(format!("proc/{pid}/cgroup"), &group);
        write(
            format!("proc/{pid}/cmdline"),
            &format!("qemu\0-name\0vm{vm}\0"),
        );
        write(
            format!("proc/{pid}/status"),
            "Name:\tqemu\nUid:\t0\t0\t0\t0\n",
        );
        let open = |descriptor: u32, target: &str| {
            let path = place.path().join(format!("proc/{pid}/fd/{descriptor}"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(target, path).unwrap();
        };
        open(10, "anon_inode:kvm-vm");
        for number in 0..4 {
            open(20 + number, &format!("anon_inode:kvm-vcpu:{number}"));
        }
        for other in 30..60 {
            open(other, "anon_inode:[eventfd]");
        }
    }
    let machine = Machine {
        tree: std::sync::Arc::new(steadyvm_host::RootedTree::new(place.path())),
        ..Machine::real()
    };
    let begin = std::time::Instant::now();
    let threads = machine.all_threads().unwrap();
    let read = begin.elapsed();
    let processes = Processes::of(&threads);
    for vm in 0..VMS {
        let wanted = VmSelector::Unit(unit(vm));
        let mut warnings = Vec::new();
        let found = discover::find_vm(&machine, &processes, &wanted, &[], &mut warnings);
        assert_eq!(found.unwrap().unwrap().pid, 100_000 + 20 * vm);
    }
    let all = begin.elapsed();
    println!("{VMS} VMs by unit: threads read in {read:?}, all found in {all:?}");
}
