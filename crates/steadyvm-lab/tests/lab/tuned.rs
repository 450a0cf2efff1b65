//! tuned's own daemon beside steadyvm, in the emulated host: `make libvirt-tests`. As tests/lab.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::files::{budgets, ranks};
use crate::support::profile::{inside, write};
use steadyvm_lab::agent::Process;
use steadyvm_lab::artifact::{Cache, UserSpace};
use steadyvm_lab::host::{EmulatedHost, RT};
use steadyvm_lab::laboratory::{HostKernel, Laboratory, guest};
use steadyvm_lab::progress::Silent;

/// tuned imports hundreds of Python files.
const PATIENCE: Duration = Duration::from_secs(300);
/// Where tuned seeks profiles, before 2.23 and since.
const PLACES: [&str; 2] = [
    "/usr/lib/tuned/steadyvm-host",
    "/usr/lib/tuned/profiles/steadyvm-host",
];
/// A setting of tuned's that steadyvm has no opinion of, and its value before: the seconds between two updates of
/// the kernel's statistics.
const OF_TUNED: (&str, &str, &str) = ("/proc/sys/vm/stat_interval", "1", "10");
/// Asks the daemon whether what its profile says holds, by its socket.
const VERIFY: &str = r#"
import json, socket
connection = socket.socket(socket.AF_UNIX)
connection.connect("/run/tuned/tuned.sock")
connection.sendall(json.dumps({"jsonrpc": "2.0", "method": "verify_profile", "params": {}, "id": 1}).encode())
connection.shutdown(socket.SHUT_WR)
print(b"".join(iter(lambda: connection.recv(65536), b"")).decode())
"#;

/// What the daemon has said since it began.
const LOG: &str = "/run/tuned.log";

/// What our package installs for tuned: paths and texts.
fn of_package() -> Vec<(String, String)> {
    let place = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pack = Command::new(root.join("tools/packages"));
    let packed = pack
        .arg(place.path())
        .arg(
            Path::new(env!("CARGO_BIN_EXE_steadyvm-lab"))
                .parent()
                .unwrap(),
        )
        .output();
    let packed = packed.unwrap();
    let said = String::from_utf8_lossy(&packed.stderr);
    assert!(packed.status.success(), "{said}");
    let unpack =
        "dpkg-deb -x \"$1\"/steadyvm_*.deb \"$1\"/x && cd \"$1\"/x && find usr/lib/tuned -type f";
    let mut shell = Command::new("sh");
    let found = shell.args(["-euc", unpack, "sh"]).arg(place.path());
    let found = String::from_utf8(found.output().unwrap().stdout).unwrap();
    let text = |path: &str| std::fs::read_to_string(place.path().join("x").join(path)).unwrap();
    found
        .lines()
        .map(|path| (format!("/{path}"), text(path)))
        .collect()
}

fn boot(logs: &Path, user_space: UserSpace) -> EmulatedHost {
    let cache = Cache::of_this_machine().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_steadyvm-lab"));
    let kernels = [HostKernel::V6_12Rt];
    let laboratory = Laboratory::open(&cache, program, logs, &kernels, &Silent).unwrap();
    let laboratory = laboratory.with_user_space(user_space, &cache, &Silent);
    let host = laboratory.unwrap().host("tuned", HostKernel::V6_12Rt);
    let host = EmulatedHost::boot(&host.unwrap()).unwrap();
    inside(
        &host,
        "ln -sf /proc/self/fd /dev/fd; mkdir -p /etc/tuned /run/tuned /var/log/tuned",
    );
    let files = of_package();
    assert_eq!(files.len(), PLACES.len(), "{files:?}");
    for place in PLACES {
        let file = format!("{place}/tuned.conf");
        let (_, text) = files.iter().find(|(path, _)| *path == file).unwrap();
        inside(&host, &format!("mkdir -p {place}"));
        write(&host, &file, text);
    }
    write(
        &host,
        "/etc/tuned/realtime-virtual-host-variables.conf",
        "isolated_cores=1",
    );
    write(
        &host,
        "/etc/tuned/tuned-main.conf",
        "enable_unix_socket = 1\ndynamic_tuning = 1\nsleep_interval = 1\nupdate_interval = 2",
    );
    write(&host, "/run/verify.py", VERIFY);
    host
}

/// The daemon, which has put this profile in force.
fn tuned(host: &EmulatedHost, profile: &str) -> Process {
    let words = format!("exec tuned --no-dbus --profile {profile} &> >(exec tee {LOG})");
    let mut daemon = host.connection().spawn(&["bash", "-c", &words]).unwrap();
    let applied = format!("static tuning from profile '{profile}' applied");
    daemon.wait_for_line(&applied, PATIENCE).unwrap();
    daemon
}

/// Ends it, which takes its settings back.
fn end(daemon: Process) {
    daemon.signal(libc::SIGTERM).unwrap();
    daemon.finish(PATIENCE).unwrap();
}

fn of_tuned(host: &EmulatedHost) -> String {
    inside(host, &format!("cat {}", OF_TUNED.0))
        .trim()
        .to_owned()
}

/// What the daemon finds that is not as its profile says. The words for a kernel that the lab does not boot with are
/// always among it.
fn missed(host: &EmulatedHost) -> BTreeSet<String> {
    inside(host, &format!(": > {LOG}; python3 /run/verify.py"));
    let said = inside(host, &format!("cat {LOG}"));
    let verified = said.lines().filter(|line| line.contains("verify:"));
    assert!(verified.count() > 5, "{said}");
    let failed = said
        .lines()
        .filter_map(|line| line.split_once("verify: failed"));
    failed.map(|(_, what)| what.to_owned()).collect()
}

/// `status` says that all is in force.
fn require_in_force(host: &EmulatedHost) {
    inside(
        host,
        "steadyvm status > /run/status || { cat /run/status >&2; exit 1; }",
    );
}

fn require_as(host: &EmulatedHost, snapshot: &str) {
    let words = format!("steadyvm status --snapshot --compare /run/{snapshot}.json 1>&2");
    inside(host, &words);
}

#[test]
#[ignore = "needs the lab: make libvirt-tests"]
fn tuned_with_our_profile_and_steadyvm_change_nothing_of_each_others() {
    change_nothing_of_each_others(UserSpace::Tuned);
}

#[test]
#[ignore = "needs the lab: make libvirt-tests"]
fn debian_13_s_tuned_with_our_profile_and_steadyvm_change_nothing_of_each_others() {
    change_nothing_of_each_others(UserSpace::TunedOfTrixie);
}

fn change_nothing_of_each_others(user_space: UserSpace) {
    let logs = tempfile::tempdir().unwrap();
    let host = boot(logs.path(), user_space);
    let _guest = host
        .start_guest(&guest("rt", 1, 2), &[RT], &Silent)
        .unwrap();
    // tuned itself does not take all of it back: CPUs of workqueues stay.
    assert_eq!(of_tuned(&host), OF_TUNED.1);
    let daemon = tuned(&host, "steadyvm-host");
    let alone = missed(&host);
    end(daemon);
    assert_eq!(of_tuned(&host), OF_TUNED.1);
    inside(&host, "steadyvm status --snapshot > /run/before.json");

    for file in [ranks("rt"), budgets("rt")] {
        write(&host, "/etc/steadyvm.toml", &file);
        neither_changes_the_others(&host, &alone);
    }

    // The profile that ours is made from takes what steadyvm has set.
    inside(&host, "steadyvm apply");
    let daemon = tuned(&host, "realtime-virtual-host");
    let drifted = inside(&host, "steadyvm status || [ $? = 1 ]");
    assert!(drifted.contains("drifted: "), "{drifted}");
    end(daemon);
}

/// In whatever order they come and go. `alone` is what tuned misses without steadyvm.
fn neither_changes_the_others(host: &EmulatedHost, alone: &BTreeSet<String>) {
    // steadyvm, then tuned, which ends first.
    inside(host, "steadyvm apply");
    require_in_force(host);
    let daemon = tuned(host, "steadyvm-host");
    assert_eq!(of_tuned(host), OF_TUNED.2);
    require_in_force(host);
    assert_eq!(missed(host), *alone);
    end(daemon);
    assert_eq!(of_tuned(host), OF_TUNED.1);
    require_in_force(host);
    inside(host, "steadyvm undo");
    require_as(host, "before");

    // tuned, then steadyvm, which ends first.
    let daemon = tuned(host, "steadyvm-host");
    inside(host, "steadyvm status --snapshot > /run/tuned.json");
    inside(host, "steadyvm apply");
    require_in_force(host);
    assert_eq!(missed(host), *alone);
    inside(host, "steadyvm undo");
    require_as(host, "tuned");
    assert_eq!(missed(host), *alone);
    end(daemon);
    require_as(host, "before");
}
