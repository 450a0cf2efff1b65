//! The verb `load` as the lab uses it. Nothing here needs the lab.

#![allow(clippy::unwrap_used)] // helpers of tests

#[path = "../../steadyvm/tests/support/public_copy.rs"]
mod public_copy;

use serde::de::DeserializeOwned;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread;

use nix::sys::stat::Mode;
use nix::unistd::{geteuid, gettid, mkfifo};
use steadyvm_host::{KernelThreads, Policy, Scheduling, Threads};
use steadyvm_load::end_to_end;
use steadyvm_load::flood::Count;
use steadyvm_load::job::{Ran, Task};
use steadyvm_load::stream;
use steadyvm_load::workload::Answer;

/// `steadyvm-lab load WORDS`, ready.
struct Load {
    child: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Load {
    fn start(words: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_steadyvm-lab"))
            .arg("load")
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let requests = child.stdin.take().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(answers.next().unwrap().unwrap(), "ready");
        Self {
            child,
            requests,
            answers,
        }
    }

    fn ask<T: DeserializeOwned>(&mut self, request: &str) -> T {
        writeln!(self.requests, "{request}").unwrap();
        let answer = self.answers.next().unwrap().unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    fn count(&mut self) -> Count {
        self.ask("count")
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// Each sink has a loopback address of its own, so that its port is free.

#[test]
fn a_sink_of_tcp_counts_bytes_and_tells_when() {
    let address = "127.77.0.1:7701";
    let mut sink = Load::start(&["sink", address, "--protocol", "tcp"]);
    let before = sink.count();
    assert_eq!(before.received, 0);
    let connection = TcpStream::connect(address).unwrap();
    (&connection).write_all(&[0; 1234]).unwrap();
    // Nothing more; it returns when the sink has everything.
    stream::send(&connection, &AtomicBool::new(true)).unwrap();
    let after = sink.count();
    assert_eq!(after.received, 1234);
    assert!(after.at_ns > before.at_ns, "{before:?} {after:?}");
}

#[test]
fn a_sink_is_of_udp_unless_told_otherwise_and_counts_packets() {
    let address = "127.77.0.2:7701";
    let mut sink = Load::start(&["sink", address]);
    let sender = UdpSocket::bind("127.77.0.2:0").unwrap();
    for _ in 0..3 {
        sender.send_to(&[0; 64], address).unwrap();
    }
    // Loopback loses none, but the sink may have yet to read them.
    while sink.count().received < 3 {}
    assert_eq!(sink.count().received, 3);
}

#[test]
fn jobs_are_done_and_what_they_waited_is_told() {
    let mut load = Load::start(&["job"]);
    let units: u64 = load.ask("calibrate 100");
    let task = Task {
        period_us: 1000,
        work: units,
        jobs: 5,
        backlog: false,
    };
    let request = format!("run {}", serde_json::to_string(&task).unwrap());
    let ran: Ran = load.ask(&request);
    let last_ns = ran.done[4].finished_ns;
    assert_eq!(ran.done.len(), 5);
    assert!(last_ns > 4_000_000 && ran.waited_ns < last_ns, "{ran:?}");
}

#[test]
fn a_task_over_two_is_done_in_all_stages() {
    let address = "127.77.0.4:7702";
    let mut stage = Load::start(&["stage", address]);
    let units: u64 = stage.ask("calibrate 100");
    assert_eq!(stage.ask::<u64>(&format!("work {units}")), units);
    let mut pipeline = Load::start(&["pipeline", address]);
    let task = end_to_end::Task {
        period_us: 2000,
        work: pipeline.ask("calibrate 100"),
        jobs: 4,
        timeout_us: 60_000_000,
        run: 1,
    };
    let request = format!("run {}", serde_json::to_string(&task).unwrap());
    let ran: end_to_end::Ran = pipeline.ask(&request);
    assert_eq!((ran.done.len(), ran.lost), (4, 0), "{ran:?}");
}

#[test]
fn jobs_and_misses_are_reported() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("report");
    let mut load = Load::start(&["job", "--report", path.to_str().unwrap()]);
    // Longer than its period, whatever machine this is.
    let task = Task {
        period_us: 1,
        work: 1000,
        jobs: 5,
        backlog: false,
    };
    for runs in 1..=2 {
        let request = format!("run {}", serde_json::to_string(&task).unwrap());
        let _: Ran = load.ask(&request);
        let text = std::fs::read_to_string(&path).unwrap();
        let jobs = 5 * runs;
        let last = format!("{{\"jobs\":{jobs},\"misses\":{jobs}}}");
        assert_eq!(text.lines().last(), Some(last.as_str()), "{text}");
    }
}

#[test]
fn sporadic_jobs_of_varying_length_are_recorded_each() {
    let mut load = Load::start(&["job"]);
    let task = r#"{"period_us": 2000, "extra_us": 1000, "execution_us": 500, "factor": [0.5, 1.5],
        "deadline_us": 1000000, "buffer_kib": 256, "jobs": 20, "backlog": true, "seed": 5}"#;
    let answer: Answer = load.ask(&format!("run {}", task.replace('\n', " ")));
    assert_eq!(answer.done.len(), 20);
    let late = answer
        .done
        .iter()
        .filter(|job| job.finished_ns > job.deadline_ns);
    assert_eq!(answer.missed, late.count() as u64);
    assert!(answer.work > 0);
    for pair in answer.done.windows(2) {
        let between = pair[1].released_ns - pair[0].released_ns;
        assert!((2_000_000..=3_000_000).contains(&between), "{between}");
        assert_eq!(pair[0].deadline_ns, pair[0].released_ns + 1_000_000_000);
        assert!(pair[0].started_ns >= pair[0].released_ns);
    }
    // Releases are the seed's: another run has the same.
    let again: Answer = load.ask(&format!("run {}", task.replace('\n', " ")));
    let released =
        |answer: &Answer| -> Vec<u64> { answer.done.iter().map(|job| job.released_ns).collect() };
    assert_eq!(released(&again), released(&answer));
}

/// Whether the kernel gives a thread of this test such a policy.
fn is_permitted(scheduling: Scheduling) -> bool {
    let thread = thread::spawn(move || {
        let own = gettid().as_raw().cast_unsigned();
        KernelThreads.set_scheduling(own, &scheduling).is_ok()
    });
    thread.join().unwrap()
}

/// Runs a task of two jobs in a policy. Where the kernel permits that, the jobs have it, and the thread has its own
/// again afterwards; elsewhere the program says so and ends.
fn jobs_have_the_policy(words: &str, expected: Scheduling) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("report");
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    let mut load = Load::start(&["job", "--report", path.to_str().unwrap()]);
    let mut reports = OpenOptions::new().read(true).open(&path).unwrap();
    let task = format!(r#"{{"period_us": 300000, "work": 1000, "jobs": 2, "policy": "{words}"}}"#);
    if !is_permitted(expected) {
        writeln!(load.requests, "run {task}").unwrap();
        assert!(load.answers.next().is_none());
        assert_eq!(load.child.wait().unwrap().code(), Some(3));
        return;
    }
    let thread = load.child.id();
    let before = KernelThreads.scheduling(thread).unwrap();
    writeln!(load.requests, "run {task}").unwrap();
    // The first job's report comes at once; the second job is yet to be released.
    assert!(reports.read(&mut [0; 64]).unwrap() > 0);
    let during = KernelThreads.scheduling(thread).unwrap();
    assert!(during.same_as(&expected), "{during:?}");
    let answer: Answer = serde_json::from_str(&load.answers.next().unwrap().unwrap()).unwrap();
    assert_eq!(answer.done.len(), 2);
    // It answers after it has given the policy back.
    assert!(KernelThreads.scheduling(thread).unwrap().same_as(&before));
}

#[test]
fn jobs_run_by_fifo_while_they_are_asked_to_or_the_refusal_says_why() {
    jobs_have_the_policy("fifo:7", Scheduling::fifo(7, 0));
}

#[test]
fn jobs_run_by_deadline_while_they_are_asked_to_or_the_refusal_says_why() {
    let expected = Scheduling::deadline(1_000_000, 5_000_000, 10_000_000, 0);
    assert_eq!(expected.policy, Policy::Deadline);
    jobs_have_the_policy("deadline:1000/5000/10000", expected);
}

/// Without the right to, as nobody: root loses it by another user's number.
#[test]
fn a_policy_that_is_not_permitted_is_refused_with_what_to_do() {
    // Nobody may run the program's file, wherever the tree is.
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(public_copy::program_in(
        place.path(),
        env!("CARGO_BIN_EXE_steadyvm-lab"),
    ));
    if geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let mut child = command
        .args(["load", "job"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let task =
        r#"run {"period_us": 1000, "work": 1, "jobs": 1, "policy": "deadline:1000/5000/10000"}"#;
    writeln!(child.stdin.take().unwrap(), "{task}").unwrap();
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(3), "{said}");
    assert_eq!(String::from_utf8_lossy(&done.stdout), "ready\n");
    for part in [
        "policy deadline:1000/5000/10000",
        "not permitted",
        "CAP_SYS_NICE",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_task_or_request_that_makes_no_sense_ends_with_2_and_says_what_to_write() {
    for (request, part) in [
        ("sleep 3", "write: calibrate MICROSECONDS, or run TASK"),
        ("calibrate", "write: calibrate MICROSECONDS"),
        ("calibrate soon", "write `calibrate 4000`"),
        ("calibrate 1 2 3", "write `calibrate 4000`"),
        ("calibrate 1 0", "1 to 1048576"),
        ("run {}", "steadyvm-lab load job --help"),
        (r#"run {"period_us": 1, "jobs": 1}"#, "execution_us"),
        (
            r#"run {"period_us": 1, "jobs": 1, "work": 1, "policy": "fifo:100"}"#,
            "with 1 to 99",
        ),
        (
            r#"run {"period_us": 1, "jobs": 1, "work": 1, "policy": "deadline:1/2/3"}"#,
            "which SCHED_DEADLINE asks for",
        ),
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_steadyvm-lab"))
            .args(["load", "job"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(child.stdin.take().unwrap(), "{request}").unwrap();
        let done = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{request}: {said}");
        assert!(said.contains(part), "{request}: {said}");
    }
}

#[test]
fn an_address_that_cannot_be_listened_on_is_named() {
    let taken = std::net::TcpListener::bind("127.77.0.3:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let done = Command::new(env!("CARGO_BIN_EXE_steadyvm-lab"))
        .args(["load", "sink", &address, "--protocol", "tcp"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && said.contains(&address), "{said}");
}
