//! One host of the experiment with its endpoints and their loads.

use super::configuration::{Configuration, LARGEST_BATCH};
use crate::engine::rounds::{or_broken, station};
use crate::rtca::{Cost, LevelData, StreamData};
use crate::testbed::ask::ask;
use crate::testbed::endpoint::{PATIENCE, Party};
use crate::testbed::senders::{Packets, Senders};
use crate::testbed::{CpuTimes, Endpoints, Interference, Setting};
use std::net::Ipv4Addr;
use std::time::Duration;
use steadyvm_lab::agent::{Connection, Process};
use steadyvm_lab::host::{EmulatedHost, HostSpecification, RT};
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{At, Error, Result};
use steadyvm_load::netrt::{ClientOptions, ClientRun, End};
use steadyvm_load::netstream::{self, ClientCommand, ServerCommand};

const NETRT_PORT: u16 = 7700;
/// Requests before the counted ones, in which the others come to speed, too.
const WARMUP_REQUESTS: u64 = 50;
/// A reply that takes longer is lost.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How much load a measurement has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// Seed of the requests' schedule.
    pub seed: u64,
    /// Counted requests.
    pub samples: u64,
    /// How long the stream flows, in seconds.
    pub stream_s: u32,
}

/// One host.
pub(super) struct Place {
    /// What is measured next.
    pub configuration: Configuration,
    setting: Setting,
    host: EmulatedHost,
    party: Party,
    /// Sends requests from the first of the two to the second, which answers them.
    client: Process,
    senders: Senders,
    /// The batch in force, if this host has batches.
    batch: u32,
    broken: bool,
    /// These serve until the host is gone.
    _servers: Vec<Process>,
}

station!(Place);

impl Place {
    /// Boots a host with its endpoints, puts the method in force, and stops the host's clock.
    pub fn boot(
        laboratory: &Laboratory,
        setting: Setting,
        configuration: Configuration,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let specification = HostSpecification {
            boot_on_cpu: Some(on_cpu),
            ..laboratory.host(&setting.name(), laboratory.kernel_of(setting.method))?
        };
        let mut host = EmulatedHost::boot(&specification)?;
        let party = Party::start(&host, setting, observer)?;
        let anywhere = |port: u16| format!("{}:{port}", Ipv4Addr::UNSPECIFIED);
        let [first, second] = &party.high;
        let server = second.start(&["steadyvm", "netrt", "serve", &anywhere(NETRT_PORT)])?;
        let service = format!("{}:{NETRT_PORT}", second.address);
        let client = first.start(&["steadyvm-lab", "load", "requests", &service])?;
        let named = [server.pid(), client.pid()];
        let mut servers = vec![server];
        let senders = Senders::ready(&party)?;
        let options = party.options(&host, setting.endpoints, &named)?;
        host.put_in_force(setting.method, RT, &options)?;
        servers.extend(keep_awake(host.connection())?);
        host.pause()?;
        host.spread_processors()?;
        Ok(Self {
            configuration,
            setting,
            host,
            party,
            client,
            senders,
            // A tap's own: see `set_batch`.
            batch: 1,
            broken: false,
            _servers: servers,
        })
    }

    /// Lets the host run for one level of interference.
    ///
    /// # Errors
    /// One of its machines died: the place is broken from then on.
    pub fn measure(&mut self, level: Interference, load: &Load) -> Result<LevelData> {
        let measured = self.resume_and_measure(level, load);
        let what = format!("{}, {level}", self.configuration);
        let machines = self.party.machines();
        or_broken(measured, (&self.host, &mut self.broken), what, machines)
    }

    fn resume_and_measure(&mut self, level: Interference, load: &Load) -> Result<LevelData> {
        self.host.resume()?;
        if let Some(batch) = self.configuration.batch {
            self.set_batch(batch)?;
        }
        self.senders.start(level)?;
        let data = self.measure_flooded(load)?;
        self.senders.stop(level)?;
        self.host.pause()?;
        Ok(data)
    }

    /// Bounds what is taken of one endpoint at a time: by the level's quantum where the kernel has levels,
    /// and by the taps of the others.
    fn set_batch(&mut self, batch: u32) -> Result<()> {
        let inside = self.host.connection();
        if self.setting.method.has_levels() {
            let quantum = format!("net.core.rtnet_quantum={batch} {LARGEST_BATCH}");
            inside.run(&["sysctl", "-qw", &quantum])?;
        }
        if batch == self.batch {
            return Ok(());
        }
        self.batch = batch;
        if self.setting.endpoints == Endpoints::Vms {
            // A tap gathers so many packets and handles them with the next one.
            let gathered = (batch - 1).to_string();
            for device in self.party.low_devices() {
                inside.run(&["ethtool", "-C", device, "rx-frames", &gathered])?;
            }
        }
        Ok(())
    }

    fn measure_flooded(&mut self, load: &Load) -> Result<LevelData> {
        let before = self.counters()?;
        let round_trips = self.ask_for_requests(load)?;
        let between = self.counters()?;
        let mbit_per_s = self.stream(load.stream_s)?;
        let after = self.counters()?;
        Ok(LevelData {
            round_trips,
            round_trips_cost: between.since(&before),
            stream: StreamData {
                mbit_per_s: vec![mbit_per_s],
                cost: after.since(&between),
            },
        })
    }

    fn ask_for_requests(&mut self, load: &Load) -> Result<ClientRun> {
        let options = ClientOptions {
            seed: load.seed,
            warmup: WARMUP_REQUESTS,
            end: End::Requests(load.samples),
            timeout: TIMEOUT,
            ..ClientOptions::default()
        };
        let request = serde_json::to_string(&options).doing("describe the requests")?;
        let longest = options.intervals.longest * (WARMUP_REQUESTS + load.samples) as u32;
        let answer = ask(&mut self.client, &request, PATIENCE + longest)?;
        serde_json::from_str(&answer).doing("read the round trips")
    }

    /// What iperf3 carries from the first of the two to the second.
    fn stream(&self, stream_s: u32) -> Result<f64> {
        let [first, second] = &self.party.high;
        let one_connection = ServerCommand {
            one_off: true,
            ..ServerCommand::default()
        };
        let mut server = second.spawn(&words(
            &["iperf3", "--forceflush"],
            &one_connection.arguments(),
        ))?;
        server.wait_for_line("listening", PATIENCE)?;
        let stream = ClientCommand {
            // As in the paper: from the first byte on.
            omit_s: 0,
            ..ClientCommand::to_server(second.address.into(), stream_s)
        };
        let client = first.spawn(&words(&["iperf3"], &stream.arguments()))?;
        let patience = PATIENCE + Duration::from_secs(stream_s.into());
        let said = client.finish(patience)?.text();
        // The next stream's server wants the same port.
        server.finish(PATIENCE)?;
        let carried = netstream::parse(&said).doing("read what the stream carried")?;
        Ok(carried.mbit_per_s)
    }

    fn counters(&self) -> Result<Counters> {
        let counters = self.senders.counters().join(" ");
        let script = format!("head -n1 /proc/stat; cat {counters}");
        Counters::read(self.host.connection(), &script)
    }
}

/// Computes on every CPU whenever nothing else does. An emulated CPU that halts wakes up late, so the
/// host that has least to do would be the slowest.
fn keep_awake(host: &Connection) -> Result<Vec<Process>> {
    let cpus = host.text(&["nproc"])?;
    let cpus: usize = cpus.trim().parse().doing("count the host's CPUs")?;
    let on = |cpu: usize| {
        let cpu = cpu.to_string();
        let before = ["nice", "-n", "19", "chrt", "-i", "0", "taskset", "-c", &cpu];
        let endless = ["sh", "-c", "while :; do :; done"];
        host.spawn(&[&before[..], &endless].concat())
    };
    (0..cpus).map(on).collect()
}

// The arguments are owned by their command.
fn words<'a>(program: &[&'a str], arguments: &'a [String]) -> Vec<&'a str> {
    let arguments = arguments.iter().map(String::as_str);
    program.iter().copied().chain(arguments).collect()
}

/// What a host has counted.
struct Counters {
    cpu: CpuTimes,
    others: Packets,
}

impl Counters {
    fn read(host: &Connection, script: &str) -> Result<Self> {
        let text = host.text(&["sh", "-euc", script])?;
        Self::parse(&text).ok_or_else(|| Error::machine("read the host's counters", text))
    }

    /// The CPU line of /proc/stat, and what the others got.
    fn parse(text: &str) -> Option<Self> {
        let (cpu, others) = text.split_once('\n')?;
        Some(Self {
            cpu: CpuTimes::parse(&with_nice_as_idle(cpu))?,
            others: Packets::parse(others)?,
        })
    }

    fn since(&self, earlier: &Self) -> Cost {
        Cost {
            cpu_busy_fraction: self.cpu.busy_fraction_since(&earlier.cpu),
            others_packets_per_s: self.others.per_s_since(&earlier.others),
        }
    }
}

/// "cpu user nice system idle …" with the nice time, which is that of [`keep_awake`], among the idle.
fn with_nice_as_idle(line: &str) -> String {
    let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let number = |word: Option<&String>| word.and_then(|word| word.parse::<u64>().ok());
    if let (Some(nice), Some(idle)) = (number(words.get(2)), number(words.get(4))) {
        "0".clone_into(&mut words[2]);
        words[4] = (nice + idle).to_string();
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_and_their_rates_are_a_seconds() {
        let before = Counters::parse("cpu  10 5 0 95 0 0 0 0\n100.00 1.0\n5\n7\n0\n").unwrap();
        let after = Counters::parse("cpu  40 12 0 98 0 0 0 0\n102.50 1.0\n255\n257\n0\n").unwrap();
        let cost = after.since(&before);
        assert!((cost.others_packets_per_s - 200.0).abs() < 1e-9);
        assert!((cost.cpu_busy_fraction - 0.75).abs() < 1e-9);
        assert!(before.since(&before).others_packets_per_s.abs() < f64::EPSILON);
    }

    #[test]
    fn what_are_no_counters_is_refused() {
        for text in [
            "",
            "cpu 1 2 3 4 5 6 7 8",
            "cpu 1 2 3 4 5 6 7 8\nx\n1",
            "cpu 1 2 3 4 5 6 7 8\n1.0 1\nx",
        ] {
            assert!(Counters::parse(text).is_none(), "{text}");
        }
    }
}
