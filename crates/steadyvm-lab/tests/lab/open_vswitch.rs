//! Open vSwitch of Debian in the place of a bridge: a VM's port is found, ranked, named and given back.

use crate::support::profile::{all_hold, inside, laboratory, shown, undo, write};
use std::path::Path;
use steadyvm_lab::artifact::{Cache, UserSpace};
use steadyvm_lab::host::{EmulatedHost, RT};
use steadyvm_lab::laboratory::{HostKernel, guest};
use steadyvm_lab::progress::Silent;

const FILE: &str =
    "[[nic]]\nname = \"rt\"\nclass = \"rt\"\n[[vm]]\nname = \"rt\"\nclass = \"rt\"\n";

/// As the guide names the switch's daemon.
const DAEMON: &str = "[[host_service]]\nunit = \"ovs-vswitchd.service\"\nrank = 85\n";

/// The scheduling classes and ranks of the daemon's threads.
const THREADS: &str = "ps -L -o cls=,rtprio= -p $(cat /run/openvswitch/ovs-vswitchd.pid) | sort -u";

/// The scheduling class of the worker of the VM's card.
const WORKER: &str = "ps -eLo comm,cls | grep '^vhost-'";

#[test]
#[ignore = "needs the lab: make program-tests"]
fn a_vm_at_open_vswitch_is_ranked_named_and_given_back() {
    let logs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("open-vswitch");
    let kernel = HostKernel::V6_12Rt;
    let laboratory = laboratory(&logs, kernel);
    let cache = Cache::of_this_machine().unwrap();
    let laboratory = laboratory.with_user_space(UserSpace::Services, &cache, &Silent);
    let laboratory = laboratory.unwrap();
    let mut host = EmulatedHost::boot(&laboratory.host("ovs", kernel).unwrap()).unwrap();
    host.use_open_vswitch(RT).unwrap();
    let vm = host
        .start_guest(&guest("rt", 1, 1), &[RT], &Silent)
        .unwrap();
    host.set_network_up(&vm, "rt", RT.address(3)).unwrap();
    let guide = include_str!("../../../../docs/guide/substation.md");
    assert!(guide.contains(DAEMON));
    write(&host, "/run/steadyvm.toml", &format!("{FILE}{DAEMON}"));
    inside(&host, "steadyvm status --snapshot > /run/before.json");
    assert!(!inside(&host, WORKER).contains("FF"));

    inside(&host, "steadyvm apply --strict /run/steadyvm.toml");
    let shown = shown(&host);
    assert!(all_hold(&shown));
    assert!(inside(&host, WORKER).contains("FF"), "its worker is ranked");
    let daemon = inside(&host, THREADS);
    let ranks: Vec<&str> = daemon.split_whitespace().collect();
    assert_eq!(ranks, ["FF", "85"]);
    let ways = shown["packet_ways"].to_string();
    assert!(ways.contains("OVS kernel datapath"), "{ways}");
    inside(&host, "steadyvm doctor --json > /run/doctor.json || :");
    let found = inside(
        &host,
        "grep -A6 '\"network.open-vswitch\"' /run/doctor.json",
    );
    assert!(found.contains("tap-rt"), "{found}");
    undo(&host);
    assert!(!inside(&host, THREADS).contains("FF"));
}
