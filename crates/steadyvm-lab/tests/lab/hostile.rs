//! A guest that writes garbage into its sockets device, beside one that serves; and a host that
//! breaks its answers to a guest. As `tests/lab/sockets.rs`.

use crate::support::outsourced::{Lab, PATIENCE};
use crate::support::shared;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};
use steadyvm_lab::agent::{Process, Status};
use steadyvm_lab::artifact::{Cache, KernelModule};
use steadyvm_lab::host::RT;
use steadyvm_lab::progress::Silent;
use steadyvm_load::netrt::{self, ClientOptions, End};

macro_rules! module_source {
    ($name:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../kernel/modules/steadyvm_sockets/",
            $name
        ))
    };
}

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
    let sockets = format!("[sockets]\nnamespace = \"{name}\"\n");
    start_with(lab, name, initramfs, "loglevel=4 memmap=32M$128M", &sockets)
}

/// A guest with more words for its kernel and more devices.
fn start_with(lab: &Lab, name: &str, initramfs: &str, words: &str, devices: &str) -> Process {
    let description = format!(
        "name = \"{name}\"\n\
         kernel = \"/boot/guest-kernel\"\n\
         initramfs = \"{initramfs}\"\n\
         cmdline = \"console=ttyS0 pci=off panic=-1 tsc=reliable no_timer_check {words} \
         -- sh /script\"\n\
         memory_mib = 256\n\
         vcpus = 2\n\
         [[disk]]\n\
         path = \"/dev/vda\"\n\
         read_only = true\n\
         {devices}"
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
    let within = lab.host.outside().enter(|| {
        run();
        Ok(())
    });
    within.unwrap();
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

fn build(lab: &Lab, name: &str) -> PathBuf {
    let source = format!("tests/programs/{name}.c");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let program = lab.place.join(name);
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

/// What chance begins with.
fn seed() -> u64 {
    let seed = std::env::var(SEED_VARIABLE).map_or_else(
        |_| SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros() as u64,
        |text| text.parse().unwrap(),
    );
    println!("{SEED_VARIABLE}={seed}");
    seed
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_guest_that_abuses_its_sockets_device_harms_itself_alone() {
    let seed = seed();
    let place = tempfile::tempdir().unwrap();
    let logs = place.path();
    let lab = shared::lab(logs);
    let (victim, hostile) = (RT.address(100), RT.address(101));
    for (name, address) in [("service", victim), ("hostile", hostile)] {
        lab.host.make_namespace(name, RT, address).unwrap();
    }
    let before = footprint(&lab);
    lab.upload_guest(SERVE, &[]);
    inside(&lab, "mv /tmp/initramfs /tmp/service.initramfs");
    let module = &*lab.laboratory.sockets_module;
    let files = [
        ("/hostile", &*build(&lab, "hostile")),
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

/// The device as a module of the guest's own kernel.
const HOSTILE_HOST: KernelModule<'_> = KernelModule {
    name: "hostile-host",
    file: "hostile_host.ko",
    sources: &[
        ("Kbuild", module_source!("tests/host/Kbuild")),
        (
            "hostile_host.c",
            module_source!("tests/host/hostile_host.c"),
        ),
        ("filter.c", module_source!("tests/host/filter.c")),
        ("steadyvm_sockets.h", module_source!("steadyvm_sockets.h")),
    ],
};

/// Every life is another device with chance of its own, abused by programs until it goes.
const ABUSE_THE_MODULE: &str = "\
    life=0\n\
    while [ $life -lt 30 ]; do\n\
      life=$((life + 1))\n\
      echo life $life\n\
      insmod /hostile_host.ko seed=$((SEED + life)) || exit\n\
      /random_calls $((SEED + life)) 600 || echo BROKEN in life $life\n\
      echo served $(cat /sys/module/hostile_host/parameters/served)\n\
      rmmod hostile_host || exit\n\
    done\n\
    rmmod steadyvm_sockets && echo unloaded after $life lives\n";

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_host_that_breaks_answers_and_rings_harms_neither_kernel_nor_programs() {
    let seed = seed();
    let place = tempfile::tempdir().unwrap();
    let logs = place.path();
    let lab = shared::lab(logs);
    let cache = Cache::of_this_machine().unwrap();
    let kernel = &lab.laboratory.distribution_kernel;
    let module = HOSTILE_HOST.obtain(&cache, kernel, &Silent).unwrap();
    let program = build(&lab, "random_calls");
    let files = [("/hostile_host.ko", &*module), ("/random_calls", &*program)];
    // A number that the shell can add to.
    let script = format!("SEED={}\n{ABUSE_THE_MODULE}", seed >> 1);
    lab.upload_guest(&script, &files);
    // Whatever the kernel has to complain about ends the guest.
    let words = "loglevel=5 panic_on_warn=1 oops=panic";
    let guest = start_with(&lab, "guest", "/tmp/initramfs", words, "");
    let mut console = Vec::new();
    let ended = guest.follow_within(PATIENCE, |_, data| console.extend_from_slice(data));
    let console = String::from_utf8_lossy(&console).replace('\r', "");
    assert!(ended.is_ok(), "{ended:?}: {console}");
    assert!(console.contains("unloaded after 30 lives"), "{console}");
    assert!(!console.contains("BROKEN"), "{console}");
    let served = |line: &str| line.strip_prefix("served ")?.parse::<u32>().ok();
    let served: u32 = console.lines().filter_map(served).sum();
    println!("{served} requests served");
    // Programs had such sockets, or none of this was tried.
    assert!(served > 1000, "{console}");
}
