//! What is polled at the RT level, and what that leaves to all else.

use super::{Host, PATIENCE, assert_all_answered, flood_while, kernel};
use crate::support::programs::install;
use std::net::UdpSocket;
use std::time::Duration;
use steadyvm_lab::host::{BULK, RT};
use steadyvm_lab::laboratory::HostKernel;
use steadyvm_load::netrt::Intervals;

#[test]
#[ignore = "needs the lab: make patched-tests"]
fn wrong_settings_are_refused_and_change_nothing() {
    let host = Host::boot();
    let files = "/proc/sys/net/core/rtnet_* /sys/class/net/rt/rx_level";
    let before = host.run(&format!("grep . {files}"));
    let defaults = [
        ("rtnet_max_backlog:600", 1),
        ("rtnet_min_share_usecs:100000", 1),
        ("rtnet_prio:0", 1),
        ("rtnet_quantum:64\t64", 1),
        ("rtnet_skb_prio:0", 1),
        ("rtnet_thread_prio:0", 1),
        ("rtnet_xdp_prio:0", 1),
        ("rx_level:auto", 1),
    ];
    for (line, count) in defaults {
        assert_eq!(before.matches(line).count(), count, "{line} in\n{before}");
    }
    for (file, values) in [
        ("/proc/sys/net/core/rtnet_prio", &["-1", "100", "high"][..]),
        ("/proc/sys/net/core/rtnet_thread_prio", &["-1", "100"]),
        (
            "/proc/sys/net/core/rtnet_quantum",
            &["0 64", "64 65", "8 x"],
        ),
        // Up to 6 everybody may give a socket.
        ("/proc/sys/net/core/rtnet_skb_prio", &["-1", "1", "6", "16"]),
        ("/proc/sys/net/core/rtnet_xdp_prio", &["-1", "16"]),
        ("/proc/sys/net/core/rtnet_max_backlog", &["0", "-5"]),
        (
            "/proc/sys/net/core/rtnet_min_share_usecs",
            &["-1", "10000001"],
        ),
        ("/sys/class/net/rt/rx_level", &["2", "-1", "high", ""]),
    ] {
        for value in values {
            host.run(&format!("! echo '{value}' > {file}"));
            assert_eq!(
                host.run(&format!("grep . {files}")),
                before,
                "{value} > {file}"
            );
        }
    }
    host.run("echo 1 > /sys/class/net/rt/rx_level; echo auto > /sys/class/net/rt/rx_level");
    assert_eq!(host.run(&format!("grep . {files}")), before);
    host.check_log();
}

#[test]
#[ignore = "needs the lab: make patched-tests"]
fn the_rt_nic_is_polled_at_the_rt_level_only_while_it_is_on() {
    let host = Host::boot();
    host.start_netrt();
    host.answers_all(300);
    let polled = host.counter("packets", 1);
    assert!(polled >= 320, "{polled} packets at the RT level");
    // rx_level/CPU follows the interrupt threads that it serves, or what is set.
    let ranks = || {
        let listed = host.run("ps -eLo rtprio=,comm= | grep rx_level");
        let rank = |line: &str| line.split_whitespace().next().unwrap().to_owned();
        let mut ranks: Vec<String> = listed.lines().map(rank).collect();
        ranks.sort_unstable();
        assert_eq!(ranks.len(), 2, "{listed}");
        ranks
    };
    let followed = ranks();
    assert!(
        followed == ["70", "80"] || followed == ["80", "80"],
        "{followed:?}"
    );
    host.run("sysctl -qw net.core.rtnet_thread_prio=90");
    assert_eq!(ranks(), ["90", "90"]);
    host.run("sysctl -qw net.core.rtnet_thread_prio=0");
    assert_eq!(ranks(), followed);

    host.run("sysctl -qw net.core.rtnet_prio=0");
    let polled = host.counter("packets", 1);
    host.answers_all(100);
    assert_eq!(host.counter("packets", 1), polled);
    host.check_log();
}

/// Its rank as a real-time thread is 0.
#[test]
#[ignore = "needs the lab: make patched-tests"]
fn an_interrupt_thread_of_sched_deadline_is_of_the_rt_level() {
    let host = Host::boot();
    host.start_netrt();
    host.answers_all(20);
    // The kernel takes no such thread that is bound to a CPU while it keeps a share for normal ones.
    host.run(
        "sysctl -qw kernel.sched_rt_runtime_us=-1
         for thread in $(pgrep 'irq/.*-rt-'); do
           chrt --deadline -T 2000000 -D 5000000 -P 5000000 -p 0 $thread
         done",
    );
    let before = host.counter("packets", 1);
    host.answers_all(300);
    let polled = host.counter("packets", 1) - before;
    host.run(
        "for thread in $(pgrep 'irq/.*-rt-'); do chrt -f -p 50 $thread; done
         sysctl -qw kernel.sched_rt_runtime_us=950000",
    );
    assert!(polled >= 300, "{polled} packets at the RT level");
    host.check_log();
}

#[test]
#[ignore = "needs the lab: make patched-tests"]
fn a_computing_task_of_the_services_rank_does_not_stop_the_rt_nic() {
    let host = Host::boot();
    host.start_netrt();
    // After each packet the interrupt thread leaves its card to rx_level/CPU, interrupt masked.
    host.run(
        "sysctl -qw net.core.netdev_budget=1 net.core.rtnet_quantum='64 1'; \
         taskset -a -p -c 1 $(pgrep -f '^steadyvm netrt serve')",
    );
    host.requests(20);
    let computing = host.compute(70);
    host.answers_all(100);
    drop(computing);
    host.check_log();
}

#[test]
#[ignore = "needs the lab: make patched-tests"]
fn packets_that_the_rt_level_hands_on_do_not_wait_for_normal_threads() {
    let host = Host::boot();
    host.start_netrt();
    let address = RT.address(100);
    host.shared.make_namespace("service", RT, address).unwrap();
    let words = "ip netns exec service chrt -f 70 steadyvm netrt serve 0.0.0.0:7700";
    let words: Vec<&str> = words.split(' ').collect();
    let mut service = host.shared.connection().spawn(&words).unwrap();
    service.wait_for_line("ready", PATIENCE).unwrap();
    let before = host.counter("handed", 0);
    // So far apart that no poll takes two, on kernels that check themselves too.
    let apart = match kernel() {
        HostKernel::V6_12RtPatched => Intervals::default(),
        _ => Intervals {
            shortest: Duration::from_millis(50),
            longest: Duration::from_millis(100),
        },
    };
    assert_all_answered(&host.requests_apart(address, 300, apart));
    let handed = host.counter("handed", 0) - before;
    assert!(handed >= 300, "{handed} polls of what was handed on");

    // Level 0's own work stays ksoftirqd's.
    host.run("sysctl -qw net.core.rtnet_prio=0");
    let before = host.counter("handed", 0);
    host.requests_to(address, 50);
    assert_eq!(host.counter("handed", 0), before);
    drop(service);
    host.check_log();
}

/// What a VCPU that computes and a flood at the RT NIC leave to RCU, timers and the disk.
#[test]
#[ignore = "needs the lab: make patched-tests"]
fn a_minute_of_computing_and_flooding_at_rt_ranks_stalls_neither_rcu_nor_timers() {
    let host = Host::boot();
    host.start_netrt();
    host.rank_rcu(85);
    let computing = host.compute(70);
    let socket = host
        .shared
        .outside()
        .enter(|| Ok(UdpSocket::bind("0.0.0.0:0").unwrap()));
    let socket = socket.unwrap();
    flood_while(&socket, (RT.host(), 9).into(), || {
        // Timers of a second for a minute, and writes to the host's disk, on any CPU. Normal threads get the fair
        // server's share only, and an emulated host little of that: no new process but `sleep`.
        let words = "read now _ < /proc/uptime; end=$((${now%.*} + 60)); \
             while read now _ < /proc/uptime && [ ${now%.*} -lt $end ]; do sleep 1; done; \
             dd if=/dev/zero of=/run/written bs=64k count=16; sync; echo survived";
        let command = host
            .shared
            .connection()
            .spawn(&["sh", "-euc", words])
            .unwrap();
        let ended = command.finish(2 * PATIENCE).unwrap();
        assert!(ended.text().contains("survived"), "{}", ended.text());
    });
    drop(computing);
    let log = host.run("dmesg");
    // "blocked" is of kernels with DETECT_HUNG_TASK alone, and with a timeout below this minute.
    for report in [
        "stall",
        "blocked for more than",
        "lockup",
        "BUG:",
        "WARNING:",
    ] {
        assert!(!log.contains(report), "{report}: {log}");
    }
    host.answers_all_again(100);
    host.check_log();
}

const RUNAWAY: &str = "/run/run_away";

/// Lets a task of FIFO 60 keep the CPU of the cards' interrupts for ten times the share's period (100 ms).
/// It stands above the threads of the bulk card (50) and below the RT level's (70), and a packet of a
/// flood wakes it: so in the midst of a poll.
fn run_away_in_a_poll(host: &Host) {
    let bind = || Ok(UdpSocket::bind((BULK.outside(), 0)).unwrap());
    let socket = host.shared.outside().enter(bind).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let (address, port) = (
        BULK.outside().to_string(),
        socket.local_addr().unwrap().port().to_string(),
    );
    let task = [
        "taskset", "-c", "0", "chrt", "-f", "60", RUNAWAY, &address, &port, "1000",
    ];
    let task = host.shared.connection().spawn(&task).unwrap();
    let (_, address) = socket.recv_from(&mut [0; 1]).unwrap();
    flood_while(&socket, address, || {
        task.finish(2 * PATIENCE).unwrap();
    });
}

#[test]
#[ignore = "needs the lab: make patched-tests"]
fn a_poll_that_a_runaway_real_time_task_preempts_gets_its_share() {
    if kernel() == HostKernel::V6_12PatchedDebug {
        println!("no task preempts a poll without PREEMPT_RT: nothing to see");
        return;
    }
    let host = Host::boot();
    host.start_netrt();
    // The poll of one packet leaves its card to be polled again, whatever else has come. RCU's threads
    // stay below the task: above it, one that wants bottom halves off would poll level 0 until nothing is
    // left.
    host.run("sysctl -qw net.core.rtnet_quantum='1 64'");
    install(host.shared.connection(), "run_away.c", RUNAWAY);
    run_away_in_a_poll(&host);
    // What tells a flood that never came from a share that was not given.
    let seen = host.run("cat /proc/net/rx_levels /proc/interrupts; grep bulk /proc/net/dev");
    assert!(
        host.counter("shared", 0) > 0,
        "level 0 had no share:\n{seen}"
    );
    host.run("sysctl -qw net.core.rtnet_min_share_usecs=0");
    let before = host.counter("shared", 0);
    run_away_in_a_poll(&host);
    assert_eq!(host.counter("shared", 0), before, "nobody asks for one");
    host.run("timeout -s KILL 12 ip link set bulk down; timeout -s KILL 12 ip link set bulk up");
    host.answers_all_again(100);
    host.check_log();
}
