//! `steadyvm hook` as libvirt and Proxmox VE call it, on a host whose files are below a directory. As root: what it
//! writes must be its own.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const STEADYVM: &str = env!("CARGO_BIN_EXE_steadyvm");
const UUID: &str = "5a3b0f6e-1f5c-4c8e-9b86-3f0d9b2f0a01";
/// Two CPUs, as every machine that tests run on has. A class of its own ranks nothing here.
const HOST: &str = "[host]\npcpus = 2\nscheduler = \"pedf\"\nenforce = \"deadline\"\n[class.rt]\n";
const OPERATIONS: [&str; 9] = [
    "start",
    "started",
    "reconnect",
    "stopped",
    "release",
    "attach",
    "migrate",
    "restore",
    "whatever",
];

/// A host, and the process that starts its VMs.
struct Host {
    root: tempfile::TempDir,
}

impl Host {
    fn new(file: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        for place in ["etc/pve/qemu-server", "run/libvirt/qemu", "run/qemu-server"] {
            fs::create_dir_all(root.path().join(place)).unwrap();
        }
        let host = Self { root };
        host.write("etc/steadyvm.toml", file);
        host
    }

    fn path(&self, place: &str) -> PathBuf {
        self.root.path().join(place)
    }

    fn write(&self, place: &str, text: &str) {
        fs::write(self.path(place), text).unwrap();
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(STEADYVM);
        command.arg("hook").arg("--root").arg(self.root.path());
        command.arg(words[0]).arg("--").args(&words[1..]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// libvirt's call; its exit code and what it says.
    fn libvirt(&self, operation: &str, xml: &str) -> (i32, String) {
        let words = ["libvirt", "instance-00000001", operation, "begin", "-"];
        said(finish(self.command(&words).spawn().unwrap(), xml))
    }

    fn proxmox(&self, number: u32, phase: &str) -> (i32, String) {
        let words = ["proxmox", &number.to_string(), phase];
        said(finish(self.command(&words).spawn().unwrap(), ""))
    }

    fn descriptions(&self) -> Vec<String> {
        let Ok(entries) = self.path("run/steadyvm.d").read_dir() else {
            return Vec::new();
        };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name != ".lock").collect();
        names.sort();
        names
    }

    fn description(&self, name: &str) -> toml::Table {
        let text = fs::read_to_string(self.path("run/steadyvm.d").join(name)).unwrap();
        text.parse::<toml::Table>().unwrap()["vm"][0]
            .as_table()
            .unwrap()
            .clone()
    }

    /// Where a call of another process, which has ended since, is in place of this one's: as after a crash of libvirtd.
    fn libvirt_by_another(&self, operation: &str, xml: &str) -> (i32, String) {
        let mut command = Command::new("setsid");
        let hook = self.command(&["libvirt", "instance-00000001", operation, "begin", "-"]);
        command
            .arg("--fork")
            .arg("--wait")
            .arg(hook.get_program())
            .args(hook.get_args());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        said(finish(command.spawn().unwrap(), xml))
    }
}

/// Its files are below a directory, but its kernel is this machine's: what the hook has set there is taken back.
impl Drop for Host {
    fn drop(&mut self) {
        let state = self.path("run/steadyvm/host");
        if !state.join("journal.jsonl").exists() {
            return;
        }
        let mut undo = Command::new(STEADYVM);
        let undone = undo.args(["undo", "--state-dir"]).arg(state).output();
        if !std::thread::panicking() {
            let undone = undone.unwrap();
            assert!(undone.status.success(), "{undone:?}");
        }
    }
}

fn finish(mut child: Child, xml: &str) -> Output {
    // It may have ended without reading, as it does for what is not its own.
    let _ = child.stdin.take().unwrap().write_all(xml.as_bytes());
    child.wait_with_output().unwrap()
}

fn said(output: Output) -> (i32, String) {
    assert!(output.stdout.is_empty(), "libvirt would take it for XML");
    let words = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), words)
}

/// The domain of two VCPUs of 4 ms in 10 ms each that nova 34 writes, as the VM of a number.
fn real_time(number: u32) -> String {
    let xml = include_str!("../../../nova/tests/data/nova-34.0.0-rt.xml");
    xml.replace(UUID, &uuid(number)).replace(
        "<name>instance-00000001<",
        &format!("<name>instance-{number:08}<"),
    )
}

fn uuid(number: u32) -> String {
    format!("{}{number:02}", &UUID[..34])
}

fn file_of(number: u32) -> String {
    format!("libvirt-{}.toml", uuid(number))
}

fn ordinary() -> &'static str {
    include_str!("../../../nova/tests/data/nova-34.0.0-ordinary.xml")
}

/// A process that says it is a VM's monitor, until it is dropped.
struct Monitor(Child);

impl Monitor {
    fn start(words: [&str; 2]) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "echo; read line", words[0], words[1]]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // It has its words once it speaks.
        let spoken = child.stdout.as_mut().unwrap().read_exact(&mut [0]);
        spoken.unwrap();
        Self(child)
    }

    fn end(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_vm_is_described_while_it_runs() {
    let host = Host::new(HOST);
    let guest = real_time(1);
    assert_eq!(host.libvirt("prepare", &guest), (0, String::new()));
    assert_eq!(host.descriptions(), [file_of(1)]);
    let described = host.description(&file_of(1));
    assert_eq!(described["budget"].as_str(), Some("8000us"));
    assert_eq!(described["vcpus"].as_integer(), Some(2));
    // Until its monitor runs it counts while its starter lives: here this test.
    let starter = described["prepared_by"]["pid"].as_integer();
    assert_eq!(starter, Some(std::process::id().into()));
    let monitor = Monitor::start(["-uuid", &uuid(1)]);
    host.write(
        "run/libvirt/qemu/instance-00000001.pid",
        &format!("{}\n", monitor.0.id()),
    );
    let (code, _) = host.libvirt("started", &guest);
    assert_eq!(code, 0);
    let described = host.description(&file_of(1));
    assert_eq!(
        described["process"]["pid"].as_integer(),
        Some(monitor.0.id().into())
    );
    assert!(!described.contains_key("prepared_by"));
    for operation in ["stopped", "release"] {
        assert_eq!(host.libvirt(operation, &guest).0, 0);
        assert!(host.descriptions().is_empty(), "{operation}");
    }
    monitor.end();
}

#[test]
fn a_start_that_the_plan_cannot_hold_is_refused_with_the_reason() {
    let host = Host::new(HOST);
    for number in [1, 2] {
        assert_eq!(host.libvirt("prepare", &real_time(number)).0, 0);
    }
    let (code, words) = host.libvirt("prepare", &real_time(3));
    assert_eq!(code, 1);
    assert!(
        words.contains("cannot hold VM 'instance-00000003'") && words.contains("the plan"),
        "{words}"
    );
    assert_eq!(host.descriptions(), [file_of(1), file_of(2)]);
    // The same VM again is no second one.
    assert_eq!(host.libvirt("prepare", &real_time(2)).0, 0);
    assert_eq!(host.libvirt("release", &real_time(1)).0, 0);
    assert_eq!(host.libvirt("prepare", &real_time(3)), (0, String::new()));
}

#[test]
fn a_vm_without_a_budget_starts_whatever_is_wrong_with_the_host() {
    for damage in ["none", "file", "directory", "no file"] {
        let host = Host::new(HOST);
        match damage {
            "file" => host.write("etc/steadyvm.toml", "[host"),
            "directory" => host.write("run/steadyvm.d", "no directory"),
            "no file" => fs::remove_file(host.path("etc/steadyvm.toml")).unwrap(),
            _ => {}
        }
        // Its pins are none of ours, nor is a word that looks like one of our keys.
        let pinned = ordinary().replace("<metadata>", "<title>export:rt:1</title><cputune><vcpupin vcpu='0' cpuset='1'/><vcpupin vcpu='1' cpuset='0'/></cputune><metadata>");
        for xml in [ordinary(), &pinned, "no XML", ""] {
            assert_eq!(host.libvirt("prepare", xml), (0, String::new()), "{damage}");
        }
        let (code, words) = host.libvirt("prepare", &real_time(1));
        assert_eq!(code, i32::from(damage != "none"), "{damage}: {words}");
        let place = if damage == "directory" {
            "run/steadyvm.d"
        } else {
            "etc/steadyvm.toml"
        };
        assert!(
            code == 0 || words.contains(host.path(place).to_str().unwrap()),
            "{words}"
        );
    }
    let host = Host::new(HOST);
    let hints = include_str!("../../../nova/tests/data/nova-34.0.0-hints.xml");
    let (code, words) = host.libvirt("prepare", hints);
    assert!(code == 0 && words.contains("scheduler hints"), "{words}");
}

/// libvirt ends a VM whose hook fails once it runs.
#[test]
fn no_operation_after_the_start_fails_whatever_is_wrong() {
    for damage in [
        "file",
        "directory",
        "link",
        "xml",
        "specs",
        "uuid",
        "vcpus",
        "pins",
        "bytes",
    ] {
        let host = Host::new(HOST);
        let guest = real_time(1);
        let guest = match damage {
            "file" => {
                host.write("etc/steadyvm.toml", "[host");
                guest
            }
            "directory" => {
                host.write("run/steadyvm.d", "no directory");
                guest
            }
            "link" => {
                symlink("/proc", host.path("run/steadyvm.d")).unwrap();
                guest
            }
            "xml" => guest[..guest.find("rt:period").unwrap()].to_owned(),
            "specs" => guest.replace("8ms", "\u{668}ms"),
            "uuid" => guest.replace(&uuid(1), "none"),
            "vcpus" => guest.replace("<vcpu>2<", "<vcpu>two<"),
            "pins" => guest.replace(
                "<metadata>",
                "<cputune><vcpupin vcpu='0' cpuset='x'/></cputune><metadata>",
            ),
            _ => "rt:\u{0}".to_owned(),
        };
        for operation in OPERATIONS {
            let (code, words) = host.libvirt(operation, &guest);
            assert_eq!(code, 0, "{damage} at {operation}: {words}");
            let is_ours = ["started", "reconnect"].contains(&operation);
            assert!(
                !is_ours || words.contains(operation),
                "{damage} at {operation} says nothing: {words}"
            );
        }
        assert_eq!(host.libvirt("prepare", &guest).0, 1, "{damage}");
    }
}

/// A person took everything back, and it stays so until a person applies the file.
#[test]
fn a_vm_that_starts_after_an_undo_gets_no_settings() {
    let host = Host::new(HOST);
    fs::create_dir_all(host.path("run/steadyvm/host")).unwrap();
    host.write("run/steadyvm/host/undone", "");
    let (code, words) = host.libvirt("started", ordinary());
    assert_eq!(code, 0, "{words}");
    let held = "`steadyvm undo` took the settings back";
    assert!(words.contains(held), "{words}");
    assert!(!host.path("run/steadyvm/host/journal.jsonl").exists());
}

#[test]
fn a_domain_may_be_called_as_an_option_is() {
    let host = Host::new(HOST);
    for name in ["--help", "-x", "--root", "--", "a b\n"] {
        for operation in ["prepare", "reconnect", "migrate"] {
            let words = ["libvirt", name, operation, "begin", "-"];
            let child = host.command(&words).spawn().unwrap();
            assert_eq!(
                said(finish(child, ordinary())),
                (0, String::new()),
                "{name}"
            );
        }
    }
    // A script of somebody else's may leave out the dashes.
    let mut command = Command::new(STEADYVM);
    command.args(["hook", "libvirt", "--help", "reconnect", "begin", "-"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    assert_eq!(said(finish(child, ordinary())), (0, String::new()));
}

#[test]
fn hooks_at_the_same_time_admit_no_more_than_fits() {
    let host = Host::new(HOST);
    let start = |number| {
        let mut child = host
            .command(&["libvirt", "x", "prepare", "begin", "-"])
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(real_time(number).as_bytes())
            .unwrap();
        child
    };
    let running: Vec<Child> = (1..=8).map(start).collect();
    let codes = running
        .into_iter()
        .map(|mut child| child.wait().unwrap().code().unwrap());
    assert_eq!(codes.filter(|code| *code == 0).count(), 2);
    assert_eq!(host.descriptions().len(), 2);
}

#[test]
fn a_vm_whose_process_or_starter_is_gone_holds_nothing() {
    let host = Host::new(HOST);
    let monitors = [1, 2].map(|number| {
        let guest = real_time(number);
        assert_eq!(host.libvirt("prepare", &guest).0, 0);
        let monitor = Monitor::start(["-uuid", &uuid(number)]);
        let file = format!("run/libvirt/qemu/instance-{number:08}.pid");
        host.write(&file, &monitor.0.id().to_string());
        assert_eq!(host.libvirt("started", &guest).0, 0);
        monitor
    });
    assert_eq!(host.libvirt("prepare", &real_time(3)).0, 1, "both run");
    // A SIGKILL of the monitor: nobody tells of its end.
    let [first, second] = monitors;
    first.end();
    assert_eq!(host.libvirt_by_another("prepare", &real_time(3)).0, 0);
    assert_eq!(host.descriptions(), [file_of(2), file_of(3)]);
    // Its starter has ended and no monitor runs: a start that failed.
    assert_eq!(host.libvirt_by_another("prepare", &real_time(4)).0, 0);
    assert_eq!(host.descriptions(), [file_of(2), file_of(4)]);
    // Its starter has ended and its monitor runs: only the word of it was lost.
    let third = Monitor::start(["-uuid", &uuid(4)]);
    host.write(
        "run/libvirt/qemu/instance-00000004.pid",
        &third.0.id().to_string(),
    );
    assert_eq!(host.libvirt("prepare", &real_time(5)).0, 1);
    // The number of a process that has ended may be another's.
    third.end();
    host.write(
        "run/libvirt/qemu/instance-00000004.pid",
        &std::process::id().to_string(),
    );
    assert_eq!(host.libvirt("prepare", &real_time(5)).0, 0);
    // What others have put there is theirs.
    host.write("run/steadyvm.d/other.toml", "");
    assert_eq!(host.libvirt("release", &real_time(5)).0, 0);
    assert_eq!(host.descriptions(), [file_of(2), "other.toml".to_owned()]);
    second.end();
}

#[test]
fn vcpus_that_may_be_plugged_in_later_have_no_part_in_the_budget() {
    let host = Host::new(HOST);
    let own =
        "<metadata><s:interface xmlns:s='urn:steadyvm:rt' budget='8ms' period='10ms'/></metadata>";
    let guest = format!(
        "<domain><name>plain</name><uuid>{UUID}</uuid><vcpu current='1'>8</vcpu>{own}</domain>"
    );
    assert_eq!(host.libvirt("prepare", &guest), (0, String::new()));
    let described = host.description(&format!("libvirt-{UUID}.toml"));
    assert_eq!(described["vcpus"].as_integer(), Some(1));
    assert_eq!(described["budget"].as_str(), Some("8000us"));
}

#[test]
fn a_vm_that_may_use_some_cpus_is_planned_on_them_or_told_what_to_do() {
    let on = |cpus: &str| real_time(1).replace("<vcpu>", &format!("<vcpu cpuset='{cpus}'>"));
    let host = Host::new(HOST);
    // One CPU holds two VCPUs of 4 ms, and not three.
    assert_eq!(host.libvirt("prepare", &on("1")), (0, String::new()));
    let described = host.description(&file_of(1));
    assert_eq!(described["cpus"].as_array().unwrap().len(), 1);
    let second = on("1")
        .replace(&uuid(1), &uuid(2))
        .replace("instance-00000001", "instance-00000002");
    let (code, words) = host.libvirt("prepare", &second);
    assert_eq!(code, 1, "{words}");
    let (code, words) = host.libvirt("prepare", &on("77"));
    assert!(code == 1 && words.contains("cpu_shared_set"), "{words}");
    // All CPUs are no restriction.
    assert_eq!(host.libvirt("prepare", &on("0-8191")).0, 0);
    assert!(!host.description(&file_of(1)).contains_key("cpus"));
    let host = Host::new(&HOST.replace("pedf", "gedf"));
    let (code, words) = host.libvirt("prepare", &on("1"));
    assert!(
        code == 1 && words.contains("EPERM") && words.contains("scheduler = \"pedf\""),
        "{words}"
    );
    let host = Host::new(&HOST.replace("pcpus = 2", "cpus = \"1\""));
    assert_eq!(host.libvirt("prepare", &on("0-1")), (0, String::new()));
    let (code, words) = host.libvirt("prepare", &on("0"));
    assert!(code == 1 && words.contains("CPUs 1 to VMs"), "{words}");
}

#[test]
fn a_file_that_says_nothing_of_budgets_refuses_vms_that_ask_for_them() {
    for (file, words) in [
        ("[class.rt]\nvhost = 75\n", "enforce"),
        ("[host]\npcpus = 2\nscheduler = \"gedf\"\n", "enforce"),
        (
            "[host]\npcpus = 4000\nscheduler = \"gedf\"\nenforce = \"auto\"\n",
            "this host has CPUs",
        ),
        (
            &format!("{HOST}[[vm]]\nname = \"instance-00000001\"\nrt = false\n"),
            "instance-00000001",
        ),
    ] {
        let host = Host::new(file);
        let (code, said) = host.libvirt("prepare", &real_time(1));
        assert!(code == 1 && said.contains(words), "{said}");
        assert!(host.descriptions().is_empty());
    }
}

const PROXMOX: &str = "#rt%3Abudget=8ms\n#rt%3Aperiod=10ms\ncores: 2\nname: web\n";

#[test]
fn proxmox_has_the_same_by_numbers() {
    let host = Host::new(HOST);
    let conf = |number: u32| format!("etc/pve/qemu-server/{number}.conf");
    // Two of one name are two.
    for number in [100, 101, 102] {
        host.write(&conf(number), PROXMOX);
    }
    assert_eq!(host.proxmox(100, "pre-start"), (0, String::new()));
    assert_eq!(host.proxmox(101, "pre-start"), (0, String::new()));
    assert_eq!(
        host.descriptions(),
        ["proxmox-100.toml", "proxmox-101.toml"]
    );
    let described = host.description("proxmox-100.toml");
    assert_eq!(described["name"].as_str(), Some("100"), "what `-id` says");
    assert_eq!(described["unit"].as_str(), Some("100.scope"));
    let (code, words) = host.proxmox(102, "pre-start");
    assert!(
        code == 1 && words.contains("pre-start of VM 102"),
        "{words}"
    );
    let monitor = Monitor::start(["-id", "100"]);
    host.write("run/qemu-server/100.pid", &format!("{}\n", monitor.0.id()));
    assert_eq!(host.proxmox(100, "post-start").0, 0);
    let described = host.description("proxmox-100.toml");
    assert_eq!(
        described["process"]["pid"].as_integer(),
        Some(monitor.0.id().into())
    );
    // It has migrated away, and its configuration with it.
    fs::remove_file(host.path(&conf(100))).unwrap();
    for phase in ["pre-stop", "post-stop"] {
        assert_eq!(host.proxmox(100, phase).0, 0, "{phase}");
    }
    assert_eq!(host.descriptions(), ["proxmox-101.toml"]);
    // One without notes, or without a configuration, starts whatever is wrong.
    host.write("etc/steadyvm.toml", "[host");
    host.write(&conf(103), "cores: 2\n[snap]\n#rt:budget=8ms\n");
    for number in [103, 104] {
        assert_eq!(host.proxmox(number, "pre-start"), (0, String::new()));
    }
    monitor.end();
}

/// A start that fails has no post-stop.
#[test]
fn a_start_that_failed_on_proxmox_holds_nothing() {
    let host = Host::new(HOST);
    for number in [100, 101, 102] {
        host.write(&format!("etc/pve/qemu-server/{number}.conf"), PROXMOX);
    }
    for number in ["100", "101"] {
        let hook = host.command(&["proxmox", number, "pre-start"]);
        let mut task = Command::new("setsid");
        task.arg("--fork")
            .arg("--wait")
            .arg(hook.get_program())
            .args(hook.get_args());
        assert!(task.status().unwrap().success());
    }
    assert_eq!(host.proxmox(102, "pre-start"), (0, String::new()));
    assert_eq!(host.descriptions(), ["proxmox-102.toml"]);
}

/// The kernel ends a hook at any byte of what it writes (`RLIMIT_FSIZE`): what is there is whole.
#[test]
fn a_crash_at_any_byte_leaves_whole_files() {
    let host = Host::new(HOST);
    assert_eq!(host.libvirt("prepare", &real_time(1)).0, 0);
    let place = host.path("run/steadyvm.d").join(file_of(1));
    let length = fs::read(&place).unwrap().len() as u64;
    assert_eq!(host.libvirt("release", &real_time(1)).0, 0);
    let mut ended = 0;
    for bytes in (0..length).step_by(7) {
        let mut command = host.command(&["libvirt", "x", "prepare", "begin", "-"]);
        let limit = libc::rlimit {
            rlim_cur: bytes,
            rlim_max: bytes,
        };
        // SAFETY: setrlimit is async-signal-safe, and its argument is this closure's own.
        unsafe {
            command.pre_exec(
                move || match libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                },
            );
        }
        let output = finish(command.spawn().unwrap(), &real_time(1));
        ended += u32::from(!output.status.success());
        let names: Vec<String> = host.descriptions();
        assert!(
            names
                .iter()
                .all(|name| name.strip_suffix(".toml").is_none()),
            "{bytes}: {names:?}"
        );
    }
    assert!(ended > 10, "every one was ended in the middle of its file");
    assert_eq!(host.libvirt("prepare", &real_time(2)).0, 0);
    assert_eq!(host.descriptions(), [file_of(2)]);
}

#[test]
fn a_hook_that_has_to_wait_ends_within_its_limit() {
    let host = Host::new(HOST);
    assert_eq!(host.libvirt("prepare", &real_time(1)).0, 0);
    let lock = fs::File::open(host.path("run/steadyvm.d/.lock")).unwrap();
    lock.lock().unwrap();
    let begin = Instant::now();
    let start = |operation: &str, xml: &str| {
        let mut child = host
            .command(&["libvirt", "x", operation, "begin", "-"])
            .spawn()
            .unwrap();
        child
            .stdin
            .as_mut()
            .unwrap()
            .write_all(xml.as_bytes())
            .unwrap();
        child
    };
    let mut prepares = start("prepare", &real_time(2));
    drop(prepares.stdin.take());
    let mut starts = start("started", &real_time(1));
    drop(starts.stdin.take());
    // Its input never ends.
    let mut hangs = start("prepare", ordinary());
    let codes = [&mut prepares, &mut starts, &mut hangs].map(|child| {
        let pipe = child.stdin.take();
        let code = child.wait().unwrap().code();
        drop(pipe);
        code
    });
    assert_eq!(codes, [Some(1), Some(0), Some(0)]);
    assert!(
        begin.elapsed() < Duration::from_secs(25),
        "{:?}",
        begin.elapsed()
    );
}

/// Whatever is sold by these numbers starts, and nothing beyond them.
#[test]
fn a_host_sells_what_its_hook_admits() {
    let host = Host::new(HOST);
    let capacity = |more: &[&str]| {
        let output = Command::new(STEADYVM)
            .arg("capacity")
            .args(more)
            .arg(host.path("etc/steadyvm.toml"))
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    let json: serde_json::Value = serde_json::from_str(&capacity(&["--json"])).unwrap();
    assert_eq!(json["schema_version"], 1);
    assert_eq!(
        (&json["scheduler"], &json["mechanism"]),
        (&"pedf".into(), &"deadline".into())
    );
    assert_eq!(json["cpus"], serde_json::json!([0, 1]));
    let share_ppm = json["vcpu_ppm"].as_u64().unwrap();
    assert_eq!(json["cpu_ppm"].as_u64(), Some(share_ppm));
    let guest = |number: u32, budget_us: u64| {
        real_time(number)
            .replace("<vcpu>2<", "<vcpu>1<")
            .replace("8ms", &budget_us.to_string())
            .replace("10ms", "10000")
    };
    let most_us = share_ppm / 100;
    assert_eq!(host.libvirt("prepare", &guest(1, most_us + 10)).0, 1);
    for number in [1, 2] {
        assert_eq!(
            host.libvirt("prepare", &guest(number, most_us)),
            (0, String::new())
        );
    }
    assert_eq!(host.libvirt("prepare", &guest(3, 100)).0, 1);
    let json: serde_json::Value = serde_json::from_str(&capacity(&["--json"])).unwrap();
    assert_eq!(json["held"].as_array().unwrap().len(), 2);
    assert_eq!(json["held"][0]["budget_ns"].as_u64(), Some(most_us * 1000));
    let text = capacity(&[]);
    assert!(
        text.starts_with("CPUs 0-1: 90 % of each")
            && text.contains("instance-00000002: 1 VCPUs, 90.0 %"),
        "{text}"
    );
}

/// What a cloud's agent asks before it describes a VM; nothing is written.
#[test]
fn capacity_is_asked_with_a_file_that_does_not_count_yet() {
    let host = Host::new(HOST);
    let more = host.path("run/steadyvm.d/pod.toml.new");
    fs::create_dir_all(more.parent().unwrap()).unwrap();
    let ask = |budget: &str| {
        let vm = format!(
            "[[vm]]\nname = \"pod\"\nclass = \"rt\"\nperiod = \"10ms\"\nbudget = \"{budget}\"\ncpus = [1]\n"
        );
        fs::write(&more, vm).unwrap();
        let mut command = Command::new(STEADYVM);
        command.args(["capacity", "--json", "--with"]).arg(&more);
        command
            .arg(host.path("etc/steadyvm.toml"))
            .output()
            .unwrap()
    };
    let held = ask("8ms");
    let json: serde_json::Value = serde_json::from_slice(&held.stdout).unwrap();
    assert_eq!(json["held"][0]["vm"], "pod");
    assert_eq!(json["held"][0]["cpus"], serde_json::json!([1]));
    let refused = ask("9.5ms");
    let words = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{words}");
    assert!(
        refused.stdout.is_empty() && words.contains("VM \"pod\""),
        "{words}"
    );
}

#[test]
fn a_plan_for_cpus_that_are_not_there_is_refused_or_said() {
    let host = Host::new(&HOST.replace("pcpus = 2", "pcpus = 4000"));
    let file = host.path("etc/steadyvm.toml");
    let apply = |more: &[&str]| run(&file, more);
    let (code, words) = apply(&["--strict", "--dry-run"]);
    assert!(
        code == 1 && words.contains("the plan is for CPUs 0-3999, and this host has"),
        "{words}"
    );
    let (code, words) = apply(&["--dry-run"]);
    assert!(
        code == 0
            && words.contains("the plan is for CPUs")
            && words.contains("bounds may be missed"),
        "{words}"
    );
    // Without a number it is this host's.
    let host = Host::new(&HOST.replace("pcpus = 2\n", ""));
    let (code, words) = run(&host.path("etc/steadyvm.toml"), &["--strict", "--dry-run"]);
    assert_eq!(code, 0, "{words}");
}

fn run(file: &Path, more: &[&str]) -> (i32, String) {
    let output = Command::new(STEADYVM)
        .arg("apply")
        .arg(file)
        .args(more)
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap(), words)
}
