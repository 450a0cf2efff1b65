//! Levels of the receive path (kernel/patches/6.12) in the emulated host: what is refused, what
//! must survive traffic. They need root and what `steadyvm-lab prepare` builds, and take minutes:
//! `make lab-tests` runs them, one at a time.

use crate::support::kernel_log;
use crate::support::programs::store;
use crate::support::shared::{self, SharedHost};
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use steadyvm_lab::child::{self, Child};
use steadyvm_lab::host::{BULK, Network, RT};
use steadyvm_lab::laboratory::HostKernel;
use steadyvm_load::netrt::{self, ClientOptions, ClientRun, End, Intervals};

mod devices;
mod packets;
mod rt_level;

const PATIENCE: Duration = Duration::from_secs(60);
const NETRT_PORT: u16 = 7700;

/// The kernel with levels, or one of those that check themselves: `make debug-tests`.
fn kernel() -> HostKernel {
    let named = std::env::var("STEADYVM_TEST_KERNEL");
    match named.as_deref().map(str::parse::<HostKernel>) {
        Err(_) => HostKernel::V6_12RtPatched,
        Ok(Ok(kernel)) if kernel.row().has_levels => kernel,
        Ok(_) => panic!("STEADYVM_TEST_KERNEL: there is no kernel {named:?} with levels"),
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
            HostKernel::V6_12PatchedDebug => " threadirqs",
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
        self.requests_apart(address, count, Intervals::default())
    }

    fn requests_apart(&self, address: Ipv4Addr, count: u64, intervals: Intervals) -> ClientRun {
        let options = ClientOptions {
            seed: 1,
            intervals,
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
        if kernel() != HostKernel::V6_12RtPatched {
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
                if kernel() != HostKernel::V6_12RtPatched {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        });
        work();
        stop.store(true, Ordering::Relaxed);
    });
}

/// Puts support/mark.bpf.c on the host, as /run/mark.o.
fn store_marking_program(host: &Host) {
    let object = host.place.path().join("mark.o");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/support/mark.bpf.c");
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
