//! The host stays alive beside a VM that computes at real-time priority and a flood at its card: what
//! steadyvm does about the threads of RCU, of the timers and of the disk's interrupts, and what happens
//! without it. As tests/lab.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::profile::{all_hold, inside, laboratory, shown, undo, write};
use steadyvm_lab::host::{EmulatedHost, RT};
use steadyvm_lab::laboratory::{HostKernel, guest};
use steadyvm_lab::progress::Silent;

/// The flood ends where the work beside it fails, too.
const PATIENCE: Duration = Duration::from_secs(120);

/// The README's six lines, for the lab's card and guest; and the other card at normal priority, interrupts and all, so
/// that it has the fair server's share. With its interrupts at FIFO 50 its driver would reset it as VCPUs compute, and wait
/// for these interrupts with the lock of all network settings (`rtnl_lock()`).
const FILE: &str = "
[[nic]]
name = \"rt\"
class = \"rt\"
[[vm]]
name = \"rt\"
class = \"rt\"
[[nic]]
name = \"bulk\"
class = \"others\"
[class.others]
extends = \"best-effort\"
irq = \"normal\"
";

/// What a kernel says of itself when threads of its own get no CPU.
const REPORTS: &str = "stall|blocked for more than|lockup|BUG:|WARNING:|starved";

/// Sends packets to the RT card's address while the work is done.
fn flood_while<T>(host: &EmulatedHost, work: impl FnOnce() -> T) -> T {
    let socket = host
        .outside()
        .enter(|| Ok(UdpSocket::bind("0.0.0.0:0").unwrap()))
        .unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let until = Instant::now() + PATIENCE;
            while !stop.load(Ordering::Relaxed) && Instant::now() < until {
                // Nobody reads them; a refusal told to this socket is no end.
                let _ = socket.send_to(b"flood", (RT.host(), 9));
            }
        });
        let done = work();
        stop.store(true, Ordering::Relaxed);
        done
    })
}

/// Reads a block of the host's disk, which has to interrupt for it.
const READ: &str = "dd if=/dev/vda of=/dev/null bs=64k count=1 iflag=direct 2> /dev/null";

/// A minute of a host whose CPUs real-time VCPUs do not leave: sleeps that end, grace periods of RCU, which a device
/// waits for before it goes, and the disk. Returns what its kernel reported.
fn minute(host: &EmulatedHost) -> String {
    inside(
        host,
        "dmesg -C; echo 5 > /sys/module/rcupdate/parameters/rcu_cpu_stall_timeout
         echo 20 > /proc/sys/kernel/hung_task_timeout_secs",
    );
    let script = format!(
        "end=$(($(date +%s) + 60))
         while [ $(date +%s) -lt $end ]; do
             echo sleep >> /run/steps; sleep 0.1
             echo link >> /run/steps; ip link add v0 type veth peer name v1; ip link delete v0
             echo disk >> /run/steps; {READ}
         done"
    );
    // It may take longer than a connection waits for one command's word.
    let worker = host.connection().spawn(&["sh", "-euc", &script]).unwrap();
    let ended = worker.finish(2 * PATIENCE).unwrap_or_else(|error| {
        let words = "tail -n 3 /run/steps; ps -eLo lwp,cls,rtprio,psr,stat,time,wchan:30,comm
             for process in $(pgrep -x 'ip|dd|sleep'); do echo \"$process:\"; cat /proc/$process/stack; done";
        panic!("{error}\n{}", inside(host, words));
    });
    assert_eq!(ended.status.shell_code(), 0, "{}", ended.text());
    reported(host)
}

fn reported(host: &EmulatedHost) -> String {
    inside(host, &format!("dmesg | grep -iE '{REPORTS}' || true"))
}

/// The same minute where grace periods may not end: nobody waits for what waits for one.
fn minute_without_an_end(host: &EmulatedHost) -> String {
    inside(
        host,
        "dmesg -C; (ip link add v0 type veth peer name v1; ip link delete v0) > /dev/null 2>&1 &",
    );
    let minute = host.connection().spawn(&["sleep", "60"]).unwrap();
    assert_eq!(minute.finish(PATIENCE).unwrap().status.shell_code(), 0);
    reported(host)
}

#[test]
#[ignore = "needs the lab: make sched-tests"]
fn virtual_cpus_that_compute_and_a_flood_stall_neither_rcu_nor_timers_nor_disks() {
    let logs = tempfile::tempdir().unwrap();
    let laboratory = laboratory(logs.path(), HostKernel::V6_12Rt);
    let specification = laboratory.host("alive", HostKernel::V6_12Rt).unwrap();
    let host = EmulatedHost::boot(&specification).unwrap();
    // The interrupts of a CPU that goes move to another one, and stay there.
    inside(
        &host,
        "cd /sys/devices/system/cpu/cpu1; echo 0 > online; echo 1 > online",
    );
    // VCPU 0 keeps the guest's own housekeeping; 1 and 2 are real-time, one for each CPU of the host.
    let rt = host
        .start_guest(&guest("rt", 1, 3), &[RT], &Silent)
        .unwrap();
    write(&host, "/run/steadyvm.toml", FILE);
    inside(&host, "steadyvm status --snapshot > /run/before.json");
    inside(&host, "steadyvm apply /run/steadyvm.toml");
    assert!(all_hold(&shown(&host)));
    let computes = |cpu: &str| {
        let words = ["taskset", "-c", cpu, "sh", "-c", "while :; do :; done"];
        rt.connection().spawn(&words).unwrap()
    };
    let both = [computes("1"), computes("2")];

    // Who looks stands above what computes, or would get the share of normal threads only.
    inside(&host, "chrt -a -f -p 90 $PPID");
    let reports = flood_while(&host, || minute(&host));
    assert_eq!(reports, "");

    // The same minute with RCU's threads where a stock kernel has them: it can tell.
    inside(
        &host,
        "for thread in $(ps -eLo lwp=,comm= | sed -nE 's#^ *([0-9]+) (rcu[bc]/.*|rcu_exp_.*|rcu_preempt)$#\\1#p'); do
             chrt -f -p 1 $thread || true
         done",
    );
    let reports = flood_while(&host, || minute_without_an_end(&host));
    eprintln!("with RCU's threads at FIFO 1: {reports}");
    assert!(
        reports.contains("stall") || reports.contains("starved"),
        "{reports}"
    );
    for computing in both {
        computing.signal(libc::SIGKILL).unwrap();
        computing.finish(PATIENCE).unwrap();
    }
    // The ranks of RCU's threads are put back before they are taken back: undo leaves what others have set.
    inside(
        &host,
        "chrt -a -o -p 0 $PPID; echo 120 > /proc/sys/kernel/hung_task_timeout_secs
         steadyvm apply /run/steadyvm.toml",
    );
    undo(&host);
}
