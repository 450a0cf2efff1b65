//! Many guests of `steadyvm up` at once, each with its service in a network namespace of its own.

use crate::support::outsourced::{Guest, Lab, PATIENCE};
use crate::support::shared;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;
use steadyvm_lab::agent::{Process, Status};
use steadyvm_lab::host::RT;
use steadyvm_load::netrt::{self, ClientOptions, End, Intervals};

const NAMESPACES: [&str; 10] = [
    "vm0", "vm1", "vm2", "vm3", "vm4", "vm5", "vm6", "vm7", "vm8", "vm9",
];
const UDP_PORT: u16 = 7700;
const TCP_PORT: u16 = 5201;
const SERVICES: &str = "iperf3 --forceflush -s -p 5201 &\nexec steadyvm netrt serve 0.0.0.0:7700\n";

fn address(number: usize) -> Ipv4Addr {
    RT.address(100 + number as u8)
}

/// Starts a guest; it serves when this returns.
fn serving(lab: &Lab, namespace: &'static str) -> Process {
    let guest = Guest {
        vcpus: 1,
        memory_mib: 128,
        namespace,
    };
    lab.start_guest_until(guest, "ready on")
}

/// Runs something in the network outside of the host.
fn outside<T: Send>(lab: &Lab, run: impl FnOnce() -> T + Send) -> T {
    lab.host.outside().enter(|| Ok(run())).unwrap()
}

/// All guests are asked at the same time, each with a load of its own, and answer everything.
fn require_answers(lab: &Lab) {
    thread::scope(|scope| {
        for number in 0..NAMESPACES.len() {
            scope.spawn(move || outside(lab, || ask(number)));
        }
    });
}

fn ask(number: usize) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect((address(number), UDP_PORT)).unwrap();
    // Ten emulated VCPUs share two emulated CPUs: the load is one that they can carry.
    let options = ClientOptions {
        seed: number as u64,
        intervals: Intervals {
            shortest: Duration::from_millis(20),
            longest: Duration::from_millis(200),
        },
        warmup: 5,
        end: End::Requests(50),
        timeout: Duration::from_secs(20),
        ..ClientOptions::default()
    };
    let never = AtomicBool::new(false);
    let run = netrt::run(&socket, &options, &never, &mut |_| {}).unwrap();
    let counts = (run.samples.len(), run.counters.lost, run.counters.malformed);
    assert_eq!(counts, (50, 0, 0), "guest {number}");
}

/// The VMs that the kernel knows of.
fn virtual_machines(lab: &Lab) -> usize {
    let words = ["sh", "-c", "ls -d /sys/kernel/debug/kvm/*/ | wc -l"];
    let count = lab.host.connection().text(&words).unwrap();
    count.trim().parse().unwrap()
}

#[test]
#[ignore = "needs the lab: make experiment-tests"]
fn ten_guests_serve_at_once_and_one_that_is_killed_starts_again() {
    let place = tempfile::tempdir().unwrap();
    let logs = place.path();
    let lab = shared::lab(logs);
    lab.upload_guest(SERVICES, &[]);
    let mut guests = Vec::new();
    for (number, namespace) in NAMESPACES.into_iter().enumerate() {
        lab.host
            .make_namespace(namespace, RT, address(number))
            .unwrap();
        guests.push(serving(&lab, namespace));
    }
    assert_eq!(virtual_machines(&lab), NAMESPACES.len());
    require_answers(&lab);

    let mut peer = outside(&lab, || TcpStream::connect((address(0), TCP_PORT)).unwrap());
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    // A part of what iperf3 waits for, so that it holds the connection.
    peer.write_all(b"x").unwrap();
    let killed = guests.remove(0);
    killed.signal(libc::SIGKILL).unwrap();
    let killed = killed.finish(PATIENCE).unwrap();
    assert_eq!(killed.status, Status::Killed(libc::SIGKILL));
    match peer.read(&mut [0]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("the peer of a killed monitor sees {other:?}"),
    }
    assert_eq!(virtual_machines(&lab), NAMESPACES.len() - 1);
    guests.insert(0, serving(&lab, NAMESPACES[0]));
    require_answers(&lab);

    for guest in guests {
        guest.signal(libc::SIGTERM).unwrap();
        let done = guest.finish(PATIENCE).unwrap();
        let error = String::from_utf8_lossy(&done.error);
        assert_eq!(done.status, Status::Exited(0), "{error}");
    }
    assert_eq!(virtual_machines(&lab), 0);
}
