//! Cards, namespaces and CPUs that come and go under a flood, and netconsole over both cards.

use super::{Host, PATIENCE, store_marking_program};
use std::net::UdpSocket;
use steadyvm_lab::host::{BULK, RT};

#[test]
#[ignore = "needs the lab: make patched-tests"]
fn devices_go_down_move_and_die_under_a_flood() {
    let host = Host::boot();
    host.start_netrt();
    let flood = host.start_stream(BULK, 5201, &["-t", "40"]);
    host.run(
        "echo 1 > /sys/class/net/bulk/rx_level; \
         for round in $(seq 5); do ip link set bulk down; ip link set bulk up; done; \
         ip link set bulk down; ip link set bulk name flood; ip link set flood up; \
         echo auto > /sys/class/net/flood/rx_level",
    );
    // Floods through veth into and out of a namespace that dies with the device: out of it through the
    // RT level's backlog, by the marks of an XDP program, where its own level is 0.
    store_marking_program(&host);
    host.run(
        "sysctl -qw net.core.rtnet_xdp_prio=7; for round in $(seq 5); do \
         ip netns add dying; ip link add near type veth peer name far netns dying; \
         ip link set dev near xdpdrv object /run/mark.o section xdp; \
         ip addr add 10.78.0.1/24 dev near; ip link set near up; \
         ip -n dying addr add 10.78.0.2/24 dev far; ip -n dying link set far up; \
         echo $((round % 2)) > /sys/class/net/near/rx_level; \
         timeout 20 bash -c 'exec 4> /dev/udp/10.78.0.2/9; while :; do echo x >&4; done' \
         2> /dev/null & flood=$!; \
         timeout 20 ip netns exec dying bash -c \
         'exec 4> /dev/udp/10.78.0.1/7007; while :; do echo x >&4; done' 2> /dev/null & marked=$!; \
         sent() { cat /sys/class/net/near/statistics/$1; }; \
         until [ $(sent tx_packets) -gt 200 ] && [ $(sent rx_packets) -gt 200 ]; do :; done; \
         ip link del near; kill $flood $marked; ip netns del dying; wait || true; done",
    );
    assert!(
        host.counter("backlog_enqueued", 1) > 0,
        "nothing was marked"
    );
    assert_eq!(host.counter("backlog_length", 1), 0);
    flood.finish();
    host.answers_all_again(200);
    host.check_log();
}

/// Hears the host's kernel outside until so many of its messages were `what`. netconsole sends each in
/// a datagram of its own.
fn hear(receiver: &UdpSocket, count: usize, what: &str) -> Vec<String> {
    let mut messages = Vec::new();
    let mut datagram = [0; 2048];
    while messages.len() < count {
        let length = receiver.recv(&mut datagram);
        let length =
            length.unwrap_or_else(|error| panic!("{error}: {} of {count}", messages.len()));
        let message = String::from_utf8(datagram[..length].to_vec()).unwrap();
        if message.contains(what) {
            messages.push(message);
        }
    }
    messages
}

#[test]
#[ignore = "needs the lab: make patched-tests"]
fn netconsole_says_everything_over_both_nics_under_a_flood() {
    const MESSAGES: usize = 1000;
    let host = Host::boot();
    host.start_netrt();
    host.run("sysctl -qw kernel.printk_devkmsg=on");
    let receivers = [RT, BULK].map(|network| {
        let receive = || Ok(UdpSocket::bind((network.outside(), 6666)).unwrap());
        let receiver = host.shared.outside().enter(receive).unwrap();
        receiver.set_read_timeout(Some(PATIENCE)).unwrap();
        // A card that is in a bridge is netconsole's by the bridge.
        host.run(&format!(
            "mkdir /sys/kernel/config/netconsole/{0}; cd /sys/kernel/config/netconsole/{0}; \
             echo br-{0} > dev_name; echo {1} > remote_ip; echo 6666 > remote_port; \
             echo 1 > enabled",
            network.name,
            network.outside()
        ));
        receiver
    });
    let flood = host.start_stream(BULK, 5201, &["-t", "20"]);
    // Levels change meanwhile. Errors pass the console level that the lab boots with.
    let words = format!(
        "for number in $(seq {MESSAGES}); do \
         echo \"<3>netconsole: $number is said\" > /dev/kmsg; \
         [ $((number % 50)) -ne 0 ] || for card in rt bulk; do \
         echo $((number / 50 % 2)) > /sys/class/net/$card/rx_level; done; done"
    );
    let speaker = host.shared.connection().spawn(&["sh", "-euc", &words]);
    let heard = std::thread::scope(|scope| {
        let heard = receivers
            .each_ref()
            .map(|receiver| scope.spawn(|| hear(receiver, MESSAGES, "is said")));
        host.requests(300);
        heard.map(|heard| heard.join().unwrap())
    });
    speaker.unwrap().finish(PATIENCE).unwrap();
    for messages in heard {
        let number = |message: &String| {
            let said = message.split_once("netconsole: ")?.1;
            said.strip_suffix(" is said\n")?.parse::<usize>().ok()
        };
        // One that netpoll leaves to its work item may be overtaken.
        let mut numbers: Vec<usize> = messages.iter().filter_map(number).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(1..=MESSAGES), "{messages:?}");
    }
    flood.finish();

    // A card that goes takes its target with it for that time, and nothing else.
    host.run(
        "for card in rt bulk; do echo auto > /sys/class/net/$card/rx_level; \
         ip link set $card down; echo '<3>netconsole: nobody need hear this' > /dev/kmsg; \
         ip link set $card up; until grep -q 1 /sys/class/net/$card/carrier; do :; done; done; \
         echo '<3>netconsole: the end' > /dev/kmsg",
    );
    for receiver in &receivers {
        hear(receiver, 1, "netconsole: the end");
    }
    host.run(
        "for target in /sys/kernel/config/netconsole/*; do \
         echo 0 > $target/enabled; rmdir $target; done",
    );
    host.answers_all(200);
    host.check_log();
}

#[test]
#[ignore = "needs the lab: make patched-tests"]
fn a_cpu_goes_and_comes_back_under_a_flood() {
    let host = Host::boot();
    host.start_netrt();
    let flood = host.start_stream(BULK, 5201, &["-t", "30"]);
    host.run(
        "for round in $(seq 4); do echo 0 > /sys/devices/system/cpu/cpu1/online; \
         echo 1 > /sys/devices/system/cpu/cpu1/online; done",
    );
    flood.finish();
    // A rank that is set while a CPU is away holds there too, once it is back.
    host.run(
        "echo 0 > /sys/devices/system/cpu/cpu1/online; sysctl -qw net.core.rtnet_thread_prio=90; \
         echo 1 > /sys/devices/system/cpu/cpu1/online; \
         until [ $(ps -eLo rtprio=,comm= | grep -c '90 rx_level') = 2 ]; do :; done; \
         sysctl -qw net.core.rtnet_thread_prio=0",
    );
    host.answers_all_again(200);
    host.check_log();
}
