//! A guest that writes garbage into its sockets device, beside one that serves. As
//! `tests/lab_sockets.rs`.

// A test's helper fails by panicking, as the test itself does.
#![allow(clippy::unwrap_used)]

#[path = "support/outsourced.rs"]
#[allow(dead_code, reason = "each test uses a part of it")]
mod outsourced;

use outsourced::{Lab, PATIENCE};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};
use steadyvm_lab::agent::{Process, Status};
use steadyvm_lab::host::RT;
use steadyvm_latency::netrt::{self, ClientOptions, End};

/// Repeats what a seed did, but for the two threads' race.
const SEED_VARIABLE: &str = "STEADYVM_SEED";
/// How often the device is set up, abused and reset.
const LIVES: u32 = 400;
const PORT: u16 = 7700;

/// What both guests do in the end, so that their monitors are alike.
const SERVE: &str = "exec steadyvm netrt serve 0.0.0.0:7700\n";

/// Takes the device from its driver, abuses it, and gives it back: it must work as before.
fn abuse(seed: u64) -> String {
    format!(
        "set -e\n\
         for virtio in /sys/bus/virtio/devices/*; do\n\
           [ $(cat $virtio/device) != 0xffff ] || break\n\
         done\n\
         device=$(basename $(dirname $(readlink -f $virtio)))\n\
         registers=$(sed -n \"s/^ *\\([0-9a-f]*\\)-.* : $device$/0x\\1/p\" /proc/iomem | head -n 1)\n\
         driver=/sys/bus/platform/drivers/virtio-mmio\n\
         rmmod steadyvm_sockets\n\
         echo $device > $driver/unbind\n\
         /hostile $registers {MEMORY} {SIZE} {seed} {LIVES}\n\
         echo $device > $driver/bind\n\
         insmod /steadyvm_sockets.ko\n\
         {SERVE}"
    )
}

/// Guest memory that its kernel leaves alone, for what the device is made to write.
const MEMORY: &str = "0x8000000";
const SIZE: &str = "0x2000000";

/// A guest in the namespace of its name.
fn start(lab: &Lab, name: &str, initramfs: &str) -> Process {
    let description = format!(
        "name = \"{name}\"\n\
         kernel = \"/boot/guest-kernel\"\n\
         initramfs = \"{initramfs}\"\n\
         cmdline = \"console=ttyS0 pci=off panic=-1 tsc=reliable no_timer_check loglevel=4 \
         memmap=32M$128M -- sh /script\"\n\
         memory_mib = 256\n\
         vcpus = 2\n\
         [[disk]]\n\
         path = \"/dev/vda\"\n\
         read_only = true\n\
         [sockets]\n\
         namespace = \"{name}\"\n"
    );
    let file = format!("/tmp/{name}.toml");
    lab.upload(&lab.write("vm.toml", &description), &file);
    let process = lab.host.connection().spawn(&["steadyvm", "up", &file]);
    let process = process.unwrap();
    process.end_of_input().unwrap();
    process
}

/// Asks a service, which must answer everything, until it is `enough`.
fn ask(lab: &Lab, address: Ipv4Addr, enough: &AtomicBool) {
    let run = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect((address, PORT)).unwrap();
        let options = ClientOptions {
            seed: 1,
            warmup: 5,
            end: End::Requests(50),
            timeout: Duration::from_secs(20),
            ..ClientOptions::default()
        };
        let never = AtomicBool::new(false);
        loop {
            let run = netrt::run(&socket, &options, &never, &mut |_| {}).unwrap();
            let counts = (run.samples.len(), run.counters.lost, run.counters.malformed);
            assert_eq!(counts, (50, 0, 0), "{address}");
            if enough.load(Ordering::Relaxed) {
                return;
            }
        }
    };
    lab.host.outside().enter(|| Ok(run())).unwrap()
}

/// What VMs have in their host: processes, threads, network namespaces that processes are in, KVM's VMs.
fn footprint(lab: &Lab) -> String {
    let words = "ls /sys/kernel/debug/kvm | grep -c '^[0-9]' || true; \
                 ls -l /proc/[0-9]*/ns/net 2>/dev/null | sed 's/.*-> //' | sort -u; \
                 ps -eLo comm= | grep -E '^(vhost-|vcpu|disk|net0|console)' || true; \
                 ps -eo args= | grep '[s]teadyvm up' || true";
    inside(lab, words)
}

/// How many descriptors and threads a monitor has.
fn held(lab: &Lab, monitor: &Process) -> String {
    let pid = monitor.pid();
    inside(
        lab,
        &format!("ls /proc/{pid}/fd | wc -l; ls /proc/{pid}/task | wc -l"),
    )
}

fn inside(lab: &Lab, words: &str) -> String {
    lab.host.connection().text(&["sh", "-euc", words]).unwrap()
}

fn build(lab: &Lab) -> std::path::PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/hostile.c");
    let program = lab.place.join("hostile");
    let built = Command::new("gcc")
        .args([
            "-O1", "-Wall", "-Wextra", "-Werror", "-static", "-pthread", "-o",
        ])
        .arg(&program)
        .arg(source)
        .status();
    assert!(built.unwrap().success());
    program
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_guest_that_abuses_its_sockets_device_harms_itself_alone() {
    let seed = std::env::var(SEED_VARIABLE).map_or_else(
        |_| SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros() as u64,
        |text| text.parse().unwrap(),
    );
    println!("{SEED_VARIABLE}={seed}");
    let place = tempfile::tempdir().unwrap();
    let logs = place.path();
    let lab = Lab::boot("hostile", logs);
    let (victim, hostile) = (RT.address(100), RT.address(101));
    for (name, address) in [("service", victim), ("hostile", hostile)] {
        lab.host.make_namespace(name, RT, address).unwrap();
    }
    let before = footprint(&lab);
    lab.upload_guest(SERVE, &[]);
    inside(&lab, "mv /tmp/initramfs /tmp/service.initramfs");
    let module = &*lab.laboratory.sockets_module;
    let files = [
        ("/hostile", &*build(&lab)),
        ("/steadyvm_sockets.ko", module),
    ];
    lab.upload_guest(&abuse(seed), &files);
    let mut service = start(&lab, "service", "/tmp/service.initramfs");
    service.wait_for_line("ready on", PATIENCE).unwrap();

    let enough = AtomicBool::new(false);
    let mut abuser = start(&lab, "hostile", "/tmp/initramfs");
    let said = thread::scope(|scope| {
        scope.spawn(|| ask(&lab, victim, &enough));
        let said = abuser.wait_for_line("hostile: ", PATIENCE);
        enough.store(true, Ordering::Relaxed);
        said
    });
    let said = said.unwrap();
    println!("{said}");
    let counts: Vec<u32> = said
        .split(|character: char| !character.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .collect();
    let [lives, broken, requests, answered, accepted] = counts[..] else {
        panic!("{said}");
    };
    // The garbage has reached what it was meant for: queues, requests and sockets.
    assert_eq!(lives, LIVES);
    assert!(broken > lives / 20 && broken < lives, "{said}");
    assert!(answered > requests / 10, "{said}");
    assert!(accepted > answered / 20, "{said}");

    // The device works again, and its monitor holds what its neighbour's does, no more.
    abuser.wait_for_line("ready on", PATIENCE).unwrap();
    ask(&lab, hostile, &enough);
    assert_eq!(held(&lab, &abuser), held(&lab, &service));
    for guest in [abuser, service] {
        guest.signal(libc::SIGTERM).unwrap();
        let done = guest.finish(PATIENCE).unwrap();
        let error = String::from_utf8_lossy(&done.error);
        assert_eq!(done.status, Status::Exited(0), "{error}\n{}", done.text());
    }
    assert_eq!(footprint(&lab), before);
}
