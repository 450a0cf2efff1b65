//! The network profile in the emulated host: on the distribution's kernel and on the RT kernel,
//! with and without early demultiplexing, after a crash too.

use crate::support::profile::{all_hold, inside, shown, undo, write};
use crate::support::programs::install;
use crate::support::shared;
use serde_json::Value;
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use steadyvm_lab::agent::Process;
use steadyvm_lab::host::{BULK, EmulatedHost, RT};
use steadyvm_lab::laboratory::{HostKernel, guest};
use steadyvm_lab::progress::Silent;

const PATIENCE: Duration = Duration::from_secs(60);

const PROFILE: &str = r#"
[net]
budget_packets = 64
[kernel]
rcu = 2
[class.rt]
irq = 80
napi = 78
vhost = 75
vcpu = 70
tap_qdisc = "noqueue"
[class.bulk]
irq = "normal"
napi = "normal"
threaded_napi = true
[[nic]]
name = "rt"
class = "rt"
[[nic]]
name = "bulk"
class = "bulk"
[[vm]]
name = "rt"
class = "rt"
"#;

const DEMUX: &str = r#"
[net.demux]
nics = ["bulk"]
cpu = 1
levels = [{ from = 0, thread = "normal" }, { from = 20, thread = 60 }]
[class.bulk]
irq = 70
[[nic]]
name = "bulk"
class = "bulk"
"#;

const MARKING: &str = r#"
[net]
levels_from = 70
[net.demux]
nics = ["bulk"]
rt_from = 20
[class.bulk]
irq = 50
[[nic]]
name = "bulk"
class = "bulk"
"#;

/// The policy and priority of the threads with this in their names.
fn ranks(host: &EmulatedHost, name: &str) -> Vec<String> {
    inside(host, "ps -eLo cls=,rtprio=,comm=")
        .lines()
        .filter(|line| line.contains(name))
        .map(|line| {
            line.split_whitespace()
                .take(2)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_profile_holds_on_the_rt_kernel_and_is_undone_after_a_crash_too() {
    let host = shared::host(HostKernel::V6_12Rt);
    let _guest = host
        .start_guest(&guest("rt", 1, 2), &[RT], &Silent)
        .unwrap();
    write(&host, "/run/steadyvm.toml", PROFILE);
    inside(&host, "steadyvm status --snapshot > /run/before.json");

    inside(
        &host,
        "steadyvm apply --strict --dry-run /run/steadyvm.toml",
    );
    inside(
        &host,
        "steadyvm status --snapshot --compare /run/before.json",
    );

    inside(&host, "steadyvm apply --strict /run/steadyvm.toml");
    assert!(all_hold(&shown(&host)));
    for (name, rank) in [
        ("rt-rx-", "FF 80"),
        ("bulk-rx-", "TS -"),
        ("napi/bulk-", "TS -"),
        ("vhost-", "FF 75"),
        ("CPU 1/KVM", "FF 70"),
        ("rcu_preempt", "FF 2"),
    ] {
        let found = ranks(&host, name);
        assert!(
            !found.is_empty() && found.iter().all(|found| found == rank),
            "{name}: {found:?}"
        );
    }
    let qdiscs = inside(&host, "ip -o link show type tun");
    assert!(qdiscs.contains("qdisc noqueue"), "{qdiscs}");
    let again = inside(&host, "steadyvm apply --strict --json /run/steadyvm.toml");
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["steps"].as_array().unwrap().len(), 0, "{again}");
    undo(&host);

    // Killed by the kernel at its third change of a policy.
    let killed = host.connection().text(&[
        "sh",
        "-c",
        "strace -f -o /dev/null -e inject=sched_setattr:signal=SIGKILL:when=3 \
         steadyvm apply --strict /run/steadyvm.toml; echo $?",
    ]);
    assert!(killed.unwrap().trim().ends_with("137"));
    assert_eq!(shown(&host)["state"], "incomplete");
    undo(&host);
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_profile_ranks_napi_threads_where_there_are_no_irq_threads() {
    let host = shared::host(HostKernel::V6_12);
    write(&host, "/run/steadyvm.toml", PROFILE);
    inside(&host, "steadyvm status --snapshot > /run/before.json");
    inside(
        &host,
        "steadyvm apply --strict /run/steadyvm.toml 2> /run/said",
    );
    assert!(inside(&host, "cat /run/said").contains("has no IRQ threads"));
    assert!(all_hold(&shown(&host)));
    let found = ranks(&host, "napi/rt-");
    assert!(
        !found.is_empty() && found.iter().all(|rank| rank == "FF 78"),
        "{found:?}"
    );
    undo(&host);
    // A NIC that cannot steer is refused, and nothing stays changed.
    write(
        &host,
        "/run/steer.toml",
        &PROFILE.replace(
            "name = \"rt\"\nclass = \"rt\"\n[[nic]]",
            "name = \"rt\"\nclass = \"rt\"\nsteer = [{ queue = 0, udp = 7 }]\n[[nic]]",
        ),
    );
    let refused = inside(
        &host,
        "steadyvm apply --strict /run/steer.toml 2>&1 || echo code $?",
    );
    assert!(
        refused.contains("steer") && refused.contains("code 3"),
        "{refused}"
    );
    inside(
        &host,
        "steadyvm status --snapshot --compare /run/before.json",
    );
}

/// The priority of a UDP port in the table; none if it has none.
fn priority(host: &EmulatedHost, port: u16) -> Option<u64> {
    priority_of(&shown(host), "udp", port)
}

fn priority_of(shown: &Value, protocol: &str, port: u16) -> Option<u64> {
    let ports = shown["demux"]["ports"].as_array().unwrap();
    let ours = ports
        .iter()
        .find(|entry| entry["port"] == port && entry["protocol"] == protocol)?;
    ours["priority"].as_u64()
}

fn packets(host: &EmulatedHost, level: usize) -> u64 {
    shown(host)["demux"]["packets"]["levels"][level]
        .as_u64()
        .unwrap()
}

/// A service behind words that give it its rank.
fn serve(host: &EmulatedHost, words: &str, port: u16) -> Process {
    let listen = format!("0.0.0.0:{port}");
    let mut argv: Vec<&str> = words.split_whitespace().collect();
    argv.extend(["steadyvm", "netrt", "serve", &listen]);
    let mut service = host.connection().spawn(&argv).unwrap();
    service.wait_for_line("ready", PATIENCE).unwrap();
    service
}

/// Sends packets to a port, and waits until the programs have found them to be of a level.
fn send_fifty(host: &EmulatedHost, port: u16, level: usize) {
    let bind = || Ok(UdpSocket::bind(("0.0.0.0", 0)).unwrap());
    let outside = host.outside().enter(bind).unwrap();
    let send = || {
        outside
            .send_to(b"no request", (BULK.address(2), port))
            .unwrap()
    };
    // The first asks for the hardware address, at the kernel's own level.
    send();
    let before = packets(host, level);
    for _ in 0..50 {
        send();
    }
    let until = Instant::now() + PATIENCE;
    while packets(host, level) < before + 50 {
        assert!(Instant::now() < until, "not 50 packets of level {level}");
    }
}

#[test]
#[ignore = "needs the lab: make patched-tests"]
fn packets_for_real_time_processes_wait_at_the_kernels_own_level() {
    let host = shared::host(HostKernel::V6_12RtPatched);
    let taken = || {
        let table = inside(&host, "cat /proc/net/rx_levels");
        let mut lines = table
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        let titles = lines.next().unwrap();
        let column = titles.iter().position(|&title| title == "backlog_enqueued");
        lines
            .filter(|values| values[1] == "1")
            .map(|values| values[column.unwrap()].parse::<u64>().unwrap())
            .sum::<u64>()
    };
    write(&host, "/run/steadyvm.toml", MARKING);
    inside(&host, "steadyvm status --snapshot > /run/before.json");
    let _real_time = serve(&host, "chrt -f 30", 4001);
    let _normal = serve(&host, "env", 4002);
    inside(&host, "steadyvm apply --strict /run/steadyvm.toml");
    assert!(all_hold(&shown(&host)));
    assert_eq!(ranks(&host, "cpumap/"), Vec::<String>::new());
    // What the programs mark is what the kernel takes: neither more nor less.
    for (port, level) in [(4001, 1), (4002, 0)] {
        let before = taken();
        send_fifty(&host, port, level);
        let until = Instant::now() + PATIENCE;
        while taken() != packets(&host, 1) {
            assert!(
                Instant::now() < until,
                "{} of {}",
                taken(),
                packets(&host, 1)
            );
        }
        let more = taken() - before;
        assert_eq!(more >= 50, level == 1, "{more} packets to port {port}");
    }
    undo(&host);
    assert_eq!(inside(&host, "ls /sys/fs/bpf"), "");
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn early_demultiplexing_follows_ports_and_their_priorities() {
    for kernel in [HostKernel::V7_3Rt, HostKernel::V6_12Rt, HostKernel::V6_12] {
        let host = shared::host(kernel);
        write(&host, "/run/steadyvm.toml", DEMUX);
        inside(&host, "steadyvm status --snapshot > /run/before.json");
        let _before = serve(&host, "chrt -f 30", 4001);
        inside(&host, "steadyvm apply --strict /run/steadyvm.toml");
        assert!(all_hold(&shown(&host)));
        assert_eq!(ranks(&host, "cpumap/1/map:").len(), 2);
        // Bound before, bound since, and normal.
        let _since = serve(&host, "chrt -f 40", 4002);
        let normal = serve(&host, "env", 4003);
        assert_eq!(priority(&host, 4001), Some(30));
        assert_eq!(priority(&host, 4002), Some(40));
        // Who is not real-time has no place in the table.
        assert_eq!(priority(&host, 4003), None);

        // Packets go by the level of the process that has the port.
        for (port, level) in [(4002, 1), (4003, 0)] {
            send_fifty(&host, port, level);
        }

        a_clients_ports_are_listed(&host);

        // A change of priority is followed, and the end of the process.
        let of_service = |words: &str| {
            let each = "for p in /proc/[0-9]*; do if grep -qs '0:400[3]' $p/cmdline; then";
            inside(&host, &format!("{each} {words} ${{p#/proc/}}; fi; done"));
        };
        of_service("chrt -f -p 50");
        assert_eq!(priority(&host, 4003), Some(50));
        of_service("kill -9");
        while priority(&host, 4003).is_some() {}
        drop(normal);

        // It outlives the command; undo ends it.
        undo(&host);
        assert_eq!(ranks(&host, "cpumap/"), Vec::<String>::new());
        assert_eq!(inside(&host, "ls /sys/fs/bpf"), "");

        // Killed while it attaches (bpf calls are many; the last ones attach and pin).
        let killed = inside(
            &host,
            "strace -f -o /dev/null -e inject=bpf:signal=KILL:when=60 \
             steadyvm apply --strict /run/steadyvm.toml || echo $?",
        );
        assert!(killed.trim().ends_with("137"), "{killed}");
        undo(&host);
        assert_eq!(inside(&host, "ls /sys/fs/bpf"), "");
    }
}

/// Ports that the kernel chose, of a real-time process that connects and sends.
fn a_clients_ports_are_listed(host: &EmulatedHost) {
    inside(host, "ip link set lo up");
    install(host.connection(), "connect_out.c", "/run/connect_out");
    let argv = ["chrt", "-f", "45", "/run/connect_out"];
    let mut client = host.connection().spawn(&argv).unwrap();
    let line = client.wait_for_line("ready", PATIENCE).unwrap();
    let ports: Vec<(&str, u16)> = line
        .split(' ')
        .filter_map(|word| word.split_once(':'))
        .map(|(protocol, port)| (protocol, port.parse().unwrap()))
        .collect();
    assert_eq!(ports.len(), 6, "{line}");
    let priorities = |shown: &Value| -> Vec<Option<u64>> {
        let each = ports.iter();
        each.map(|(protocol, port)| priority_of(shown, protocol, *port))
            .collect()
    };
    assert_eq!(priorities(&shown(host)), [Some(45); 6], "{ports:?}");
    client.signal(libc::SIGKILL).unwrap();
    let until = Instant::now() + PATIENCE;
    while priorities(&shown(host)) != [None; 6] {
        assert!(Instant::now() < until, "{:?}", shown(host)["demux"]);
    }
    inside(host, "ip link set lo down; ip addr flush dev lo");
}

/// More sockets than the table of early demultiplexing has places, of a user without rights.
#[test]
#[ignore = "needs the lab: make lab-tests"]
fn nobody_fills_the_table_of_early_demultiplexing() {
    let host = shared::host(HostKernel::V6_12Rt);
    write(&host, "/run/steadyvm.toml", DEMUX);
    inside(&host, "steadyvm status --snapshot > /run/before.json");
    inside(
        &host,
        "ip link set lo up; steadyvm apply --strict /run/steadyvm.toml",
    );
    install(host.connection(), "bind_many.c", "/run/bind_many");
    let words = "ulimit -n 70010; exec setpriv --reuid=65534 --clear-groups /run/bind_many 70000";
    let mut nobody = host.connection().spawn(&["bash", "-euc", words]).unwrap();
    nobody.wait_for_line("bound 70000", PATIENCE).unwrap();
    let _since = serve(&host, "chrt -f 40", 4002);
    assert_eq!(priority(&host, 4002), Some(40));
    send_fifty(&host, 4002, 1);
    nobody.signal(libc::SIGKILL).unwrap();
    undo(&host);
    inside(&host, "ip link set lo down; ip addr flush dev lo");
}

/// A veth's NAPI is of the end that receives: of the host's end, for what a container sends.
#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_veth_is_polled_in_a_thread_of_its_class() {
    let host = shared::host(HostKernel::V6_12Rt);
    host.make_namespace("vr", RT, RT.address(11)).unwrap();
    let file = "[[nic]]\nname = \"vr\"\nclass = \"rt\"\n";
    write(&host, "/run/veth.toml", file);
    let apply = || {
        inside(&host, "steadyvm status --snapshot > /run/before.json");
        inside(&host, "steadyvm apply /run/veth.toml 2>&1")
    };
    let said = apply();
    assert!(said.contains("no NAPI of its own"), "{said}");
    undo(&host);

    inside(&host, "ethtool -K vr gro on");
    let said = apply();
    assert!(!said.contains("NAPI of its own"), "{said}");
    assert_eq!(ranks(&host, "napi/vr-"), ["FF 78"]);
    undo(&host);
    assert_ne!(ranks(&host, "napi/vr-"), ["FF 78"]);
    inside(&host, "ip netns delete vr");
}

/// An operator has tuned a veth for throughput: its interrupts' place is taken by a timer. By NAPI since Linux 6.13, else by device.
#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_ranked_interface_leaves_no_packet_to_a_timer() {
    for (kernel, is_by_napi) in [(HostKernel::V6_12Rt, false), (HostKernel::V7_3Rt, true)] {
        let host = shared::host(kernel);
        host.make_namespace("vt", RT, RT.address(12)).unwrap();
        inside(
            &host,
            "ethtool -K vt gro on; cd /sys/class/net/vt; echo 2 > napi_defer_hard_irqs; echo 20000 > gro_flush_timeout",
        );
        write(
            &host,
            "/run/timer.toml",
            "[[nic]]\nname = \"vt\"\nclass = \"rt\"\n",
        );
        let timers = || {
            let text = inside(&host, "steadyvm status --snapshot");
            let all: Value = serde_json::from_str(&text).unwrap();
            let by_napi = all["settings"]["napi-deferral"].as_object().unwrap();
            let by_napi = by_napi.iter().filter(|(name, _)| name.starts_with("vt "));
            let files = inside(
                &host,
                "cd /sys/class/net/vt; cat napi_defer_hard_irqs gro_flush_timeout",
            );
            let by_napi = by_napi.map(|(_, value)| value.as_str().unwrap().to_owned());
            (by_napi.collect::<Vec<_>>(), files)
        };
        let before = timers();
        assert_eq!(before.1, "2\n20000\n");
        assert_eq!(before.0.is_empty(), !is_by_napi, "{before:?}");
        assert!(before.0.iter().all(|it| it == "2 20000 0"), "{before:?}");
        inside(
            &host,
            "steadyvm status --snapshot > /run/before.json; steadyvm apply /run/timer.toml",
        );
        let (by_napi, files) = timers();
        assert!(by_napi.iter().all(|it| it == "0 0 0"), "{by_napi:?}");
        assert_eq!(by_napi.len(), before.0.len());
        let expected = if is_by_napi { "2\n20000\n" } else { "0\n0\n" };
        assert_eq!(files, expected);
        undo(&host);
        assert_eq!(timers(), before);
        inside(&host, "ip netns delete vt");
    }
}

/// Since Linux 6.17 each queue of a card may have a thread. A kernel without PREEMPT_RT has none for interrupts.
#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_queue_is_polled_in_a_thread_where_its_class_has_a_rank() {
    let host = shared::host(HostKernel::V7_3);
    let queues = "queues = [{ queue = 1, class = \"rt\" }]\n";
    let bulk = "[class.bulk]\nthreaded_napi = false\n";
    let file = format!("{bulk}[[nic]]\nname = \"rt\"\nclass = \"bulk\"\n{queues}");
    write(&host, "/run/queues.toml", &file);
    inside(&host, "ethtool -L rt combined 2");
    inside(
        &host,
        "steadyvm status --snapshot > /run/before.json; steadyvm apply --strict /run/queues.toml",
    );
    assert_eq!(ranks(&host, "napi/rt-"), ["FF 78"]);
    assert_eq!(inside(&host, "cat /sys/class/net/rt/threaded"), "0\n");
    assert!(all_hold(&shown(&host)));
    undo(&host);
    assert_eq!(ranks(&host, "napi/rt-"), [] as [String; 0]);
    inside(&host, "ethtool -L rt combined 1");
}
