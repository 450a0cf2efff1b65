//! One fault stops one VM: real processes that hold real KVM VMs, and the program as its user and systemd run it.
//!
//! Needs root and /dev/kvm. Each test has ranks in force on this machine for a moment, and takes them back.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

#[path = "support/kvm.rs"]
mod kvm;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use kvm::Vm;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const RANK: i32 = 65;
const READY: &str = "a VM runs in thread";
/// Nothing here takes as long on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A machine has one lock and one journal in force.
static MACHINE: Mutex<()> = Mutex::new(());

/// A process that is a VM, until this is dropped.
struct Process {
    child: Child,
    _until: ChildStdin,
    /// Its VCPU's thread.
    thread: Pid,
}

/// A file, its directory and its journal, on a machine whose kernel admits deadline threads by itself.
struct Site {
    directory: tempfile::TempDir,
    /// `sched_rt_runtime_us` as the machine has it. With -1 the kernel refuses no deadline thread.
    throttling: String,
    _alone: MutexGuard<'static, ()>,
}

const THROTTLING: &str = "/proc/sys/kernel/sched_rt_runtime_us";

#[test]
fn a_vm_that_the_kernel_refuses_stops_no_other_in_any_order() {
    for refused_first in [true, false] {
        let site = Site::new();
        let (good, refused) = (name("good"), name("refused"));
        let ranked = format!("[[vm]]\nname = \"{good}\"\nclass = \"r\"\nrt = false\n");
        let budgeted = format!(
            "[[vm]]\nname = \"{refused}\"\nclass = \"none\"\ninterface = \"prm\"\nperiod = \"10ms\"\nbudget = \"2ms\"\n"
        );
        let vms = if refused_first {
            format!("{budgeted}{ranked}")
        } else {
            format!("{ranked}{budgeted}")
        };
        site.write(&format!(
            "[host]\npcpus = 2\nscheduler = \"gedf\"\nenforce = \"deadline\"\n[class.none]\n\
             [class.r]\nvcpu = {RANK}\n{vms}"
        ));
        let good = Process::start(&good);
        let pinned = Process::start(&refused);
        pinned.keep_on(&[0]);

        // All or nothing is for who asks for it.
        let strict = site.run(&["apply", "--strict"]);
        assert_eq!(strict.status.code(), Some(3), "{}", text(&strict.stderr));
        assert_eq!(good.rank(), 0);

        let applied = site.run(&["apply"]);
        let said = text(&applied.stderr);
        assert_eq!(applied.status.code(), Some(1), "{said}");
        assert!(
            said.contains(&refused) && said.contains("is not served"),
            "{said}"
        );
        assert_eq!((good.rank(), pinned.policy()), (RANK, libc::SCHED_OTHER));
        let status = site.run(&["status"]);
        let shown = text(&status.stdout);
        assert_eq!(status.status.code(), Some(1), "{shown}");
        assert!(
            shown.contains(&format!("VM \"{refused}\" is not served")),
            "{shown}"
        );

        // The cause goes: the next apply serves it.
        pinned.keep_on(&[0, 1]);
        let again = site.run(&["apply"]);
        assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
        assert_eq!((good.rank(), pinned.policy()), (RANK, libc::SCHED_DEADLINE));
        assert_eq!(site.run(&["status"]).status.code(), Some(0));
        let undone = site.run_without_file(&["undo"]);
        assert_eq!(undone.status.code(), Some(0), "{}", text(&undone.stderr));
        assert_eq!((good.rank(), pinned.policy()), (0, libc::SCHED_OTHER));
    }
}

/// The watch follows the requests of a service with a bound, and reads what its guest says of its deadlines.
#[test]
fn a_watch_tells_of_a_bound_that_is_broken_and_status_how_near_it_is() {
    let site = Site::new();
    let vm = name("bound");
    let reports = Path::new("/run/steadyvm/reports");
    fs::create_dir_all(reports).unwrap();
    let report = reports.join(&vm);
    fs::write(&report, "{\"jobs\":10,\"misses\":1}\n").unwrap();
    site.write(&format!(
        "[host]\nenforce = \"none\"\n[class.r]\nvcpu = {RANK}\n[[vm]]\nname = \"{vm}\"\nclass = \"r\"\nperiod = \"5ms\"\n\
         tasks = [{{ name = \"answer\", c = \"1ms\", t = \"40ms\" }}]\n[[service]]\nname = \"http\"\nvm = \"{vm}\"\n\
         task = \"answer\"\nlimit = \"39ms\"\n"
    ));
    let _vm = Process::start(&vm);
    let (mut watch, lines) = site.watch();
    let broken = format!(
        "the bound of http in VM {vm} is broken: the guest reports 1 missed deadlines of 10 jobs"
    );
    await_line(&lines, &mut Vec::new(), |line| line.contains(&broken));
    let status = site.run(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    let checks = &status["checks"];
    assert_eq!(checks["why_not"], serde_json::Value::Null, "{status}");
    let checked = &checks["vms"][0];
    assert_eq!(
        (&checked["vm"], &checked["services"][0]),
        (&vm.as_str().into(), &"http".into())
    );
    let terms = checked["terms"].as_array().unwrap();
    let bound_ns = status["services"][0]["bound"].as_u64().unwrap();
    assert_eq!(
        (terms.len(), terms[4]["planned_ns"].as_u64()),
        (5, Some(bound_ns))
    );
    assert_eq!(
        (&checked["guest"]["misses"], &checks["broken"][0]["over"]),
        (&1.into(), &1.into())
    );
    let shown = text(&site.run(&["status"]).stdout);
    assert!(
        shown.contains(&broken) && shown.contains("no request was followed yet"),
        "{shown}"
    );
    kill(Pid::from_raw(watch.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(watch.wait().unwrap().success());
    fs::remove_file(report).unwrap();
}

#[test]
fn a_watch_serves_a_vm_whatever_else_of_the_host_is_wrong_and_says_each_fault_once() {
    let site = Site::new();
    let (good, twice, beside) = (name("watched"), name("twice"), name("beside"));
    site.write(&format!(
        "[class.r]\nvcpu = {RANK}\n[class.offline]\nvcpu = {RANK}\npath_cpus = [4095]\n[[nic]]\nname = \"sv-absent0\"\n\
         class = \"r\"\n[[vm]]\nname = \"{twice}\"\nclass = \"r\"\n[[vm]]\nname = \"{good}\"\nclass = \"r\"\n"
    ));
    site.beside("broken.toml", "[[vm]");
    site.beside(
        "hook.toml",
        &format!("[[vm]]\nname = \"{beside}\"\nclass = \"offline\"\n"),
    );
    let doubled = [Process::start(&twice), Process::start(&twice)];
    let offline = Process::start(&beside);
    let (mut watch, lines) = site.watch();
    let mut log = Vec::new();
    let faults = ["card sv-absent0", "broken.toml", &twice, &beside];
    for part in faults {
        await_line(&lines, &mut log, |line| {
            line.contains(part) && line.contains("is not served")
        });
    }
    let late = Process::start(&good);
    let thread = late.thread.to_string();
    await_line(&lines, &mut log, |line| {
        line.contains(&thread) && line.contains("FIFO 65")
    });
    assert_eq!(late.rank(), RANK);
    assert_eq!(offline.rank(), 0);
    // What is mended is served, without a word to the watch: it looks when the next VM comes or goes.
    site.beside("broken.toml", "");
    site.beside(
        "hook.toml",
        &format!("[[vm]]\nname = \"{beside}\"\nclass = \"r\"\n"),
    );
    let [_one, other] = doubled;
    drop(other);
    for part in [&twice, &beside] {
        await_line(&lines, &mut log, |line| {
            line.contains(part.as_str()) && line.contains("served again")
        });
    }
    assert_eq!(offline.rank(), RANK);
    kill(Pid::from_raw(watch.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(watch.wait().unwrap().success());
    log.extend(lines.iter());
    for part in faults {
        let said = log
            .iter()
            .filter(|line| line.contains(part) && line.contains("is not served"));
        assert_eq!(said.count(), 1, "{part}: {log:#?}");
    }
    assert_eq!(late.rank(), 0, "undone at its stop");
}

#[test]
fn status_shows_what_is_in_force_where_the_file_is_wrong() {
    let site = Site::new();
    let vm = name("shown");
    let good = format!("[class.r]\nvcpu = {RANK}\n[[vm]]\nname = \"{vm}\"\nclass = \"r\"\n");
    site.write(&good);
    let process = Process::start(&vm);
    assert_eq!(site.run(&["apply"]).status.code(), Some(0));
    let whole = site.run(&["status", "--json"]);
    assert_eq!(whole.status.code(), Some(0));
    let json_of_good: serde_json::Value = serde_json::from_slice(&whole.stdout).unwrap();
    for wrong in ["[[vm]", "[[vm]]\nname = \"x\"\nclass = \"nope\"\n"] {
        site.write(wrong);
        let status = site.run(&["status"]);
        let shown = text(&status.stdout);
        assert_eq!(status.status.code(), Some(2), "{}", text(&status.stderr));
        assert!(shown.contains(" settings hold"), "{shown}");
        assert!(
            shown.contains("what the file wants cannot be told"),
            "{shown}"
        );
        let json = site.run(&["status", "--json"]);
        let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(json["holding"], json_of_good["holding"]);
    }
    assert_eq!(process.rank(), RANK);
    site.run_without_file(&["undo"]);
    assert_eq!(process.rank(), 0);
}

impl Site {
    fn new() -> Self {
        // A test that failed has dropped its site, and so undone what it had in force.
        let alone = MACHINE
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let throttling = fs::read_to_string(THROTTLING).unwrap();
        fs::write(THROTTLING, "950000").unwrap();
        Self {
            directory: tempfile::tempdir().unwrap(),
            throttling,
            _alone: alone,
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("site.toml")
    }

    fn write(&self, text: &str) {
        fs::write(self.path(), text).unwrap();
    }

    fn beside(&self, file: &str, text: &str) {
        let directory = self.directory.path().join("site.d");
        fs::create_dir_all(&directory).unwrap();
        let new = directory.join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, directory.join(file)).unwrap();
    }

    fn command(&self, words: &[&str], file: Option<&Path>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steadyvm"));
        command.args(words).args(file).stdin(Stdio::null());
        command
            .arg("--state-dir")
            .arg(self.directory.path().join("state"));
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words, Some(&self.path())).output().unwrap()
    }

    fn run_without_file(&self, words: &[&str]) -> Output {
        self.command(words, None).output().unwrap()
    }

    /// A watch, and what it says.
    fn watch(&self) -> (Child, Receiver<String>) {
        let mut command = self.command(&["watch", "--undo-at-stop"], Some(&self.path()));
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (say, said) = channel();
        thread::spawn(move || {
            let mut lines = stderr.lines().map_while(Result::ok);
            lines.try_for_each(|line| say.send(line))
        });
        (child, said)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.run_without_file(&["undo"]);
        let _ = fs::write(THROTTLING, &self.throttling);
    }
}

/// Waits for a line, and keeps those before it.
fn await_line(lines: &Receiver<String>, log: &mut Vec<String>, is_it: impl Fn(&str) -> bool) {
    if log.iter().any(|line| is_it(line)) {
        return;
    }
    loop {
        let line = lines.recv_timeout(PATIENCE);
        let line = line.unwrap_or_else(|error| panic!("{error}; it said {log:#?}"));
        let found = is_it(&line);
        log.push(line);
        if found {
            return;
        }
    }
}

impl Process {
    fn start(name: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "vm",
                "--ignored",
                "--nocapture",
                "--",
                "-name",
                name,
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let thread = output
            .find_map(|line| line.unwrap().split_once(READY)?.1.trim().parse().ok())
            .expect("the VM starts");
        Self {
            _until: child.stdin.take().unwrap(),
            child,
            thread: Pid::from_raw(thread),
        }
    }

    fn keep_on(&self, cpus: &[usize]) {
        let mut set = CpuSet::new();
        for cpu in cpus {
            set.set(*cpu).unwrap();
        }
        sched_setaffinity(self.thread, &set).unwrap();
    }

    fn policy(&self) -> i32 {
        // SAFETY: takes and gives numbers.
        let policy = unsafe { libc::sched_getscheduler(self.thread.as_raw()) };
        policy & !libc::SCHED_RESET_ON_FORK
    }

    /// Its FIFO priority; 0 without one.
    fn rank(&self) -> i32 {
        // SAFETY: all zeroes are a value of it, and the kernel fills it in.
        unsafe {
            let mut parameters: libc::sched_param = std::mem::zeroed();
            libc::sched_getparam(self.thread.as_raw(), &raw mut parameters);
            parameters.sched_priority
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "no test: a VM of the others"]
fn vm() {
    let _vm = Vm::create();
    let (until_end, end) = channel::<()>();
    let vcpu = thread::Builder::new()
        .name("CPU 0/KVM".into())
        .spawn(move || {
            // SAFETY: takes nothing, gives this thread's number.
            println!("{READY} {}", unsafe { libc::gettid() });
            let _ = end.recv();
        });
    // Until the other end is closed.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop(until_end);
    vcpu.unwrap().join().unwrap();
}

fn name(of: &str) -> String {
    format!("faults-{of}-{}", std::process::id())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
