//! Outsourced sockets of a libvirt domain, by the device that `steadyvm sockets serve --help` shows. As tests/lab.

use crate::support::libvirt::{self, PATIENCE, STEADY_CLOCK, await_line, inside, try_inside};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use steadyvm_lab::agent::Status;
use steadyvm_lab::host::{EmulatedHost, RT};
use steadyvm_lab::laboratory::SOCKETS_MODULE;
use steadyvm_load::netrt::{self, ClientOptions, End};

const DOOR: &str = "/run/steadyvm-sockets/domain.socket";
/// The address that the domain's sockets have. Its card has another.
const ADDRESS: u8 = 9;
const REQUESTS: u64 = 20;

/// The device as the help shows it, with this socket.
fn device(host: &EmulatedHost) -> String {
    let help = inside(host, "steadyvm sockets serve --help");
    let (_, rest) = help.split_once("<shmem").unwrap();
    let (device, _) = rest.split_once("</shmem>").unwrap();
    format!("<shmem{device}</shmem>").replace("PATH", DOOR)
}

/// From outside; how many had no answer.
fn lost(host: &EmulatedHost) -> u64 {
    let options = ClientOptions {
        warmup: 0,
        end: End::Requests(REQUESTS),
        timeout: Duration::from_secs(20),
        ..ClientOptions::default()
    };
    let ask = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        socket.connect((RT.address(ADDRESS), 7700)).unwrap();
        let stop = AtomicBool::new(false);
        Ok(netrt::run(&socket, &options, &stop, &mut |_| {}).unwrap())
    };
    host.outside().enter(ask).unwrap().counters.lost
}

#[test]
#[ignore = "needs the lab: make libvirt-tests"]
fn a_domain_has_outsourced_sockets_and_is_not_moved_away_from_them() {
    let host = libvirt::host();
    host.make_namespace("of-domain", RT, RT.address(ADDRESS))
        .unwrap();
    inside(&host, "mkdir -m 711 /run/steadyvm-sockets");
    let words = format!(
        "exec steadyvm sockets serve --socket {DOOR} --namespace of-domain --channels 2 --name domain 2>&1"
    );
    let mut server = host.connection().spawn(&["sh", "-c", &words]).unwrap();
    server.wait_for_line("is waited for", PATIENCE).unwrap();
    libvirt::define_with_device(
        &host,
        "domain",
        STEADY_CLOCK,
        &device(&host),
        &format!("insmod {SOCKETS_MODULE}; steadyvm netrt serve 0.0.0.0:7700"),
    );
    inside(&host, "virsh --quiet start domain");
    await_line(&host, "domain", "ready on");
    assert_eq!(lost(&host), 0);

    // What a migration does: its sockets are this host's.
    let (code, said) = try_inside(&host, "virsh save domain /run/domain.saved");
    assert_ne!(code, 0);
    assert!(said.contains("ivshmem"), "{said}");
    assert_eq!(lost(&host), 0);

    inside(&host, "virsh --quiet destroy domain");
    let done = server.finish(PATIENCE).unwrap();
    assert_eq!(done.status, Status::Exited(0), "{}", done.text());
    inside(
        &host,
        "virsh --quiet undefine domain; rm -d /run/steadyvm-sockets; ip netns del of-domain",
    );
}
