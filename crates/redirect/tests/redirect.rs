//! The programs at work in the running kernel: a wire, a host and a guest, each in a network namespace.
//! Needs root, and a kernel with tcx (6.6).

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

use steadyvm_redirect::{Address, Counters, Pair};
use steadyvm_redirect::{
    addresses, by_address, counters, forget, joined, receive, remove, send, serve, threads,
};
use tempfile::TempDir;

const VM: Address = [0x52, 0x54, 0, 0, 0, 1];
const OTHER: Address = [0x52, 0x54, 0, 0, 0, 2];

/// A host with a device `card`, whose other end is the wire, and a device `tap`, whose other end is the guest.
struct Net {
    name: String,
    /// Where a BPF file system is mounted.
    mount: TempDir,
    directory: PathBuf,
}

impl Net {
    fn new(test: &str) -> Self {
        let name = format!("svm{}{test}", std::process::id());
        let mount = tempfile::tempdir().unwrap();
        run(&format!("mount -t bpf bpf {}", mount.path().display()));
        let directory = mount.path().join("cards");
        let net = Self {
            name,
            mount,
            directory,
        };
        for end in ["wire", "host", "guest"] {
            run(&format!("ip netns add {}", net.of(end)));
        }
        net.host("ip link add card type veth peer name eth0 netns WIRE");
        net.host("ip link add tap type veth peer name eth0 netns GUEST");
        net.host("ip link set card up");
        net.host("ip link set tap up");
        net.inside("guest", "ip link set eth0 address 52:54:00:00:00:01");
        for (end, address) in [("wire", "10.9.0.1/24"), ("guest", "10.9.0.2/24")] {
            net.inside(end, "ip link set eth0 up");
            net.inside(end, &format!("ip address add {address} dev eth0"));
        }
        net
    }

    fn of(&self, end: &str) -> String {
        format!("{}{end}", self.name)
    }

    fn inside(&self, end: &str, command: &str) {
        assert!(self.succeeds(end, command), "{command}");
    }

    fn host(&self, command: &str) {
        let command = command
            .replace("WIRE", &self.of("wire"))
            .replace("GUEST", &self.of("guest"));
        self.inside("host", &command);
    }

    fn succeeds(&self, end: &str, command: &str) -> bool {
        let command = format!("ip netns exec {} {command}", self.of(end));
        status(&command)
    }

    /// One request from the wire, and an answer. ARP asks again every second until a bridge's port is up.
    fn is_reached(&self) -> bool {
        self.succeeds("wire", "ping -q -c 1 -W 5 10.9.0.2")
    }

    /// None within a second.
    fn is_cut_off(&self) -> bool {
        !self.succeeds("wire", "ping -q -c 1 -W 1 10.9.0.2")
    }

    fn on_the_host<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.within("host", work)
    }

    /// Does it in a namespace: the kernel looks devices up in that of the caller.
    fn within<T: Send>(&self, end: &str, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let entered = || {
                let file = std::fs::File::open(format!("/run/netns/{}", self.of(end))).unwrap();
                nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                work()
            };
            scope.spawn(entered).join().unwrap()
        })
    }

    fn index(&self, device: &str) -> u32 {
        self.on_the_host(|| nix::net::if_::if_nametoindex(device).unwrap())
    }

    fn pair(&self) -> Pair {
        Pair {
            function: self.index("card"),
            tap: self.index("tap"),
            address: VM,
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = remove(&self.directory.join("guest"));
        let _ = remove(&self.directory);
        status(&format!("umount {}", self.mount.path().display()));
        for end in ["wire", "host", "guest"] {
            status(&format!("ip netns delete {}", self.of(end)));
        }
    }
}

fn status(command: &str) -> bool {
    let mut words = command.split(' ');
    let mut program = Command::new(words.next().unwrap());
    program.args(words).output().unwrap().status.success()
}

fn run(command: &str) {
    assert!(status(command), "{command}");
}

/// Both directions.
fn join(directory: &Path, pair: &Pair) -> steadyvm_redirect::Result<()> {
    receive(directory, pair)?;
    send(directory, pair)
}

#[test]
fn a_function_and_a_tap_are_joined_without_a_bridge() {
    let net = Net::new("join");
    let pair = net.pair();
    assert!(net.is_cut_off());
    assert_eq!(joined(&net.directory).unwrap(), None);
    net.on_the_host(|| join(&net.directory, &pair)).unwrap();
    assert!(net.is_reached());
    assert_eq!(joined(&net.directory).unwrap(), Some(pair));
    let seen = counters(&net.directory).unwrap();
    assert!(seen.to_tap >= 2 && seen.from_tap >= 2, "{seen:?}");
    remove(&net.directory).unwrap();
    assert!(net.is_cut_off() && !net.directory.exists());
    remove(&net.directory).unwrap();
}

#[test]
fn another_sender_on_the_tap_goes_by_the_bridge() {
    let net = Net::new("other");
    let pair = Pair {
        address: OTHER,
        ..net.pair()
    };
    net.on_the_host(|| join(&net.directory, &pair)).unwrap();
    assert!(net.is_cut_off());
    let seen = counters(&net.directory).unwrap();
    assert!(seen.passed >= 1 && seen.from_tap == 0, "{seen:?}");
    // The bridge that answers to it pass by: a port for each direction that is not redirected.
    net.host("ip link add bridge type bridge forward_delay 0");
    for command in [
        "link set bridge up",
        "link set tap master bridge",
        "link set card master bridge",
    ] {
        net.host(&format!("ip {command}"));
    }
    assert!(net.is_reached());
}

#[test]
fn a_device_that_went_is_seen_and_what_is_left_is_removed() {
    let net = Net::new("gone");
    let pair = net.pair();
    net.on_the_host(|| join(&net.directory, &pair)).unwrap();
    net.host("ip link delete tap");
    let error = joined(&net.directory).unwrap_err();
    assert!(error.to_string().contains("its device went"), "{error}");
    remove(&net.directory).unwrap();
    assert!(!net.directory.exists());
}

#[test]
fn what_cannot_be_joined_leaves_nothing_behind() {
    let net = Net::new("wrong");
    let without_function = Pair {
        function: 99_999,
        ..net.pair()
    };
    let received = net.on_the_host(|| receive(&net.directory, &without_function));
    received.unwrap_err();
    assert!(!net.directory.exists());
    for tap in [99_999, u32::MAX] {
        let pair = Pair { tap, ..net.pair() };
        net.on_the_host(|| join(&net.directory, &pair)).unwrap_err();
        // One direction is there, which is told, and removed.
        joined(&net.directory).unwrap_err();
        remove(&net.directory).unwrap();
        assert!(!net.directory.exists(), "{pair:?}");
    }
}

#[test]
fn xdp_hands_frames_to_the_tap_of_their_address_and_passes_the_others() {
    let net = Net::new("xdp");
    // Of a pair of Ethernet devices, one takes frames from XDP if the other has an XDP program.
    let other = net.directory.join("guest");
    let eth0 = || nix::net::if_::if_nametoindex("eth0").unwrap();
    net.within("guest", || by_address(&other, eth0(), &[0]))
        .unwrap();
    net.host("ip link add bridge type bridge forward_delay 0");
    for command in [
        "link set bridge up",
        "link set tap master bridge",
        "link set card master bridge",
    ] {
        net.host(&format!("ip {command}"));
    }
    assert!(net.is_reached());
    let (card, tap) = (net.index("card"), net.index("tap"));
    let cpus: Vec<u32> = (0..std::thread::available_parallelism().unwrap().get() as u32).collect();
    net.on_the_host(|| by_address(&net.directory, card, &cpus))
        .unwrap();
    assert!(net.is_reached());
    assert_eq!(counters(&net.directory).unwrap().to_tap, 0);
    let names = threads(&net.directory).unwrap();
    assert_eq!(names.len(), cpus.len());
    assert!(names[0].starts_with("cpumap/0/map:"), "{names:?}");
    serve(&net.directory, VM, tap).unwrap();
    serve(&net.directory, OTHER, tap).unwrap();
    assert_eq!(
        addresses(&net.directory).unwrap(),
        [(VM, tap), (OTHER, tap)]
    );
    let before = counters(&net.directory).unwrap();
    assert!(net.is_reached());
    let Counters { to_tap, passed, .. } = counters(&net.directory).unwrap();
    assert!(to_tap >= 1 && passed >= before.passed, "{to_tap} {passed}");
    forget(&net.directory, VM).unwrap();
    forget(&net.directory, VM).unwrap();
    assert_eq!(addresses(&net.directory).unwrap(), [(OTHER, tap)]);
    assert!(net.is_reached());
    net.on_the_host(|| by_address(&net.directory.join("second"), card, &cpus))
        .unwrap_err();
    net.host("ip link delete card");
    addresses(&net.directory).unwrap_err();
}
