//! Wake-ups of real threads on this machine, by both ways at once. Needs root; BPF and BTF of the kernel.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::query::ProgInfoIter;
use nix::mount::{MsFlags, mount};
use nix::sched::CloneFlags;
use steadyvm_stats::steps::step_of;
use steadyvm_trace::wake_ups::{Source, Waits, WakeUps};

const PATIENCE: Duration = Duration::from_secs(30);
const CPU: usize = 0;
const LOADED: &str = "loaded";

/// A thread that sleeps until somebody writes to it.
struct Sleeper {
    tid: u32,
    /// Each byte is a wake-up; its end ends the thread.
    wake: UnixStream,
}

impl Sleeper {
    fn start() -> Self {
        let (wake, mut sleep) = UnixStream::pair().unwrap();
        let (tell, told) = channel();
        thread::spawn(move || {
            run_on(CPU, 1);
            tell.send(own_tid()).unwrap();
            while sleep.read_exact(&mut [0]).is_ok() {}
        });
        let tid = told.recv().unwrap();
        Self { tid, wake }
    }

    /// How often it has gone to sleep: it left a CPU, which another wake-up follows and nothing else.
    fn sleeps(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/self/task/{}/status", self.tid)).unwrap();
        let mut lines = text.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    }

    /// Waits until it is off its CPU: the kernel tells the system call of no other thread. Gives how often it has slept.
    fn await_sleep(&self) -> u64 {
        let until = Instant::now() + PATIENCE;
        let file = format!("/proc/self/task/{}/syscall", self.tid);
        while fs::read_to_string(&file).unwrap().starts_with("running") {
            assert!(Instant::now() < until);
            thread::yield_now();
        }
        self.sleeps()
    }

    fn await_sleep_after(&self, sleeps: u64) {
        let until = Instant::now() + PATIENCE;
        while self.sleeps() == sleeps {
            assert!(Instant::now() < until);
            thread::yield_now();
        }
    }
}

/// Keeps the CPU from the sleeper for as long as it is asked to, from its wake-up on.
fn hold(wake: &UnixStream, asked: &Receiver<Duration>) {
    run_on(CPU, 2);
    for long in asked {
        let begin = Instant::now();
        (&*wake).write_all(&[0]).unwrap();
        while begin.elapsed() < long {}
    }
}

fn own_tid() -> u32 {
    // SAFETY: it takes nothing and gives a number.
    unsafe { libc::gettid() }.cast_unsigned()
}

/// This thread runs on one CPU, by `SCHED_FIFO`.
fn run_on(cpu: usize, priority: i32) {
    // SAFETY: all zero is an empty set.
    let mut cpus: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the CPU is below the set's size.
    unsafe { libc::CPU_SET(cpu, &mut cpus) };
    // SAFETY: the kernel reads a live set of this size.
    let pinned = unsafe { libc::sched_setaffinity(0, size_of_val(&cpus), &raw const cpus) };
    assert_eq!(pinned, 0);
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: the kernel reads a live value of this type.
    let ranked = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    assert_eq!(ranked, 0, "needs root");
}

/// Gives this thread, and those it starts from now on, a tracefs that others do not see, if there is none.
fn mount_tracefs() {
    let none: Option<&str> = None;
    nix::sched::unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(none, "/", none, private, none).unwrap();
    let (kind, place) = (Some("tracefs"), "/sys/kernel/tracing");
    if std::path::Path::new(place).join("events").exists() {
        return;
    }
    mount(kind, place, kind, MsFlags::empty(), none).unwrap();
}

fn cpus() -> Vec<usize> {
    (0..thread::available_parallelism().unwrap().get()).collect()
}

fn waits(of: &mut WakeUps, tid: u32) -> Waits {
    of.take().unwrap().remove(&tid).unwrap_or_default()
}

/// Wakes it once for each of these times and has it wait as long; gives how often it slept.
fn wake(sleeper: &Sleeper, ask: &Sender<Duration>, held: &[Duration]) -> u64 {
    let first = sleeper.await_sleep();
    let mut sleeps = first;
    for long in held {
        ask.send(*long).unwrap();
        sleeper.await_sleep_after(sleeps);
        sleeps = sleeper.sleeps();
    }
    sleeps - first
}

#[test]
fn both_ways_see_each_wake_up_and_their_medians_agree_within_a_step() {
    mount_tracefs();
    let sleeper = Sleeper::start();
    let only = BTreeSet::from([sleeper.tid]);
    let mut counted = WakeUps::by(Source::Bpf, &cpus(), &only).unwrap();
    let mut recorded = WakeUps::by(Source::Tracepoints, &cpus(), &only).unwrap();
    let (ask, asked) = channel();
    thread::scope(|scope| {
        let wake_end = &sleeper.wake;
        scope.spawn(move || hold(wake_end, &asked));
        // Its first sleep is over before both begin anew.
        sleeper.await_sleep();
        counted.take().unwrap();
        recorded.take().unwrap();
        for interval in 0_u64..3 {
            let held: Vec<Duration> = (0..20)
                .map(|step| Duration::from_micros(300 + 100 * interval + 50 * step))
                .collect();
            let sleeps = wake(&sleeper, &ask, &held);
            assert!(sleeps >= held.len() as u64);
            let (by_bpf, by_events) = (
                waits(&mut counted, sleeper.tid),
                waits(&mut recorded, sleeper.tid),
            );
            assert_eq!((by_bpf.n, by_events.n), (sleeps, sleeps));
            for it in [by_bpf, by_events] {
                assert!(it.max_ns >= held[19].as_nanos() as u64 / 2, "{it:?}");
            }
            // The machine may stand still between the two ways' looks at the clock: that moves a median by one wait at most, and
            // any mean or maximum.
            let [bpf, events] = [by_bpf, by_events].map(|it| step_of(it.p50_ns));
            assert!(bpf.abs_diff(events) <= 1, "{by_bpf:?} {by_events:?}");
        }
        // Without a wake-up there is none, and what was taken does not come again.
        for _ in 0..3 {
            assert_eq!(waits(&mut counted, sleeper.tid), Waits::default());
        }
        drop(ask);
    });
    assert_eq!(recorded.lost(), 0);
}

#[test]
fn threads_come_and_go_while_it_goes_on() {
    let sleepers: Vec<Sleeper> = (0..3).map(|_| Sleeper::start()).collect();
    let wake = |sleeper: &Sleeper| {
        let sleeps = sleeper.await_sleep();
        (&sleeper.wake).write_all(&[0]).unwrap();
        sleeper.await_sleep_after(sleeps);
    };
    sleepers.iter().for_each(wake);
    let tids: Vec<u32> = sleepers.iter().map(|sleeper| sleeper.tid).collect();
    let mut counted = WakeUps::by(Source::Bpf, &cpus(), &[tids[0], tids[1]].into()).unwrap();
    // With PREEMPT_RT a thread may wait for a lock, too: how often it wakes is the other test's.
    let mut seen = |then: &[u32]| -> Vec<(u32, bool)> {
        sleepers.iter().for_each(wake);
        let seen = counted.take().unwrap();
        counted.retrace(&then.iter().copied().collect()).unwrap();
        seen.into_iter().map(|(tid, it)| (tid, it.n > 0)).collect()
    };
    let woken = |tids: &[u32]| {
        let mut all: Vec<(u32, bool)> = tids.iter().map(|tid| (*tid, true)).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(seen(&tids[1..]), woken(&tids[..2]));
    assert_eq!(seen(&tids[..1]), woken(&tids[1..]));
    assert_eq!(seen(&tids), woken(&tids[..1]));
    assert_eq!(seen(&tids), woken(&tids));
    // More than fit are refused, and those before stay.
    let many: BTreeSet<u32> = (1_000_000..1_000_900).collect();
    assert!(counted.retrace(&many).is_err());
    sleepers.iter().for_each(wake);
    assert!(counted.take().unwrap().values().all(|it| it.n > 0));
}

/// Our programs that the kernel has now.
fn programs() -> BTreeSet<u32> {
    let ours = |name: &[u8]| [b"woken".as_slice(), b"switched"].contains(&name);
    ProgInfoIter::default()
        .filter(|program| ours(program.name.as_encoded_bytes()))
        .map(|program| program.id)
        .collect()
}

#[test]
fn nothing_is_left_after_sigkill() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "traces_itself", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ids: BTreeSet<u32> = lines
        .find_map(|line| {
            let line = line.unwrap();
            let ids = line.split_once(LOADED)?.1.split_whitespace();
            Some(ids.map(|id| id.parse().unwrap()).collect())
        })
        .unwrap();
    assert!(ids.len() >= 2);
    assert!(ids.is_subset(&programs()), "{ids:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    // The kernel frees them a while after the last descriptor.
    let until = Instant::now() + PATIENCE;
    while !ids.is_disjoint(&programs()) {
        assert!(Instant::now() < until, "{ids:?}");
        thread::yield_now();
    }
}

#[test]
#[ignore = "no test: the process that is killed"]
fn traces_itself() {
    let before = programs();
    let _counted = WakeUps::by(Source::Bpf, &cpus(), &[own_tid()].into()).unwrap();
    let ids: Vec<String> = programs()
        .difference(&before)
        .map(ToString::to_string)
        .collect();
    println!("{LOADED} {}", ids.join(" "));
    std::io::stdin().read_exact(&mut [0]).unwrap();
}
