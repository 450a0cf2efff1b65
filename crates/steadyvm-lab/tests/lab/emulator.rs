//! What our patches of the emulator make of a host's devices. It needs root and what `steadyvm-lab prepare`
//! builds: `make lab-tests` runs it.

use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use steadyvm_lab::artifact::Cache;
use steadyvm_lab::host::{BULK, EmulatedHost};
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Silent;

const PATIENCE: Duration = Duration::from_secs(60);
/// Packets come so far apart that each one has its interrupt, and that one for nothing would have come
/// before the next. It is the traffic's pace, and nothing is waited for by it.
const PACE: Duration = Duration::from_millis(5);
const PACKETS: u64 = 200;
/// Interrupts of the card that are for something else: its link, and what the driver asks for every two seconds.
const OTHERS: u64 = 20;

/// Prints the line of the card's interrupts, keeps its CPU for one to two seconds, and prints that line again.
/// No command of it sleeps or starts a process, so that no thread of a lower priority runs meanwhile.
const KEEP_THE_CPU: &str = "\
    line() { while read -r line; do case $line in *bulk-rx*) echo \"$line\";; esac; done < /proc/interrupts; }
    second() { read -r up rest < /proc/uptime; now=${up%.*}; }
    line; second; end=$((now + 2))
    while [ $now -lt $end ]; do second; done
    line";

/// The packets that the host's bulk card has received.
fn received(host: &EmulatedHost) -> u64 {
    let file = format!("/sys/class/net/{}/statistics/rx_packets", BULK.name);
    let text = host.connection().text(&["cat", &file]).unwrap();
    text.trim().parse().unwrap()
}

/// Waits until so many packets have been received.
fn wait_until_received(host: &EmulatedHost, packets: u64) {
    let end = Instant::now() + PATIENCE;
    while received(host) < packets {
        assert!(Instant::now() < end, "no packet comes");
    }
}

/// What the line of the card's interrupts in /proc/interrupts has counted, on all CPUs.
fn interrupts(lines: &str) -> u64 {
    let line = lines.lines().find(|line| line.contains("bulk-rx"));
    let counts = line.unwrap().split_whitespace().skip(1);
    counts.map_while(|word| word.parse::<u64>().ok()).sum()
}

fn interrupts_of(host: &EmulatedHost) -> u64 {
    let file = ["cat", "/proc/interrupts"];
    interrupts(&host.connection().text(&file).unwrap())
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_card_interrupts_once_a_packet_and_once_a_poll() {
    let logs = tempfile::tempdir().unwrap();
    let cache = Cache::of_this_machine().unwrap();
    let steadyvm = Path::new(env!("CARGO_BIN_EXE_steadyvm-lab"));
    let kernel = HostKernel::V6_12Rt;
    let laboratory = Laboratory::open(&cache, steadyvm, logs.path(), &[kernel], &Silent).unwrap();
    let host = EmulatedHost::boot(&laboratory.host("emulator", kernel).unwrap()).unwrap();
    let bind = || Ok(UdpSocket::bind((BULK.outside(), 0)).unwrap());
    let socket = host.outside().enter(bind).unwrap();
    let send = || socket.send_to(b"\n", (BULK.host(), 9)).unwrap();

    // One for each packet at most: none for nothing, once the time between two has passed.
    let send_all = || {
        let packets = received(&host);
        for _ in 0..PACKETS {
            send();
            thread::sleep(PACE);
        }
        wait_until_received(&host, packets + PACKETS);
    };
    // The first ones wait for addresses and come together.
    send_all();
    let before = interrupts_of(&host);
    send_all();
    let more = interrupts_of(&host) - before;
    println!("{more} interrupts for {PACKETS} packets");
    assert!((1..=PACKETS + OTHERS).contains(&more), "{more} interrupts");

    // One at most, until who was interrupted has polled.
    let stop = AtomicBool::new(false);
    let said = thread::scope(|scope| {
        scope.spawn(|| {
            // It ends where the test fails, too.
            let end = Instant::now() + 3 * PATIENCE;
            while !stop.load(Ordering::Relaxed) && Instant::now() < end {
                send();
                thread::sleep(PACE);
            }
        });
        // Above the card's interrupt thread (50), on its CPU.
        let task = ["taskset", "-c", "0", "chrt", "-f", "60", "sh", "-c"];
        let said = host
            .connection()
            .text(&[&task[..], &[KEEP_THE_CPU]].concat());
        // It interrupts again.
        wait_until_received(&host, received(&host) + 100);
        stop.store(true, Ordering::Relaxed);
        said.unwrap()
    });
    let [before, after] = said.lines().collect::<Vec<_>>()[..] else {
        panic!("not two lines: {said}");
    };
    let more = interrupts(after) - interrupts(before);
    println!("{more} interrupts for a poll that did not come");
    // The driver's own, every two seconds, takes the mask off.
    assert!(more <= 3, "{more} interrupts:\n{said}");
}
