//! Open vSwitch: in the kernel its ports are ranked as those of a bridge; in user space it is not ours.

use super::net::profile;
use super::scenario::{control, directory, paper_host};
use crate::doctor::{self, Status};
use crate::fake::FakeHost;
use crate::settings::threads::Scheduling;
use crate::{HostControl, Way};

const FILE: &str = "[[vm]]\nname = \"rt\"\nclass = \"rt\"\n";

/// The paper's host with its cards and taps in bridges of Open vSwitch, all ports of one datapath.
fn host() -> FakeHost {
    let host = paper_host(2);
    host.file("/sys/class/net/ovs-system/mtu", "1500\n");
    for port in ["bulk0", "tap-rt", "tap-bulk"] {
        host.file(&format!("/sys/class/net/ovs-system/lower_{port}"), "");
        host.edit(|state| {
            let class = state.real(&format!("/sys/class/net/{port}"));
            let master = format!("{class}/master");
            state
                .links
                .insert(master, "/sys/class/net/ovs-system".into());
        });
    }
    host
}

fn in_user_space(host: &FakeHost) {
    let command = "qemu\0-name\0guest=rt,debug-threads=on\0-netdev\0vhost-user,chardev=char0,id=n0\0-device\0\
                   virtio-net-pci,netdev=n0,mac=52:54:00:00:00:01\0";
    host.file("/proc/100/cmdline", command);
    host.file("/sys/class/net/ovs-netdev/mtu", "1500\n");
    // Neither tap nor worker.
    host.edit(|state| {
        state.files.remove("/proc/100/fdinfo/9");
        state.links.remove("/proc/100/fd/11");
        state.threads.remove(&109);
    });
}

fn way(control: &HostControl) -> crate::PacketWay {
    control.show().unwrap().packet_ways.remove(0)
}

fn check(host: &FakeHost, id: &str) -> Option<(Status, String)> {
    let report = doctor::examine(&host.machine());
    let mut checks = report.checks.into_iter();
    let found = checks.find(|check| check.id == id)?;
    Some((found.status, format!("{} {}", found.found, found.fix)))
}

#[test]
fn ports_of_the_kernel_datapath_are_ranked_and_named() {
    let (host, directory) = (host(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    let applied = control.apply_profile(&profile(FILE)).unwrap();
    assert_eq!(applied.warnings, [] as [String; 0]);
    let state = host.state();
    assert_eq!(state.threads[&109].scheduling, Scheduling::fifo(75, 0));
    assert_eq!(state.qdiscs["tap-rt"], "noqueue");
    let found = way(&control);
    let cards = vec!["bulk0".to_owned()];
    assert_eq!(found.way, Way::SharedRing { cards });
    let sentence = found.sentence();
    assert!(sentence.contains("OVS kernel datapath"), "{sentence}");
    assert!(
        !sentence.contains("write `nic"),
        "no function passes its flows by: {sentence}"
    );
    control.undo().unwrap();
    assert_eq!(host.state(), before);
    let (status, text) = check(&host, "network.open-vswitch").unwrap();
    assert_eq!(status, Status::Ok);
    assert!(text.contains("bulk0") && text.contains("tap-rt"), "{text}");
    assert_eq!(check(&host, "network.open-vswitch-user-space"), None);
    assert_eq!(check(&paper_host(2), "network.open-vswitch"), None);
}

#[test]
fn a_card_of_the_vms_class_in_the_datapath_is_its_own() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    let text = format!("[[nic]]\nname = \"bulk0\"\nclass = \"rt\"\n{FILE}");
    control.apply_profile(&profile(&text)).unwrap();
    let found = way(&control);
    assert!(matches!(found.way, Way::OwnCard { .. }), "{found:?}");
    assert!(found.sentence().contains("OVS kernel datapath"));
}

#[test]
fn a_card_of_open_vswitch_is_not_shared_by_nic() {
    let (host, directory) = (host(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    let text = format!("{FILE}nic = \"bulk0\"\n");
    let report = control.apply_profile_each(&profile(&text), &[]).unwrap();
    let [failure] = &report.failed[..] else {
        panic!("{report:?}");
    };
    assert!(
        failure.error.contains("is a port of Open vSwitch"),
        "{failure}"
    );
    control.undo().unwrap();
    assert_eq!(host.state(), before);
}

#[test]
fn what_a_program_in_user_space_carries_is_told_and_left() {
    let (host, directory) = (host(), directory());
    in_user_space(&host);
    let before = host.state();
    let control = control(&host, &directory);
    let applied = control.apply_profile(&profile(FILE)).unwrap();
    let [warning] = &applied.warnings[..] else {
        panic!("{:?}", applied.warnings);
    };
    assert!(
        warning.contains("vhost-user") && warning.contains("not steadyvm's"),
        "{warning}"
    );
    assert!(!host.state().qdiscs.contains_key("tap-rt"));
    // Its VCPUs are the VM's own.
    assert_eq!(host.state().threads[&102].scheduling.priority, 70);
    let found = way(&control);
    assert_eq!(found.way, Way::UserSpace);
    assert!(found.sentence().contains("Open vSwitch with DPDK"));
    control.undo().unwrap();
    assert_eq!(host.state(), before);
    for id in ["network.open-vswitch-user-space", "network.vhost-user.rt"] {
        let (status, text) = check(&host, id).unwrap();
        assert_eq!(status, Status::Warn);
        assert!(text.contains("not steadyvm's"), "{text}");
    }
}

/// An administration network's bridge says nothing of the way of the packets that count.
#[test]
fn the_way_of_a_vm_is_that_of_the_interfaces_with_its_class() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    let text = format!("{FILE}interfaces = [{{ tap = \"tap-rt\", class = \"best-effort\" }}]\n");
    control.apply_profile(&profile(&text)).unwrap();
    assert_eq!(way(&control).way, Way::NoCard);
    assert!(!host.state().qdiscs.contains_key("tap-rt"));
}
