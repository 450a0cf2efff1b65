//! One card for many VMs in the emulated host, by each way: the VM's packets come by it, and undo takes it away.

use crate::support::profile::{all_hold, inside, shown, undo, write};
use crate::support::shared;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use steadyvm_lab::Guest;
use steadyvm_lab::agent::Process;
use steadyvm_lab::host::{EmulatedHost, RT};
use steadyvm_lab::laboratory::{HostKernel, guest};
use steadyvm_lab::progress::Silent;
use steadyvm_load::netrt::{self, ClientOptions, End};

const ADDRESS: u8 = 3;
const PATIENCE: Duration = Duration::from_secs(60);

fn file(way: &str) -> String {
    format!("[[vm]]\nname = \"rt\"\nclass = \"rt\"\nnic = \"rt\"\nway = \"{way}\"\n")
}

const REQUESTS: u64 = 20;

/// So many requests from outside to the service in the guest; how many had no answer.
fn lost(host: &EmulatedHost) -> u64 {
    let options = ClientOptions {
        warmup: 0,
        end: End::Requests(REQUESTS),
        timeout: Duration::from_secs(10),
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

/// Waits until all of some requests are answered: a function may lose its first link once more.
fn answers(host: &EmulatedHost) {
    let answered = (0..6).any(|_| lost(host) == 0);
    assert!(answered, "{}", inside(host, "dmesg | tail -n 20"));
}

/// Packets that a device has received.
fn received(host: &EmulatedHost, device: &str) -> u64 {
    let path = format!("cat /sys/class/net/{device}/statistics/rx_packets");
    inside(host, &path).trim().parse().unwrap()
}

/// Waits until a device has received so many: a driver may count every few seconds only.
fn await_received(host: &EmulatedHost, device: &str, packets: u64) {
    let count = format!("cat /sys/class/net/{device}/statistics/rx_packets");
    let look = format!("until [ $({count}) -ge {packets} ]; do sleep 0.1; done");
    inside(host, &format!("timeout 30 sh -c '{look}'"));
}

/// A guest that serves, and the host's functions.
fn served(host: &EmulatedHost) -> (Guest, Process) {
    let rt = host
        .start_guest(&guest("rt", 1, 1), &[RT], &Silent)
        .unwrap();
    rt.set_network_up(RT.address(ADDRESS)).unwrap();
    let serve = ["steadyvm", "netrt", "serve", "0.0.0.0:7700"];
    let mut service = rt.connection().spawn(&serve).unwrap();
    service.wait_for_line("ready", PATIENCE).unwrap();
    (rt, service)
}

fn no_complaints(host: &EmulatedHost) {
    let complaints = inside(host, "dmesg | grep -iE 'WARNING|BUG:|stall' || true");
    assert_eq!(complaints, "");
}

#[test]
#[ignore = "needs the lab: make test-lab FILTER=shared_card::a_function"]
fn a_function_of_the_card_brings_a_vms_packets_and_undo_takes_it_away() {
    const FUNCTIONS: &str = "/sys/class/net/rt/device/sriov_numvfs";
    let host = shared::host(HostKernel::V6_12Rt);
    let _served = served(&host);
    // Functions that are there, such as those made at boot: the card does not restart for the VM.
    inside(&host, &format!("echo 1 > {FUNCTIONS}"));
    let device = inside(&host, "ls /sys/class/net/rt/device/virtfn0/net");
    let device = device.trim();
    // A device that was up once has another queueing discipline.
    host.ip(&format!("link set dev {device} up")).unwrap();
    host.ip(&format!("link set dev {device} down")).unwrap();
    answers(&host);
    inside(&host, "steadyvm status --snapshot > /run/before.json");
    write(&host, "/run/steadyvm.toml", &file("function"));
    inside(&host, "steadyvm apply /run/steadyvm.toml");
    assert!(all_hold(&shown(&host)));
    let before = received(&host, device);
    answers(&host);
    await_received(&host, device, before + REQUESTS);
    undo(&host);
    answers(&host);
    inside(&host, &format!("echo 0 > {FUNCTIONS}"));
    no_complaints(&host);
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_program_on_the_card_brings_a_vms_packets_and_undo_takes_it_away() {
    let host = shared::host(HostKernel::V6_12Rt);
    let _served = served(&host);
    answers(&host);
    inside(&host, "steadyvm status --snapshot > /run/before.json");
    write(&host, "/run/steadyvm.toml", &file("xdp"));
    inside(&host, "steadyvm apply /run/steadyvm.toml");
    assert!(all_hold(&shown(&host)));
    let link = inside(&host, "ip link show dev rt");
    assert!(link.contains(" xdp "), "{link}");
    answers(&host);
    undo(&host);
    let link = inside(&host, "ip link show dev rt");
    assert!(!link.contains(" xdp "), "{link}");
    answers(&host);
    no_complaints(&host);
}
