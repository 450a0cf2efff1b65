//! Levels of the receive path (kernel/patches/6.12) in the emulated host: what is refused, what
//! must survive traffic. They need root and what `steadyvm lab prepare` builds, and take minutes:
//! `make lab-tests` runs them, one at a time.

use crate::kernel_log;
use crate::programs::{install, store};
use crate::shared::{self, SharedHost};
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use steadyvm_lab::child::{self, Child};
use steadyvm_lab::host::{BULK, Network, RT};
use steadyvm_lab::laboratory::HostKernel;
use steadyvm_load::netrt::{self, ClientOptions, ClientRun, End};

const PATIENCE: Duration = Duration::from_secs(60);
const NETRT_PORT: u16 = 7700;

/// The kernel with levels, or one of those that check themselves: `make debug-tests`.
fn kernel() -> HostKernel {
    match std::env::var("STEADYVM_TEST_KERNEL").as_deref() {
        Err(_) | Ok("rt-levels") => HostKernel::RtLevels,
        Ok("rt-levels-debug") => HostKernel::RtLevelsDebug,
        Ok("levels-debug") => HostKernel::LevelsDebug,
        Ok(other) => panic!("STEADYVM_TEST_KERNEL: there is no kernel {other} with levels"),
    }
}

/// A host whose kernel has levels, the NetRT service and iperf3 servers in it.
struct Host {
    shared: SharedHost,
    /// What `/proc/net/rx_levels` said at the beginning.
    counted: String,
    /// For what is built for it.
    place: tempfile::TempDir,
}

impl Host {
    fn boot() -> Self {
        // Without PREEMPT_RT interrupts have threads, whose priorities are levels, only if asked.
        let words = match kernel() {
            HostKernel::LevelsDebug => " threadirqs",
            _ => "",
        };
        let host = shared::host_with_words(kernel(), words);
        Self {
            counted: (host.connection().text(&["cat", "/proc/net/rx_levels"])).unwrap(),
            place: tempfile::tempdir().unwrap(),
            shared: host,
        }
    }

    /// Runs shell words in the host; they must succeed.
    fn run(&self, words: &str) -> String {
        let argv = ["timeout", "200", "sh", "-euc", words];
        self.shared.connection().text(&argv).unwrap()
    }

    /// Starts the NetRT service above everything but the RT NIC's interrupts, which the RT level
    /// is for.
    fn start_netrt(&self) {
        let words = [
            "chrt",
            "-f",
            "70",
            "steadyvm",
            "netrt",
            "serve",
            "0.0.0.0:7700",
        ];
        let mut service = self.shared.connection().spawn(&words).unwrap();
        service.wait_for_line("ready", PATIENCE).unwrap();
        // It serves until the host is gone.
        std::mem::forget(service);
        self.run(
            "for thread in $(pgrep 'irq/.*-rt-'); do chrt -f -p 80 $thread; done; \
             sysctl -qw net.core.rtnet_prio=70",
        );
    }

    /// Starts an iperf3 client outside against a server in the host.
    fn start_stream(&self, network: Network, port: u16, options: &[&str]) -> Stream {
        let port = port.to_string();
        let words = ["iperf3", "--forceflush", "-s", "-1", "-p", &port];
        let mut server = self.shared.connection().spawn(&words).unwrap();
        server.wait_for_line("listening", PATIENCE).unwrap();
        let mut command = Command::new("iperf3");
        command
            .args(["-c", &network.host().to_string(), "-p", &port])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        self.shared.outside().hold(&mut command).unwrap();
        let client = child::spawn(command).unwrap();
        server
            .wait_for_line("Accepted connection", PATIENCE)
            .unwrap();
        Stream { client, server }
    }

    /// Sends this many requests from outside, each of which must be answered.
    fn answers_all(&self, count: u64) {
        assert_all_answered(&self.requests(count));
    }

    /// The same after a flood. What is left of it stands in the emulated card and in the queue before it, which drop
    /// packets while they are full: one answer shows that they are empty.
    fn answers_all_again(&self, count: u64) {
        let until = Instant::now() + PATIENCE;
        while self.requests(1).counters.answered == 0 {
            assert!(Instant::now() < until, "no answer after the flood");
        }
        self.answers_all(count);
    }

    /// Requests from outside; all of them answered or lost.
    fn requests(&self, count: u64) -> ClientRun {
        self.requests_to(RT.host(), count)
    }

    /// The same of a service at this address.
    fn requests_to(&self, address: Ipv4Addr, count: u64) -> ClientRun {
        let options = ClientOptions {
            seed: 1,
            warmup: 20,
            end: End::Requests(count),
            timeout: Duration::from_secs(5),
            ..ClientOptions::default()
        };
        self.shared
            .outside()
            .enter(|| {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                socket.connect((address, NETRT_PORT)).unwrap();
                let never = AtomicBool::new(false);
                Ok(netrt::run(&socket, &options, &never, &mut |_| {}).unwrap())
            })
            .unwrap()
    }

    /// Puts RCU's threads above those of the bulk card (50) and a runaway task (60), as they must stand
    /// where such threads may keep a CPU for seconds: else the kernel reports a stall.
    fn raise_rcu(&self) {
        self.rank_rcu(65);
    }

    fn rank_rcu(&self, rank: u32) {
        self.run(&format!(
            "for thread in $(pgrep '^rcu'); do chrt -f -p {rank} $thread; done"
        ));
    }

    /// Keeps the CPU of the cards' interrupts busy at this rank, until it is dropped.
    fn compute(&self, rank: u32) -> Computing<'_> {
        let words =
            format!("echo computing; exec taskset -c 0 chrt -f {rank} sh -c 'while :; do :; done'");
        let mut task = self
            .shared
            .connection()
            .spawn(&["sh", "-c", &words])
            .unwrap();
        task.wait_for_line("computing", PATIENCE).unwrap();
        Computing {
            task: Some(task),
            _host: self,
        }
    }

    /// What was counted in this test in one column of `/proc/net/rx_levels` at this level.
    fn counter(&self, column: &str, level: u32) -> u64 {
        let now = self.run("cat /proc/net/rx_levels");
        sum(&now, column, level) - sum(&self.counted, column, level)
    }

    /// Nothing in the kernel's log that should not be there; a kernel that checks itself still does.
    fn check_log(&self) {
        if let Some(report) = kernel_log::reports(&self.run("dmesg")) {
            panic!("{report}");
        }
        if kernel() != HostKernel::RtLevels {
            let stats = self.run("cat /proc/lockdep_stats");
            assert!(kernel_log::lockdep_is_on(&stats), "{stats}");
            let log = self.run("dmesg | grep -c 'KernelAddressSanitizer initialized'");
            assert_eq!(log.trim(), "1");
        }
    }
}

/// The sum over the CPUs of one column of `/proc/net/rx_levels` at this level.
fn sum(table: &str, column: &str, level: u32) -> u64 {
    let mut lines = table.lines().map(|line| line.split(' '));
    let index = lines.next().unwrap().position(|title| title == column);
    let level = level.to_string();
    lines
        .map(Iterator::collect::<Vec<_>>)
        .filter(|values| values[1] == level)
        .map(|values| values[index.unwrap()].parse::<u64>().unwrap())
        .sum()
}

/// A task that never sleeps.
struct Computing<'h> {
    task: Option<steadyvm_lab::agent::Process>,
    _host: &'h Host,
}

impl Drop for Computing<'_> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.signal(libc::SIGKILL).unwrap();
            let _ = task.finish(PATIENCE);
        }
    }
}

struct Stream {
    client: Child,
    server: steadyvm_lab::agent::Process,
}

impl Stream {
    /// What the server said, when the client has ended well.
    fn finish(mut self) -> String {
        let mut said = String::new();
        let streams = self.client.streams();
        let (mut output, mut error) = (streams.stdout.take(), streams.stderr.take());
        output.as_mut().unwrap().read_to_string(&mut said).unwrap();
        error.as_mut().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.client.wait().unwrap().success(), "{said}");
        self.server
            .finish(std::time::Duration::from_secs(120))
            .unwrap()
            .text()
    }
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
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
#[ignore = "needs the lab: make lab-tests"]
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
#[ignore = "needs the lab: make lab-tests"]
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
#[ignore = "needs the lab: make lab-tests"]
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
#[ignore = "needs the lab: make lab-tests"]
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
    assert_all_answered(&host.requests_to(address, 300));
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

#[test]
#[ignore = "needs the lab: make lab-tests"]
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

/// What a VCPU that computes and a flood at the RT NIC leave to RCU, timers and the disk.
#[test]
#[ignore = "needs the lab: make lab-tests"]
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

#[test]
#[ignore = "needs the lab: make lab-tests"]
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
#[ignore = "needs the lab: make lab-tests"]
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
    if kernel() == HostKernel::RtLevels {
        assert!(merged > 0, "no packet has been merged of two polls");
    }
    host.check_log();
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
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

/// Puts support/mark.bpf.c on the host, as /run/mark.o.
fn store_marking_program(host: &Host) {
    let object = host.place.path().join("mark.o");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/mark.bpf.c");
    let compiled = Command::new("clang")
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-Wall", "-Werror"])
        .args(["-I/usr/include/x86_64-linux-gnu", "-c", source, "-o"])
        .arg(&object)
        .status();
    assert!(compiled.unwrap().success());
    store(
        host.shared.connection(),
        &std::fs::read(object).unwrap(),
        "/run/mark.o",
    );
}

/// UDP packets to the bulk card, for ports that nobody has.
struct Datagrams<'h> {
    host: &'h Host,
    socket: UdpSocket,
}

impl<'h> Datagrams<'h> {
    fn to(host: &'h Host) -> Self {
        let bind = || Ok(UdpSocket::bind("0.0.0.0:0").unwrap());
        let socket = host.shared.outside().enter(bind).unwrap();
        Self { host, socket }
    }

    /// A card that was stopped and started, as XDP does to igb, loses what comes before it is ready.
    fn wait_for_card(&self) {
        let until = Instant::now() + PATIENCE;
        let connect = || {
            Ok(TcpStream::connect_timeout(
                &(BULK.host(), 9).into(),
                PATIENCE,
            ))
        };
        loop {
            match self.host.shared.outside().enter(connect).unwrap() {
                // It answers, and nobody has that port.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => return,
                other => assert!(Instant::now() < until, "{other:?}"),
            }
        }
    }

    fn arrived(&self) -> u64 {
        let table = self.host.run("grep ^Udp: /proc/net/snmp | tail -1");
        // Udp: InDatagrams NoPorts
        table.split(' ').nth(2).unwrap().parse().unwrap()
    }

    /// Sends so many, no more at once than the card has room for, and waits until each has arrived.
    fn send(&self, port: u16, count: u64) {
        for sent in (0..count).step_by(25) {
            let (burst, before) = (25.min(count - sent), self.arrived());
            for _ in 0..burst {
                self.socket.send_to(b"x", (BULK.host(), port)).unwrap();
            }
            let until = Instant::now() + PATIENCE;
            while self.arrived() < before + burst {
                assert!(Instant::now() < until, "{burst} packets to {port} are lost");
            }
        }
    }
}

/// Fails with the numbers of the requests that nobody answered: a burst of them has another cause than a few.
fn assert_all_answered(run: &ClientRun) {
    let mut expected = run.samples.first().map_or(0, |sample| sample.sequence);
    let mut missing = Vec::new();
    for sample in &run.samples {
        missing.extend(expected..sample.sequence);
        expected = sample.sequence + 1;
    }
    assert!(
        run.counters.lost == 0 && run.counters.answered == run.counters.requests,
        "{:?}; the first answer is to request {:?}, none came to {missing:?}",
        run.counters,
        run.samples.first().map(|sample| sample.sequence),
    );
}

/// Sends packets of one line end to this address, one after the other, while `work` is done.
fn flood_while(socket: &UdpSocket, to: SocketAddr, work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // It ends where the work fails, too.
            let until = Instant::now() + 3 * PATIENCE;
            while !stop.load(Ordering::Relaxed) && Instant::now() < until {
                // While a card is down nobody answers for its address.
                let _ = socket.send_to(b"\n", to);
                // Some hundred packets a second are all that a kernel that checks itself has time for.
                if kernel() != HostKernel::RtLevels {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        });
        work();
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
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

#[test]
#[ignore = "needs the lab: make lab-tests"]
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
#[ignore = "needs the lab: make lab-tests"]
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
#[ignore = "needs the lab: make lab-tests"]
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
#[ignore = "needs the lab: make lab-tests"]
fn a_poll_that_a_runaway_real_time_task_preempts_gets_its_share() {
    if kernel() == HostKernel::LevelsDebug {
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
