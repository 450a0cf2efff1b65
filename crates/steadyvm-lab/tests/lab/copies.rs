//! How payload of outsourced sockets is copied: once, by the host's kernel, where it is large; and
//! what the threshold below which the module copies it, too, is worth. As `tests/lab/sockets.rs`.

use crate::support::outsourced::{Guest, Lab, PATIENCE};
use crate::support::shared;
use std::collections::HashSet;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use steadyvm_lab::host::RT;
use steadyvm_stats::Summary;
use steadyvm_stats::bootstrap::{BootstrapOptions, draw_latency, ratio};

/// The type of a `struct iov_iter` that is one buffer.
const ITER_UBUF: u64 = 0;
/// The first of the figures that are drawn.
const MEAN: usize = 0;
const BYTES: u64 = 16 << 20;
/// `SVS_COPY_MOST` of the module.
const COPY_MOST: u64 = 512;
const GUEST: Guest = Guest {
    vcpus: 2,
    memory_mib: 256,
    namespace: "new",
};
/// Where the host's TCP copies from and to: how much, and the `struct iov_iter` that says which memory of
/// the monitor (`include/linux/uio.h` of 6.12: type, offset, then the buffer or the vector).
const PROBES: &str = "mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing\n\
     cd /sys/kernel/tracing\n\
     echo 4000 > buffer_size_kb\n\
     echo 'p:copies/sent tcp_sendmsg bytes=$arg3:u64 type=+16($arg2):u8 offset=+24($arg2):u64 \
       buffer=+32($arg2):u64 vector=+0(+32($arg2)):u64' > kprobe_events\n\
     echo 'p:copies/received skb_copy_datagram_iter bytes=$arg4:u64 type=+0($arg3):u8 offset=+8($arg3):u64 \
       buffer=+16($arg3):u64 vector=+0(+16($arg3)):u64' >> kprobe_events\n\
     echo 'comm ~ \"vcpu*\"' > events/copies/filter\n\
     echo 1 > events/copies/enable\n";

/// What the host's kernel copies goes from and to the program's own pages: so nobody copies it in
/// between.
#[test]
#[ignore = "needs the lab: make lab-tests"]
fn large_payload_is_copied_once_between_socket_and_program() {
    let place = tempfile::tempdir().unwrap();
    let lab = shared::lab(place.path());
    let program = build(&lab);
    lab.upload_guest(&format!("/copies stream {BYTES}"), &[("/copies", &program)]);
    let host = lab.host.connection();
    host.text(&["sh", "-euc", PROBES]).unwrap();
    lab.host.ip("link set lo up").unwrap();
    let guest = Guest {
        namespace: "current",
        ..GUEST
    };
    let guest = lab.start_guest_until(guest, "ready");
    let maps = host.text(&["cat", &format!("/proc/{}/maps", guest.pid())]);
    let maps = maps.unwrap();
    let go = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.send_to(b"go", (RT.host(), 7700)).unwrap();
        Ok(())
    };
    lab.host.outside().enter(go).unwrap();
    let done = guest.finish(PATIENCE).unwrap();
    let console = done.text().replace('\r', "");
    assert!(console.contains("stream whole"), "{console}");
    let trace = host.text(&["cat", "/sys/kernel/tracing/trace"]).unwrap();

    let memory = guest_memory(&maps);
    let pages = console
        .lines()
        .filter_map(|line| line.strip_prefix("page "));
    let pages: HashSet<u64> = pages.map(|page| page.parse().unwrap()).collect();
    assert_eq!(pages.len(), 32, "{console}");
    for way in ["sent", "received"] {
        let copies = copies(&trace, way);
        let all: u64 = copies.iter().map(|copy| copy.bytes).sum();
        let (own, others): (Vec<&Copy>, Vec<&Copy>) = copies.iter().partition(|copy| {
            let address = copy.address.wrapping_sub(memory);
            pages.contains(&(address / 4096))
        });
        let own: u64 = own.iter().map(|copy| copy.bytes).sum();
        println!(
            "{way}: {all} bytes in {} calls, {own} of them of the program's own pages",
            copies.len()
        );
        // A call that finds too little room for what it is asked to send is made again.
        assert!((BYTES..BYTES + BYTES / 10).contains(&all));
        // The end of a buffer may be so short that it goes through the module's memory.
        assert!(others.iter().all(|copy| copy.bytes < COPY_MOST));
        assert!(own > BYTES - BYTES / 100);
    }
}

/// No time is asserted.
#[test]
#[ignore = "needs the lab: make lab-tests"]
fn small_payload_goes_both_ways_and_their_times_are_told() {
    let place = tempfile::tempdir().unwrap();
    let lab = shared::lab(place.path());
    let program = build(&lab);
    let script = "/copies threshold /sys/module/steadyvm_sockets/parameters/copy_below 11";
    lab.upload_guest(script, &[("/copies", &program)]);
    let console = lab.run_guest("/boot/guest-kernel", GUEST, PATIENCE);
    for size in ["64", "128", "256", "384", "511"] {
        let rounds = ["512", "0"].map(|below| exchanges(&console, size, below));
        assert!(rounds.iter().all(|rounds| rounds.len() == 10), "{console}");
        let draws = [0, 1].map(|way| {
            let rounds: Vec<&[u64]> = rounds[way].iter().map(Vec::as_slice).collect();
            draw_latency(&rounds, BootstrapOptions::default(), way as u64)
        });
        let [copied, described] = rounds.map(|rounds| Summary::of(&rounds.concat()).unwrap());
        let ratio = ratio(&draws[0], &draws[1], MEAN).unwrap();
        println!(
            "{size} bytes sent and received: n {} of 20 each, copied {:.1} us in the mean, described {:.1}, ratio {:.2} {:.2?}",
            copied.n,
            copied.mean_ns / 1e3,
            described.mean_ns / 1e3,
            ratio.estimate,
            ratio.interval().unwrap(),
        );
    }
}

fn build(lab: &Lab) -> PathBuf {
    let program = lab.place.join("copies");
    let source = "tests/programs/copies.c";
    let built = Command::new("gcc")
        .args([
            "-O2", "-Wall", "-Werror", "-static", "-pthread", source, "-o",
        ])
        .arg(&program)
        .status();
    assert!(built.unwrap().success());
    program
}

/// The samples of each turn but the first, which warms up.
fn exchanges(console: &str, size: &str, below: &str) -> Vec<Vec<u64>> {
    let title = format!("exchanges {size} {below} ");
    let turns = console.lines().filter_map(|line| line.strip_prefix(&title));
    let samples = |turn: &str| turn.split(' ').map(|ns| ns.parse().unwrap()).collect();
    turns.skip(1).map(samples).collect()
}

/// Where the monitor has the guest's memory, by its /proc/PID/maps: "FROM-TO rw-p …".
fn guest_memory(maps: &str) -> u64 {
    let ranges = maps.lines().filter_map(|line| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some((number(from)?, number(to)?))
    });
    let size = u64::from(GUEST.memory_mib) << 20;
    let mut found = ranges.filter(|(from, to)| to - from == size);
    let (from, _) = found.next().unwrap_or_else(|| panic!("{maps}"));
    from
}

/// A copy of the host's kernel, from or to this address of the monitor's.
struct Copy {
    bytes: u64,
    address: u64,
}

/// Reads lines that end in `: sent: (tcp_sendmsg+0x0/0x50) bytes=65536 type=0 offset=0 buffer=… vector=…`.
fn copies(trace: &str, way: &str) -> Vec<Copy> {
    let name = format!(": {way}: ");
    let lines = trace.lines().filter(|line| line.contains(&name));
    let copy = |line: &str| {
        let field = |name: &str| {
            let (_, value) = line.split_once(name).unwrap();
            let value = value.split(' ').next().unwrap();
            value.parse::<u64>().unwrap_or_else(|_| panic!("{line}"))
        };
        let place = match field(" type=") {
            ITER_UBUF => " buffer=",
            _ => " vector=",
        };
        Copy {
            bytes: field(" bytes="),
            address: field(place) + field(" offset="),
        }
    };
    lines.map(copy).collect()
}
