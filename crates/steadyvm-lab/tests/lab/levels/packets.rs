//! Packets under levels: their order, what GRO merges, and the level of each.

use super::{Datagrams, Host, PATIENCE, flood_while, kernel, store_marking_program};
use crate::support::programs::install;
use std::time::Instant;
use steadyvm_lab::host::BULK;
use steadyvm_lab::laboratory::HostKernel;

#[test]
#[ignore = "needs the lab: make patched-tests"]
fn marked_packets_keep_their_order_while_their_interrupt_moves() {
    let host = Host::boot();
    store_marking_program(&host);
    host.run(
        "ip link set dev bulk xdpdrv object /run/mark.o section xdp; \
         sysctl -qw net.core.rtnet_prio=70 net.core.rtnet_xdp_prio=7",
    );
    Datagrams::to(&host).wait_for_card();
    let taken = host.counter("backlog_enqueued", 1);
    let options = ["-u", "-b", "10M", "-l", "1000", "-t", "15"];
    let udp = host.start_stream(BULK, 7007, &options);
    let moved = host.run(
        "moved=0; for round in $(seq 100); do \
         for irq in $(ls /sys/class/net/bulk/device/msi_irqs); do \
         echo $((round % 2 + 1)) > /proc/irq/$irq/smp_affinity && moved=$((moved + 1)); \
         done; done; echo $moved",
    );
    let said = udp.finish();
    assert!(moved.trim().parse::<u32>().unwrap() >= 100, "{moved}");
    assert!(!said.contains("OUT OF ORDER"), "{said}");
    let taken = host.counter("backlog_enqueued", 1) - taken;
    assert!(taken > 1000, "{taken} marked packets: {said}");
    host.check_log();
}

#[test]
#[ignore = "needs the lab: make patched-tests"]
fn levels_change_while_traffic_flows_and_no_flow_is_reordered() {
    let host = Host::boot();
    host.start_netrt();
    // GRO is on, as ever; a VLAN, RPS and RFS come on top.
    host.run(
        "ip link add link bulk name bulk.5 type vlan id 5; ip link set bulk.5 up; \
         echo 4096 > /proc/sys/net/core/rps_sock_flow_entries; \
         for queue in /sys/class/net/bulk/queues/rx-*; do \
         echo 3 > $queue/rps_cpus; echo 1024 > $queue/rps_flow_cnt; done",
    );
    let tcp = host.start_stream(BULK, 5201, &["-t", "20"]);
    let udp = host.start_stream(BULK, 5202, &["-u", "-b", "10M", "-l", "1000", "-t", "20"]);
    host.run(
        "for round in $(seq 12); do for level in 1 0 auto; do \
         echo $level > /sys/class/net/rt/rx_level; \
         echo $level > /sys/class/net/bulk/rx_level; \
         sysctl -qw net.core.rtnet_prio=$((70 * (round % 2))); \
         sysctl -qw net.core.rtnet_quantum=\"$((1 + 5 * round)) $((64 - 5 * round))\"; \
         done; done; sysctl -qw net.core.rtnet_prio=70",
    );
    // An emulated NIC loses packets under load; it must answer again after it.
    host.requests(300);
    tcp.finish();
    let said = udp.finish();
    host.answers_all_again(100);
    assert!(!said.contains("OUT OF ORDER"), "{said}");
    assert!(said.contains("receiver"), "{said}");
    host.check_log();
}

#[test]
#[ignore = "needs the lab: make patched-tests"]
fn polls_of_a_short_quantum_merge_as_many_packets_as_full_ones() {
    let host = Host::boot();
    // 16 packets of a stream are 23,220 bytes.
    host.run(
        "sysctl -qw net.core.rtnet_prio=70 net.core.rtnet_quantum='16 64'; \
         cd /sys/kernel/tracing/events/net/netif_receive_skb; \
         echo 'len > 24000' > filter; echo 1 > enable",
    );
    let stream = host.start_stream(BULK, 5201, &["-t", "3"]);
    stream.finish();
    let merged = host.run(
        "cd /sys/kernel/tracing; echo 0 > events/net/netif_receive_skb/enable; \
         grep -c dev=bulk trace || true",
    );
    // What is no number is a trace that could not be read.
    let merged: u64 = merged.trim().parse().unwrap();
    // What is older than a jiffy (4 ms) is passed on after each poll. On a kernel that checks itself
    // full polls are 7 to 13 ms apart, so that there it is the log that counts.
    if kernel() == HostKernel::V6_12RtPatched {
        assert!(merged > 0, "no packet has been merged of two polls");
    }
    host.check_log();
}

#[test]
#[ignore = "needs the lab: make patched-tests"]
fn prioritised_packets_have_a_backlog_of_their_own_and_a_namespace_has_no_say() {
    let host = Host::boot();
    install(host.shared.connection(), "datagrams.c", "/run/datagrams");
    host.run(
        "ip link set lo up; ip netns add tenant; ip -n tenant link set lo up; \
         sysctl -qw net.core.rtnet_skb_prio=7",
    );
    // Loopback keeps the priority of the socket.
    let taken = || host.counter("backlog_enqueued", 1);
    for (namespace, priority, of_rt_level) in [
        ("", 7, true),
        ("", 15, true),
        ("", 6, false),
        ("ip netns exec tenant", 7, false),
        ("ip netns exec tenant", 15, false),
    ] {
        let before = taken();
        host.run(&format!(
            "{namespace} /run/datagrams 127.0.0.1 9 500 {priority}"
        ));
        let expected = if of_rt_level { 500 } else { 0 };
        assert_eq!(taken() - before, expected, "{namespace} {priority}");
    }
    assert_eq!(host.counter("packets", 1), taken(), "all are processed");
    assert_eq!(host.counter("backlog_length", 1), 0);

    // Where only XDP programs say what is urgent, no socket does.
    host.run("sysctl -qw net.core.rtnet_skb_prio=0 net.core.rtnet_xdp_prio=1");
    let before = taken();
    host.run("/run/datagrams 127.0.0.1 9 500 15");
    assert_eq!(taken(), before);
    host.check_log();
}

#[test]
#[ignore = "needs the lab: make patched-tests"]
fn an_xdp_program_says_the_level_of_each_packet() {
    let host = Host::boot();
    store_marking_program(&host);
    host.run("ip link set dev bulk xdpdrv object /run/mark.o section xdp");
    let datagrams = Datagrams::to(&host);
    datagrams.wait_for_card();
    let taken = || host.counter("backlog_enqueued", 1);
    host.run("sysctl -qw net.core.rtnet_prio=70");
    datagrams.send(7007, 50);
    assert_eq!(taken(), 0, "nobody has asked for marks to be taken");

    host.run("sysctl -qw net.core.rtnet_xdp_prio=7");
    for (port, count, of_rt_level) in [
        (7007, 200, true),
        (7015, 50, true),
        (7006, 50, false),
        // Above what names a priority.
        (7016, 50, false),
        // Another program's metadata, and none.
        (7107, 50, false),
        (8007, 50, false),
    ] {
        let before = taken();
        datagrams.send(port, count);
        let expected = if of_rt_level { count } else { 0 };
        assert_eq!(taken() - before, expected, "to port {port}");
    }
    assert_eq!(host.counter("packets", 1), taken(), "all are processed");

    // RPS says the CPU, and the mark the level there.
    host.run("for queue in /sys/class/net/bulk/queues/rx-*; do echo 2 > $queue/rps_cpus; done");
    let before = taken();
    datagrams.send(7007, 100);
    assert_eq!(taken() - before, 100);

    // What waits when the card goes is dropped, and nothing else; no packet waits for ever.
    host.raise_rcu();
    flood_while(&datagrams.socket, (BULK.host(), 7007).into(), || {
        host.run(
            "for round in $(seq 8); do ip link set bulk down; ip link set bulk up; \
             echo $((round % 2 * 2)) > /sys/class/net/bulk/queues/rx-0/rps_cpus; \
             sysctl -qw net.core.rtnet_xdp_prio=$((round % 2 * 7)); \
             sysctl -qw net.core.rtnet_skb_prio=$((round % 3 * 7)); done",
        );
    });
    host.run("sysctl -qw net.core.rtnet_xdp_prio=7 net.core.rtnet_skb_prio=0");
    let until = Instant::now() + PATIENCE;
    while host.counter("backlog_length", 1) > 0 {
        assert!(Instant::now() < until, "packets wait for ever");
    }
    assert!(host.counter("packets", 1) <= taken());
    datagrams.wait_for_card();
    // The last of the flood may still come.
    let before = taken();
    datagrams.send(7007, 50);
    assert!(taken() >= before + 50);
    host.run("ip link set dev bulk xdpdrv off");
    datagrams.wait_for_card();
    let before = taken();
    datagrams.send(7007, 50);
    assert_eq!(taken(), before, "nobody marks any more");
    host.check_log();
}
