//! `steadyvm up` on this machine: what its monitor may do once the guest runs, and that it ends. The
//! guests are a few instructions; those that say something say it as their first, so that what holds
//! when it is read holds since the guest began. As root, with /dev/kvm.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

#[path = "support/public_copy.rs"]
mod public_copy;

use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const STEADYVM: &str = env!("CARGO_BIN_EXE_steadyvm");
/// More than a VM of this size needs for anything, on a machine that does other things.
const PATIENCE: Duration = Duration::from_secs(60);

/// More than a pipe and the monitor itself hold.
const MORE_BYTES: u64 = 500_000;

/// `mov dx, port; mov al, byte; out dx, al`.
const fn out(port: u16, byte: u8) -> [u8; 7] {
    let [low, high] = port.to_le_bytes();
    [0x66, 0xba, low, high, 0xb0, byte, 0xee]
}

/// `hlt`, for ever.
const HALT: [u8; 3] = [0xf4, 0xeb, 0xfd];
const CONSOLE: u16 = 0x3f8;
const POWER: u16 = 0x600;
const PANIC: u16 = 0x505;

/// Says "x" and sleeps.
fn sleeper() -> Vec<u8> {
    [&out(CONSOLE, b'x')[..], &HALT].concat()
}

/// Says "x" without end.
fn chatterer() -> Vec<u8> {
    [&out(CONSOLE, b'x')[..], &[0xeb, 0xfd]].concat()
}

/// Asks for kvm-clock (`MSR_KVM_SYSTEM_TIME_NEW`) at 2 MiB, says "x", waits until the clock's flags have
/// `PVCLOCK_GUEST_STOPPED` (arch/x86/include/asm/pvclock-abi.h), and powers off.
fn waits_to_be_told_that_it_was_stopped() -> Vec<u8> {
    [
        // mov ecx, 0x4b564d01; mov eax, 0x200001; xor edx, edx; wrmsr
        &[0xb9, 0x01, 0x4d, 0x56, 0x4b, 0xb8, 0x01, 0x00, 0x20, 0x00][..],
        &[0x31, 0xd2, 0x0f, 0x30],
        &out(CONSOLE, b'x'),
        // again: mov al, [0x20001d]; test al, 2; jz again
        &[
            0x8a, 0x04, 0x25, 0x1d, 0x00, 0x20, 0x00, 0xa8, 0x02, 0x74, 0xf5,
        ],
        &out(POWER, 0x34),
        &HALT,
    ]
    .concat()
}

/// A bzImage of this code, by Linux's boot protocol 2.15.
fn kernel(code: &[u8]) -> Vec<u8> {
    let mut image = vec![0; 1024];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    let mut body = vec![0; 0x200];
    body.extend(code);
    body.resize(body.len().next_multiple_of(16), 0);
    put(0x1f1, &[1]);
    put(0x1f4, &(body.len() as u32 / 16).to_le_bytes());
    put(0x1fe, &0xaa55_u16.to_le_bytes());
    put(0x201, &[0x6a]);
    put(0x202, b"HdrS");
    put(0x206, &0x020f_u16.to_le_bytes());
    put(0x211, &[1]);
    put(0x214, &0x10_0000_u32.to_le_bytes());
    put(0x22c, &0x7fff_ffff_u32.to_le_bytes());
    put(0x236, &1_u16.to_le_bytes());
    put(0x258, &0x10_0000_u64.to_le_bytes());
    put(0x260, &0x1_0000_u32.to_le_bytes());
    image.extend(body);
    image
}

/// A description and its kernel, readable by everyone.
struct Vm {
    place: tempfile::TempDir,
}

impl Vm {
    fn new(code: &[u8], more: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(place.path().join("kernel"), kernel(code)).unwrap();
        let text = format!("name = \"t\"\nkernel = \"kernel\"\nmemory_mib = 64\n{more}");
        fs::write(place.path().join("vm.toml"), text).unwrap();
        Self { place }
    }

    fn file(&self) -> PathBuf {
        self.place.path().join("vm.toml")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(STEADYVM);
        command.arg("up").arg(self.file());
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The same as `nobody`, who has been given /dev/kvm.
    fn command_as_nobody(&self) -> Command {
        let mut command = Command::new(public_copy::program_in(self.place.path(), STEADYVM));
        command.arg("up").arg(self.file()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let group = fs::metadata("/dev/kvm").unwrap().gid();
        command.uid(65534).gid(group);
        command
    }
}

/// A monitor that is killed where a test fails.
struct Monitor(Child);

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Monitor {
    /// Starts it and waits for the guest's first instruction.
    fn started(mut command: Command) -> Self {
        let mut monitor = Self(command.spawn().unwrap());
        let mut byte = [0];
        let output = monitor.0.stdout.as_mut().unwrap();
        if output.read(&mut byte).unwrap() != 1 {
            let mut said = String::new();
            let errors = monitor.0.stderr.as_mut().unwrap();
            errors.read_to_string(&mut said).unwrap();
            panic!("it did not start: {said}");
        }
        monitor
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn proc(&self, path: &str) -> PathBuf {
        Path::new("/proc").join(self.pid().to_string()).join(path)
    }

    fn signal(&self, signal: i32) {
        // SAFETY: takes no pointers; the child has not been waited for.
        assert_eq!(unsafe { libc::kill(self.pid() as i32, signal) }, 0);
    }

    /// Its end, which must come by itself.
    fn end(&mut self) -> Option<i32> {
        let (give, end) = std::sync::mpsc::channel();
        let pid = self.pid() as i32;
        // WNOWAIT: the child stays to be waited for.
        std::thread::spawn(move || {
            // SAFETY: waitid writes one siginfo_t, for which there is room.
            let mut information: libc::siginfo_t = unsafe { std::mem::zeroed() };
            let flags = libc::WEXITED | libc::WNOWAIT;
            // SAFETY: as above.
            unsafe { libc::waitid(libc::P_PID, pid as u32, &raw mut information, flags) };
            let _ = give.send(());
        });
        end.recv_timeout(PATIENCE).expect("it does not end");
        self.0.wait().unwrap().code()
    }

    /// A line of each thread's status, by the thread's name; vhost's workers are the kernel's.
    fn of_threads(&self, key: &str) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for task in fs::read_dir(self.proc("task")).unwrap() {
            // One that has ended since it was listed has nothing left.
            let Ok(status) = fs::read_to_string(task.unwrap().path().join("status")) else {
                continue;
            };
            let field = |key: &str| {
                let line = status.lines().find(|line| line.starts_with(key));
                line.unwrap().split_once(':').unwrap().1.trim().to_owned()
            };
            all.push((field("Name"), field(key)));
        }
        // Workers that the kernel made for this process, by KVM and vhost: they run none of its code.
        all.retain(|(name, _)| !name.starts_with("kvm-") && !name.starts_with("vhost-"));
        assert!(all.len() >= 3, "{all:?}");
        all
    }
}

fn run(mut command: Command) -> Output {
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Without KVM there is no monitor to look at.
fn kvm() -> bool {
    let there = Path::new("/dev/kvm").exists();
    if !there {
        eprintln!("not tested: this machine has no /dev/kvm");
    }
    there
}

fn namespace(process: &str, kind: &str) -> PathBuf {
    fs::read_link(format!("/proc/{process}/ns/{kind}")).unwrap()
}

const SPACES: [&str; 3] = ["mnt", "ipc", "uts"];

/// What holds of a confined monitor, whoever started it.
fn assert_confined(monitor: &Monitor, own_network: bool) {
    let pid = monitor.pid().to_string();
    for kind in SPACES {
        assert_ne!(namespace(&pid, kind), namespace("self", kind), "{kind}");
    }
    let network = namespace(&pid, "net") != namespace("self", "net");
    assert_eq!(network, own_network);
    let entries = fs::read_dir(monitor.proc("root")).unwrap().count();
    assert_eq!(entries, 0, "its file system is empty");
    for key in ["NoNewPrivs", "Seccomp"] {
        let expected = if key == "Seccomp" { "2" } else { "1" };
        for (thread, value) in monitor.of_threads(key) {
            assert_eq!(value, expected, "{key} of {thread}");
        }
    }
    for key in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        for (thread, value) in monitor.of_threads(key) {
            // CAP_NET_BIND_SERVICE, where the guest's sockets are made.
            let may_bind = thread.starts_with("vcpu") && ["CapPrm", "CapEff"].contains(&key);
            let most = if may_bind { 1 << 10 } else { 0 };
            let held = u64::from_str_radix(&value, 16).unwrap();
            assert_eq!(held & !most, 0, "{key} of {thread}: {value}");
        }
    }
    let limits = fs::read_to_string(monitor.proc("limits")).unwrap();
    let limit = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        let mut values = line[name.len()..].split_whitespace();
        let soft = values.next().unwrap().to_owned();
        assert_eq!(Some(soft.as_str()), values.next(), "{line}");
        soft
    };
    assert_eq!(limit("Max core file size"), "0");
    assert_ne!(limit("Max file size"), "unlimited");
    let descriptors: u64 = limit("Max open files").parse().unwrap();
    assert!(descriptors >= 4096 + 64, "{descriptors}");
    assert!(descriptors < 5000, "{descriptors}");
}

#[test]
fn a_guest_that_was_stopped_is_told() {
    if !kvm() {
        return;
    }
    let vm = Vm::new(&waits_to_be_told_that_it_was_stopped(), "");
    let mut monitor = Monitor::started(vm.command());
    monitor.signal(libc::SIGSTOP);
    // SAFETY: plain integers and pointers, for which zero is a value.
    let mut information: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: waitid writes one siginfo_t, for which there is room.
    let waited = unsafe {
        libc::waitid(
            libc::P_PID,
            monitor.pid(),
            &raw mut information,
            libc::WSTOPPED,
        )
    };
    assert_eq!(waited, 0);
    monitor.signal(libc::SIGCONT);
    assert_eq!(monitor.end(), Some(0));
}

#[test]
fn root_s_monitor_is_confined_before_the_guest_begins() {
    if !kvm() {
        return;
    }
    let inherited = fs::File::open("/etc/passwd").unwrap();
    let vm = Vm::new(&sleeper(), "user = 65534\n[sockets]\n");
    let mut command = vm.command();
    let leaked = inherited.as_raw_fd();
    // SAFETY: dup2 is all that the child calls.
    unsafe {
        command.pre_exec(move || {
            libc::dup2(leaked, 77);
            Ok(())
        });
    }
    let mut monitor = Monitor::started(command);
    assert_confined(&monitor, true);
    for (thread, user) in monitor.of_threads("Uid") {
        assert_eq!(user, "65534\t65534\t65534\t65534", "{thread}");
    }
    for (thread, groups) in monitor.of_threads("Groups") {
        assert_eq!(groups, "", "{thread}");
    }
    for (thread, bound) in monitor.of_threads("CapBnd") {
        assert_eq!(bound, "0000000000000000", "{thread}");
    }
    assert!(!monitor.proc("fd/77").exists(), "an inherited descriptor");
    for name in ["tcp_rmem", "tcp_wmem"] {
        let (target, key) = (monitor.pid().to_string(), format!("net.ipv4.{name}"));
        let words = ["-n", "-t", &target, "sysctl", "-n", &key];
        let read = Command::new("nsenter").args(words).output().unwrap();
        let sizes = String::from_utf8(read.stdout).unwrap();
        let most: u64 = sizes.split_whitespace().nth(2).unwrap().parse().unwrap();
        assert!(most <= 1 << 20, "{name} = {sizes}");
    }
    for descriptor in fs::read_dir(monitor.proc("fd")).unwrap() {
        let Ok(open) = fs::read_link(descriptor.unwrap().path()) else {
            continue;
        };
        assert_ne!(open, Path::new("/etc/passwd"));
    }
    monitor.signal(libc::SIGTERM);
    assert_eq!(monitor.end(), Some(0));
}

#[test]
fn a_monitor_of_an_ordinary_user_makes_its_namespaces_itself() {
    if !kvm() {
        return;
    }
    let vm = Vm::new(&sleeper(), "lock_memory = false\n[sockets]\n");
    let mut monitor = Monitor::started(vm.command_as_nobody());
    let pid = monitor.pid().to_string();
    assert_ne!(namespace(&pid, "user"), namespace("self", "user"));
    assert_confined(&monitor, true);
    monitor.signal(libc::SIGTERM);
    assert_eq!(monitor.end(), Some(0));
}

#[test]
fn the_kernels_choice_when_memory_is_short_is_the_files() {
    if !kvm() {
        return;
    }
    // More readily is everybody's to choose.
    let more = "lock_memory = false\nuser = 65534\noom_score_adj = 900\n";
    let vm = Vm::new(&sleeper(), more);
    let monitor = Monitor::started(vm.command());
    let adjustment = fs::read_to_string(monitor.proc("oom_score_adj")).unwrap();
    assert_eq!(adjustment, "900\n");

    // Nobody may lower what it has.
    let vm = Vm::new(&sleeper(), "lock_memory = false\noom_score_adj = -900\n");
    let refused = vm.command_as_nobody().output().unwrap();
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("oom_score_adj = -900"), "{said}");
    assert!(said.contains("OOMScoreAdjust="), "{said}");
}

#[test]
fn memory_stays_locked_and_threads_keep_their_priorities() {
    if !kvm() {
        return;
    }
    let vm = Vm::new(
        &sleeper(),
        "vcpus = 2\nrt_vcpus = [1]\nuser = 65534\n[sockets]\n",
    );
    let monitor = Monitor::started(vm.command());
    let status = fs::read_to_string(monitor.proc("status")).unwrap();
    let locked = status.lines().find(|line| line.starts_with("VmLck:"));
    let locked = locked.unwrap().split_whitespace().nth(1).unwrap();
    assert!(locked.parse::<u64>().unwrap() >= 64 << 10, "{locked} KiB");
    let mut fifo = Vec::new();
    for task in fs::read_dir(monitor.proc("task")).unwrap() {
        let task = task.unwrap();
        let number = task.file_name().to_str().unwrap().parse().unwrap();
        // SAFETY: takes no pointers.
        if unsafe { libc::sched_getscheduler(number) } == libc::SCHED_FIFO {
            fifo.push(fs::read_to_string(task.path().join("comm")).unwrap());
        }
    }
    assert_eq!(fifo, ["vcpu1/t\n"]);
}

#[test]
fn neither_a_reader_that_does_not_read_nor_the_guest_outlives_sigterm() {
    if !kvm() {
        return;
    }
    let vm = Vm::new(&chatterer(), "lock_memory = false\n");
    let statistics = vm.place.path().join("statistics");
    let mut command = vm.command();
    command.arg("--statistics").arg(&statistics);
    let mut monitor = Monitor::started(command);
    // Nobody reads, and the guest goes on.
    let until = Instant::now() + PATIENCE;
    let written = || -> Option<u64> {
        let text = fs::read(&statistics).ok()?;
        let all: serde_json::Value = serde_json::from_slice(&text).ok()?;
        all["vcpus"][0]["exits"]["port_write"].as_u64()
    };
    while written().is_none_or(|written| written < MORE_BYTES) {
        assert!(
            Instant::now() < until,
            "the guest is held up: {:?}",
            written()
        );
        monitor.signal(libc::SIGUSR1);
        std::thread::yield_now();
    }
    monitor.signal(libc::SIGTERM);
    assert_eq!(monitor.end(), Some(0));
    let mut said = String::new();
    let errors = monitor.0.stderr.as_mut().unwrap();
    errors.read_to_string(&mut said).unwrap();
    assert!(said.contains("ended by SIGTERM"), "{said}");
}

#[test]
fn a_console_file_has_a_limit_and_is_no_link() {
    if !kvm() {
        return;
    }
    let more = "lock_memory = false\nconsole = \"log\"\nconsole_max_mib = 1\n";
    let vm = Vm::new(&chatterer(), more);
    let log = vm.place.path().join("log");
    let mut monitor = Monitor(vm.command().spawn().unwrap());
    let until = Instant::now() + PATIENCE;
    let size = || fs::metadata(&log).map_or(0, |log| log.len());
    while size() < 1 << 20 {
        assert!(Instant::now() < until, "{}", size());
        std::thread::yield_now();
    }
    monitor.signal(libc::SIGTERM);
    assert_eq!(monitor.end(), Some(0));
    assert_eq!(size(), 1 << 20);

    fs::remove_file(&log).unwrap();
    let victim = vm.place.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, &log).unwrap();
    let refused = run(vm.command());
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}

#[test]
fn the_hosts_network_is_refused_unless_it_is_asked_for() {
    if !kvm() {
        return;
    }
    let sockets = "lock_memory = false\n[sockets]\nnamespace = ";
    let hosts = ["\"current\"", "\"/proc/1/ns/net\""];
    for namespace in hosts {
        let vm = Vm::new(&sleeper(), &format!("{sockets}{namespace}\n"));
        let refused = run(vm.command());
        // Where root may not look at the first process, as in some containers, it cannot enter either.
        let expected = "host's own network";
        let text = said(&refused);
        assert_eq!(refused.status.code(), Some(2), "{text}");
        let entered = text.contains(expected) || text.contains("Permission denied");
        assert!(
            entered && (namespace != hosts[0] || text.contains(expected)),
            "{text}"
        );
    }
    let more = format!("{sockets}\"current\"\nallow_host_network = true\n");
    let vm = Vm::new(&sleeper(), &more);
    let mut monitor = Monitor::started(vm.command());
    assert_confined(&monitor, false);
    monitor.signal(libc::SIGTERM);
    assert_eq!(monitor.end(), Some(0));
}

#[test]
fn two_vms_are_not_in_one_namespace() {
    if !kvm() {
        return;
    }
    let mut holder = Command::new("unshare");
    holder.args(["-n", "sh", "-c", "echo; exec sleep 1000"]);
    let mut holder = Monitor(holder.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = [0];
    let output = holder.0.stdout.as_mut().unwrap();
    output.read_exact(&mut line).unwrap();
    let more = format!(
        "lock_memory = false\n[sockets]\nnamespace = \"/proc/{}/ns/net\"\n",
        holder.pid()
    );
    let vm = Vm::new(&sleeper(), &more);
    let mut first = Monitor::started(vm.command());
    let refused = run(vm.command());
    assert_eq!(refused.status.code(), Some(2));
    let text = said(&refused);
    assert!(
        text.contains("another VM has this network namespace"),
        "{text}"
    );
    first.signal(libc::SIGTERM);
    assert_eq!(first.end(), Some(0));
    let _again = Monitor::started(vm.command());
}

#[test]
fn exit_codes_tell_a_reset_from_a_power_off_a_panic_and_a_failure() {
    if !kvm() {
        return;
    }
    // A jump into nothing, without an interrupt table: a triple fault.
    let fault = vec![0x0f, 0x0b];
    let (power_off, reset) = (out(POWER, 0x34), out(POWER, 1));
    let ends = [
        (power_off.to_vec(), 0),
        (reset.to_vec(), 4),
        (fault, 1),
        // A panic is one however it is told with other events; a crash kernel's start is none.
        ([out(PANIC, 1), reset].concat(), 5),
        ([out(PANIC, 3), reset].concat(), 5),
        ([out(PANIC, 2), reset].concat(), 4),
        ([out(PANIC, 1), power_off].concat(), 0),
    ];
    for (code, expected) in ends {
        let vm = Vm::new(&[&code[..], &HALT].concat(), "lock_memory = false\n");
        let ended = run(vm.command());
        assert_eq!(ended.status.code(), Some(expected), "{}", said(&ended));
    }
}

#[test]
fn what_kvm_cannot_emulate_is_told_with_its_reason() {
    if !kvm() {
        return;
    }
    // `mov eax, 0xd0000000; jmp rax`: instructions from the device window.
    let code = [0xb8, 0, 0, 0, 0xd0, 0xff, 0xe0];
    let vm = Vm::new(&code, "lock_memory = false\n");
    let ended = run(vm.command());
    let text = said(&ended);
    assert_eq!(ended.status.code(), Some(1), "{text}");
    assert!(text.contains("suberror 1 with ["), "{text}");
}

#[test]
fn too_few_descriptors_for_the_sockets_are_said_before_the_guest_begins() {
    if !kvm() {
        return;
    }
    let vm = Vm::new(&sleeper(), "lock_memory = false\n[sockets]\n");
    let mut command = vm.command_as_nobody();
    // SAFETY: setrlimit is all that the child calls.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit {
                rlim_cur: 1000,
                rlim_max: 1000,
            };
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
            Ok(())
        });
    }
    let refused = run(command);
    assert_eq!(refused.status.code(), Some(3));
    let text = said(&refused);
    assert!(text.contains("sockets.max_sockets = 4096"), "{text}");
}

#[test]
fn check_looks_at_all_that_a_description_names() {
    let check = |vm: &Vm| {
        let mut command = vm.command();
        command.arg("--check");
        run(command)
    };
    let good = check(&Vm::new(&sleeper(), ""));
    assert_eq!(good.status.code(), Some(0), "{}", said(&good));
    for (more, code, expected) in [
        ("initramfs = \".\"\n", 2, "initramfs"),
        ("[[disk]]\npath = \"nothing\"\n", 2, "disk.path"),
        (
            "[[net]]\ntap = \"nothing\"\nmac = \"52:54:00:00:00:01\"\n",
            3,
            "no such interface",
        ),
        (
            "[channel]\nsocket = \"kernel\"\nname = \"a\"\n",
            2,
            "no socket",
        ),
        ("console = \"nowhere/log\"\n", 2, "console"),
        ("[sockets]\nnamespace = \"nothing\"\n", 2, "ip netns add"),
    ] {
        let refused = check(&Vm::new(&sleeper(), more));
        assert_eq!(refused.status.code(), Some(code), "{more}");
        let text = said(&refused);
        assert!(text.contains(expected), "{more}: {text}");
    }
    let vm = Vm::new(&sleeper(), "");
    fs::remove_file(vm.place.path().join("kernel")).unwrap();
    fs::create_dir(vm.place.path().join("kernel")).unwrap();
    let refused = check(&vm);
    assert!(said(&refused).contains("no file"), "{}", said(&refused));
    fs::remove_dir(vm.place.path().join("kernel")).unwrap();
    fs::write(vm.place.path().join("kernel"), [7; 4096]).unwrap();
    let refused = check(&vm);
    assert!(said(&refused).contains("bzImage"), "{}", said(&refused));
}

/// Linux cuts the names of threads after 15 bytes: nine of a VM's.
#[test]
fn the_whole_name_is_among_the_descriptors() {
    if !kvm() {
        return;
    }
    let name = "production-a-of-a-long-name";
    let vm = Vm::new(&sleeper(), "lock_memory = false\n");
    let text = fs::read_to_string(vm.file()).unwrap();
    let text = text.replace("name = \"t\"", &format!("name = \"{name}\""));
    fs::write(vm.file(), text).unwrap();
    let mut monitor = Monitor::started(vm.command());
    let targets = fs::read_dir(monitor.proc("fd")).unwrap();
    let targets: Vec<PathBuf> = targets
        .filter_map(|it| fs::read_link(it.unwrap().path()).ok())
        .collect();
    let expected = PathBuf::from(format!("/memfd:steadyvm-up:{name} (deleted)"));
    assert!(targets.contains(&expected), "{targets:?}");
    // Its unit is believed, for which it stays in the host's cgroup namespace.
    let pid = monitor.pid().to_string();
    assert_eq!(namespace(&pid, "cgroup"), namespace("self", "cgroup"));
    monitor.signal(libc::SIGTERM);
    assert_eq!(monitor.end(), Some(0));
}
