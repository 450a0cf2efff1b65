//! What others are called, and where they may have root write: real processes, real files, as root.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const STEADYVM: &str = env!("CARGO_BIN_EXE_steadyvm");
const NOBODY: u32 = 65534;

/// Whether this machine lets a test make KVM VMs and be root; says so if not.
fn can_be_tried() -> bool {
    // SAFETY: takes no arguments and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let has_kvm = fs::File::options().read(true).write(true).open("/dev/kvm");
    if !is_root || has_kvm.is_err() {
        eprintln!("not tested: it needs root and /dev/kvm");
    }
    is_root && has_kvm.is_ok()
}

/// A process that holds a VM with one VCPU and is called so; it ends with this value.
struct Monitor(Child);

impl Monitor {
    fn start(name: &str) -> Self {
        let script = "import fcntl, os, sys\n\
            kvm = os.open('/dev/kvm', os.O_RDWR)\n\
            vm = fcntl.ioctl(kvm, 0xae01, 0)\n\
            vcpu = fcntl.ioctl(vm, 0xae41, 0)\n\
            open('/proc/thread-self/comm', 'w').write('CPU 0/KVM')\n\
            print('ready', flush=True)\n\
            sys.stdin.read()";
        let mut process = Command::new("python3")
            .args(["-c", script, "-name", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let output = process.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        Self(process)
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn steadyvm(place: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(STEADYVM);
    command.args(arguments);
    if ["apply", "status", "top"].contains(&arguments[0]) {
        command.arg("--state-dir").arg(place.join("state"));
    }
    command.output().unwrap()
}

/// What a terminal would obey, or take for another line.
fn is_harmless(output: &Output) -> bool {
    let both = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8(both).unwrap();
    !text.contains(|it: char| it.is_control() && it != '\n') && !text.contains("\nforged")
}

#[test]
fn names_of_vms_have_no_effect_on_a_terminal() {
    if !can_be_tried() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let name = "\u{1b}]0;x\u{7}\u{1b}[2J\u{9b}31m\nforged";
    let _monitor = Monitor::start(name);
    let file = place.path().join("steadyvm.toml");
    let sought = "[[vm]]\nname = \"sought\"\nclass = \"rt\"\n";
    fs::write(&file, sought).unwrap();
    let file = file.to_str().unwrap();
    for arguments in [
        &["top", "--once", "--interval", "0.1"][..],
        &["top", "--once", "--interval", "0.1", "--json"],
        &[
            "top",
            "--once",
            "--interval",
            "0.1",
            "--format",
            "openmetrics",
        ],
        &["top", "--budgets", "--once"],
        &["apply", "--dry-run", file],
        &["status", file],
        &["doctor"],
        // Which VMs run instead.
        &[
            "apply",
            "--dry-run",
            "--method",
            "preempt-rt",
            "--nic",
            "lo",
            "--vm",
            "\u{1b}[2Jx",
        ],
        &["apply", "/\u{1b}[2J\u{9b}absent"],
        &["plan", "/\u{1b}[2J\u{9b}absent"],
    ] {
        let said = steadyvm(place.path(), arguments);
        assert!(is_harmless(&said), "{arguments:?}: {said:?}");
    }
    let json = steadyvm(
        place.path(),
        &["top", "--once", "--interval", "0.1", "--json"],
    );
    let frame: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(
        frame.to_string().contains("forged"),
        "JSON has the name: {frame}"
    );
    // A file that has one is refused, and its own words reach no terminal either.
    let refused = sought.replace("sought", "\\u001b[2Jx");
    fs::write(place.path().join("steadyvm.toml"), refused).unwrap();
    let said = steadyvm(place.path(), &["apply", "--dry-run", file]);
    assert_eq!(said.status.code(), Some(2), "{said:?}");
    assert!(is_harmless(&said), "{said:?}");
}

/// As /var/lib/prometheus of Debian's package, whose owner exchanges what root has put there.
#[test]
fn metrics_go_nowhere_but_into_a_directory_of_roots() {
    // SAFETY: takes no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("not tested: it needs root");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let victim = place.path().join("victim");
    fs::write(&victim, "secret").unwrap();
    let write = |verb: &[&str], directory: &Path| {
        let file = directory.join("steadyvm.prom");
        let file = file.to_str().unwrap();
        let words = ["--once", "--format", "openmetrics", "--out", file];
        steadyvm(place.path(), &[verb, &words].concat())
    };
    let collector = place.path().join("prometheus/node-exporter");
    fs::create_dir_all(&collector).unwrap();
    symlink(&victim, collector.join("steadyvm.prom.new")).unwrap();
    for verb in [&["top"][..], &["top", "--budgets"]] {
        let written = write(verb, &collector);
        assert!(written.status.success(), "{written:?}");
        let file = collector.join("steadyvm.prom");
        let mode = fs::symlink_metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o644);
        assert!(fs::read_to_string(&file).unwrap().ends_with("# EOF\n"));
        fs::remove_file(&file).unwrap();
        // A link in its place, a directory of others, one above of others.
        symlink(&victim, &file).unwrap();
        assert_eq!(write(verb, &collector).status.code(), Some(2));
        fs::remove_file(&file).unwrap();
        for (directory, mode, owner) in [
            (collector.as_path(), 0o1777, 0),
            (collector.as_path(), 0o775, 0),
            (collector.as_path(), 0o755, NOBODY),
            (collector.parent().unwrap(), 0o755, NOBODY),
        ] {
            let set = |mode, owner| {
                fs::set_permissions(directory, fs::Permissions::from_mode(mode)).unwrap();
                chown(directory, Some(owner), None).unwrap();
            };
            set(mode, owner);
            let refused = write(verb, &collector);
            set(0o755, 0);
            assert_eq!(refused.status.code(), Some(2), "{refused:?}");
            let said = String::from_utf8(refused.stderr).unwrap();
            assert!(
                said.contains("name ") && said.contains("directory"),
                "{said}"
            );
            assert!(!file.exists());
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "secret");
    }
}
