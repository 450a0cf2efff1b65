//! VMs that start and end ten per second while a watch ranks them: real processes that hold real KVM VMs, on this machine.
//!
//! Each VM waits until its VCPU's thread has the rank of the file, and tells how long that took; then it ends. Needs root and
//! /dev/kvm. `STEADYVM_CHURN_S`: how long, 10 s without it. `STEADYVM_PAGE`: where to write what came of it, as a page. By hand for
//! ten minutes: `make churn-tests`.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

#[path = "support/kvm.rs"]
mod kvm;

use kvm::Vm;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use steadyvm_report::picture::{Bar, Group};
use steadyvm_report::results_page::{self, Details};
use steadyvm_report::{Answer, Finding, Picture};

/// Names in the file. A name is used again once its VM has ended.
const VMS: usize = 40;
const APART: Duration = Duration::from_millis(100);
/// A VM that has no rank by then is lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// A VM is as the file says within this time of its first VCPU's thread.
const LIMIT_MS: f64 = 200.0;
const RANK: i32 = 65;
const RANKED: &str = "ranked after us:";

#[test]
#[ignore = "changes ranks of threads on this machine; takes STEADYVM_CHURN_S seconds"]
fn a_watch_loses_no_vm_of_ten_per_second_and_leaves_nothing() {
    let seconds: u64 = std::env::var("STEADYVM_CHURN_S").map_or(10, |text| text.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let file = directory.path().join("site.toml");
    std::fs::write(&file, site()).unwrap();
    let mut watch = steadyvm(&["watch", "--undo-at-stop"], &file, &state)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (say, said) = mpsc::channel();
    let lines = BufReader::new(watch.stderr.take().unwrap()).lines();
    thread::spawn(move || lines.for_each(|line| say.send(line.unwrap()).unwrap_or_default()));

    let mut free: VecDeque<usize> = (0..VMS).collect();
    let (ended, ends) = mpsc::channel::<(usize, Option<u64>)>();
    let began = Instant::now();
    let (mut started, mut after_us) = (0_u32, Vec::new());
    let mut resources = Vec::new();
    let mut take = |free: &mut VecDeque<usize>, (number, ranked): (usize, Option<u64>)| {
        free.push_back(number);
        after_us.push(ranked.unwrap_or_else(|| panic!("VM {number} got no rank in {PATIENCE:?}")));
    };
    while began.elapsed() < Duration::from_secs(seconds) {
        let next = began + APART * started;
        while let Ok(end) = ends.recv_timeout(next.saturating_duration_since(Instant::now())) {
            take(&mut free, end);
        }
        let number = free.pop_front().expect("VMs end as fast as they start");
        let ended = ended.clone();
        thread::spawn(move || ended.send((number, live(number))).unwrap());
        started += 1;
        if started.is_multiple_of(100) {
            resources.push(held_by(watch.id()));
        }
    }
    while free.len() < VMS {
        take(&mut free, ends.recv().unwrap());
    }
    assert_eq!(after_us.len(), started as usize);
    if let ([first, .., last], true) = (&resources[..], seconds >= 60) {
        assert!(last.files <= first.files, "descriptors grow: {resources:?}");
        assert!(
            last.memory_kib <= first.memory_kib + 4096,
            "memory grows: {resources:?}"
        );
    }
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(watch.id().cast_signed()),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    assert!(watch.wait().unwrap().success(), "{:?}", said.iter().last());
    let left: Vec<_> = std::fs::read_dir(&state)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().contains("journal")),
        "{left:?}"
    );

    after_us.sort_unstable();
    let at = |share| quantile_ms(&after_us, share);
    let held = resources.last();
    println!(
        "{started} VMs in {seconds} s: ranked after p50 {:.1}, p99 {:.1}, max {:.1} ms; {held:?}",
        at(0.5),
        at(0.99),
        at(1.0),
    );
    if let Ok(file) = std::env::var("STEADYVM_PAGE") {
        let (answer, details) = page(seconds, &after_us, held);
        results_page::write(Path::new(&file), &answer, &details).unwrap();
    }
    assert!(at(1.0) <= LIMIT_MS, "{} ms", at(1.0));
}

/// Of times in ascending order.
fn quantile_ms(after_us: &[u64], share: f64) -> f64 {
    after_us[((after_us.len() - 1) as f64 * share) as usize] as f64 / 1e3
}

/// `after_us` in ascending order.
fn page(seconds: u64, after_us: &[u64], held: Option<&Held>) -> (Answer, Details) {
    let ms = |share| quantile_ms(after_us, share);
    let mean = after_us.iter().sum::<u64>() as f64 / after_us.len() as f64 / 1e3;
    let late = after_us.iter().filter(|&&us| us as f64 / 1e3 > LIMIT_MS);
    let late = late.count() as u64;
    let mut text = format!(
        "| VMs | lost | mean, ms | p50 | p99 | p99.9 | max | later than {LIMIT_MS:.0} ms |\n|---|---|---|---|---|---|---|---|\n\
         | {} | 0 | {mean:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {} |\n",
        after_us.len(),
        ms(0.5),
        ms(0.99),
        ms(0.999),
        ms(1.0),
        late,
    );
    if let Some(held) = held {
        let _ = write!(
            text,
            "\nAt the end the watch holds {} files and {} KiB of memory. It has used {:.1} s of CPU time.\n",
            held.files,
            held.memory_kib,
            held.cpu_ticks as f64 / 100.0,
        );
    }
    let bar = |name, share| Bar::new(name, Some(ms(share)), |it| format!("{it:.1} ms"));
    let answer = Answer {
        question: "Does the watch keep up with ten new VMs per second?".to_owned(),
        findings: vec![
            Finding::Count {
                of: String::new(),
                what: format!(
                    "VMs ranked later than {LIMIT_MS:.0} ms after their first instruction"
                ),
                count: late,
                all: after_us.len() as u64,
            },
            Finding::Bound {
                of: String::new(),
                figure: "the longest time to its rank".to_owned(),
                words: format!("{:.1} ms", ms(1.0)),
                bound: Some((format!("at most {LIMIT_MS:.0} ms"), ms(1.0) <= LIMIT_MS)),
            },
        ],
        picture: Picture {
            title: "From a VM's first instruction to its rank; shorter is better".to_owned(),
            groups: vec![Group {
                name: format!("{} VMs, ten per second", after_us.len()),
                bars: vec![bar("median", 0.5), bar("p99", 0.99), bar("longest", 1.0)],
            }],
        },
    };
    let details = Details {
        command: format!(
            "STEADYVM_CHURN_S={seconds} STEADYVM_PAGE=$PWD/docs/results/churn.md cargo test --release -p steadyvm --test churn \
             a_watch -- --ignored"
        ),
        warning: format!(
            "Processes that hold a KVM VM start at ten per second on the machine itself while `steadyvm watch` keeps a file in \
             force that names {VMS} VMs. Each VM ends once its VCPU's thread has its rank. The time counts from the thread's \
             first instruction, and is read once per ms."
        ),
        tables: text,
        facts: Vec::new(),
    };
    (answer, details)
}

/// All VMs, each with one rank.
fn site() -> String {
    let mut text = format!("[class.churn]\nvcpu = {RANK}\n");
    for number in 0..VMS {
        let _ = write!(
            text,
            "[[vm]]\nname = \"{}\"\nclass = \"churn\"\n",
            name(number)
        );
    }
    text
}

/// A name that no other VM of this machine has.
fn name(number: usize) -> String {
    format!("churn-{}-{number}", std::process::id())
}

fn steadyvm(words: &[&str], file: &Path, state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steadyvm"));
    command.args(words).arg(file).arg("--state-dir").arg(state);
    command.stdin(Stdio::null());
    command
}

#[derive(Debug)]
struct Held {
    files: usize,
    memory_kib: u64,
    cpu_ticks: u64,
}

fn held_by(pid: u32) -> Held {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let memory = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let ticks = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .skip(11)
        .take(2);
    Held {
        files: std::fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .count(),
        memory_kib: memory.trim().trim_end_matches(" kB").parse().unwrap(),
        cpu_ticks: ticks.map(|word| word.parse::<u64>().unwrap()).sum(),
    }
}

/// A VM's life: how long its VCPU's thread waited for its rank, µs.
fn live(number: usize) -> Option<u64> {
    let mut child: Child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "vm",
            "--ignored",
            "--nocapture",
            "--",
            "-name",
            &name(number),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap()).lines();
    let ranked = output
        .map_while(Result::ok)
        .find_map(|line| line.split_once(RANKED)?.1.trim().parse().ok());
    child.wait().unwrap();
    ranked
}

#[test]
#[ignore = "no test: a VM of the other one"]
fn vm() {
    let _vm = Vm::create();
    let thread = thread::Builder::new().name("CPU 0/KVM".into()).spawn(|| {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            // SAFETY: takes no pointers but one to a live value; 0 is this thread.
            let rank = unsafe {
                let mut parameters: libc::sched_param = std::mem::zeroed();
                libc::sched_getparam(0, &raw mut parameters);
                parameters.sched_priority
            };
            if rank == RANK {
                println!("{RANKED} {}", began.elapsed().as_micros());
                break;
            }
            // The kernel tells nobody of a new rank.
            thread::sleep(Duration::from_millis(1));
        }
    });
    thread.unwrap().join().unwrap();
}
