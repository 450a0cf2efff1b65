//! Multicast for a VM's macvtap on Debian's kernel: who hands it on, before, during and after `steadyvm apply`.

use crate::support::profile::{all_hold, inside, shown, undo, write};
use crate::support::shared;
use std::time::Duration;
use steadyvm_lab::agent::Process;
use steadyvm_lab::host::EmulatedHost;
use steadyvm_lab::laboratory::HostKernel;

const PATIENCE: Duration = Duration::from_secs(60);

const FILE: &str = r#"
[class.relay]
vhost = 60
[[vm]]
name = "relay"
class = "relay"
"#;

/// Two macvtaps want the stream: with one the kernel hands it on itself.
const DEVICES: &str = "ip link add card0 type veth peer name wire0\n\
     ip link set card0 up; ip link set wire0 up\n\
     for n in 0 1; do\n\
       ip link add link card0 name vt$n type macvtap mode bridge\n\
       ip link set vt$n up\n\
       ip maddr add 01:0c:cd:04:00:01 dev vt$n\n\
     done";

/// The work that hands queued frames on (`macvlan_process_broadcast()` of drivers/net/macvlan.c).
const PROBE: &str = "mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing\n\
     echo 'p:macvtap/work macvlan_process_broadcast' > /sys/kernel/tracing/kprobe_events\n\
     echo 1 > /sys/kernel/tracing/events/macvtap/work/enable";

/// A VM with a macvtap, as libvirt gives it one: the monitor has the character device open.
fn relay(host: &EmulatedHost) -> Process {
    let words = "exec qemu-system-x86_64 -name guest=relay,debug-threads=on -nodefaults -display none -M q35,accel=kvm \
                 -m 64M -netdev tap,id=net,fd=3,vhost=on -device virtio-net-pci,netdev=net -monitor stdio \
                 3<>/dev/tap$(cat /sys/class/net/vt0/ifindex)";
    let mut process = host.connection().spawn(&["sh", "-c", words]).unwrap();
    process.wait_for_line("QEMU", PATIENCE).unwrap();
    process
}

/// How often the queue's work ran while a stream of 500 samples was sent.
fn works(host: &EmulatedHost) -> usize {
    inside(host, "echo > /sys/kernel/tracing/trace");
    let publish = "steadyvm-lab load publish wire0 --rate 500 --seconds 1 --json > /run/published; grep -q '\"sent\": 500' /run/published";
    inside(host, publish);
    let count = inside(host, "grep -c 'work:' /sys/kernel/tracing/trace || :");
    count.trim().parse().unwrap()
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn no_work_queue_hands_multicast_to_a_vms_macvtap_while_the_file_is_in_force() {
    let host = shared::host(HostKernel::V6_12Rt);
    inside(&host, DEVICES);
    inside(&host, PROBE);
    let relay = relay(&host);
    write(&host, "/run/steadyvm.toml", FILE);
    inside(&host, "steadyvm status --snapshot > /run/before.json");
    assert!(works(&host) > 0, "the stock kernel queues it");
    inside(&host, "steadyvm doctor --json > /run/doctor.json || :");
    let found = inside(&host, "grep -A6 macvtap-multicast.card0 /run/doctor.json");
    assert!(found.contains("\"warn\""), "{found}");

    inside(&host, "steadyvm apply --strict /run/steadyvm.toml");
    assert!(all_hold(&shown(&host)));
    assert_eq!(works(&host), 0);
    undo(&host);
    assert!(works(&host) > 0);

    relay.input(b"quit\n").unwrap();
    relay.finish(PATIENCE).unwrap();
    inside(
        &host,
        "echo 0 > /sys/kernel/tracing/events/macvtap/work/enable; echo > /sys/kernel/tracing/kprobe_events\n\
         ip link delete card0",
    );
}
