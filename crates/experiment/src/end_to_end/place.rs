//! One host: T1's two VMs, those that send, and the neighbours that compute.

use super::combination::{Cell, Path};
use super::task::{BUDGET_US, PERIOD_US, STAGE_US, task};
use crate::engine::rounds::Station;
use crate::rtca::endpoint::{PATIENCE, Party};
use crate::vcpu::mechanism::{Enforcement, Granted};
use std::net::Ipv4Addr;
use std::time::Duration;
use steadyvm_lab::agent::Process;
use steadyvm_lab::host::{EmulatedHost, HostSpecification, RT};
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{At, Error, Result};
use steadyvm_load::end_to_end::Ran;

/// How many threads compute beside T1.
const NEIGHBOURS: usize = 8;
const SINK_PORT: u16 = 7701;
const T1_PORT: u16 = 7702;
/// The others' packets: small ones, since their number is what counts.
const PACKET_BYTES: &str = "64";
/// Jobs before the first measurement: what has not run yet, an emulator has to translate.
const WARMUP_JOBS: u64 = 5;
/// A job takes at most so many periods in the mean, however little CPU time its VMs get.
const SLOWEST: u32 = 50;

/// What one measurement gives.
#[derive(Debug)]
pub struct Sample {
    /// T1's jobs.
    pub ran: Ran,
    /// Packets a second that the other VMs got from one another.
    pub others_packets_per_s: f64,
}

/// A booted host.
pub struct Place {
    path: Path,
    host: EmulatedHost,
    party: Party,
    /// The VCPUs of T1's VMs: threads of the host.
    vcpus: [u32; 2],
    /// T1's first and last stage.
    pipeline: Process,
    /// T1's second stage.
    stage: Process,
    /// Each of the others' sender to the next one.
    floods: Vec<Process>,
    /// Stopped but for a measurement.
    neighbours: Vec<Process>,
    enforcement: Enforcement,
    /// The length of a stage here, as soon as T1 has run.
    work: Option<u64>,
    /// How often T1 was run.
    runs: u64,
    broken: bool,
    /// These serve until the host is gone.
    _sinks: Vec<Process>,
}

impl Station for Place {
    fn host(&mut self) -> &mut EmulatedHost {
        &mut self.host
    }

    fn emulator(&self) -> u32 {
        self.host.emulator()
    }

    fn is_broken(&self) -> bool {
        self.broken
    }
}

impl Place {
    /// Boots the host with its VMs and neighbours, puts its path in force, and stops its clock.
    ///
    /// # Errors
    /// One of them does not come up.
    pub fn boot(
        laboratory: &Laboratory,
        path: Path,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<Self> {
        Self::boot_unnamed(laboratory, path, on_cpu, observer).map_err(|mut error| {
            error.what = format!("{path}: {}", error.what);
            error
        })
    }

    fn boot_unnamed(
        laboratory: &Laboratory,
        path: Path,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let setting = path.setting();
        let specification = HostSpecification {
            boot_on_cpu: Some(on_cpu),
            ..laboratory.host(&setting.name(), HostKernel::RtLevels)?
        };
        let mut host = EmulatedHost::boot(&specification)?;
        let party = Party::start(&host, setting, observer)?;
        let anywhere = |port: u16| format!("{}:{port}", Ipv4Addr::UNSPECIFIED);
        let [first, second] = &party.high;
        let stage = second.start(&["steadyvm", "load", "stage", &anywhere(T1_PORT)])?;
        let next = format!("{}:{T1_PORT}", second.address);
        let pipeline = first.start(&["steadyvm", "load", "pipeline", &next])?;
        let (mut sinks, mut floods) = (Vec::new(), Vec::new());
        for (number, endpoint) in party.low.iter().enumerate() {
            let next = &party.low[(number + 1) % party.low.len()];
            let sink = format!("{}:{SINK_PORT}", next.address);
            sinks.push(endpoint.start(&["steadyvm", "load", "sink", &anywhere(SINK_PORT)])?);
            floods.push(endpoint.start(&["steadyvm", "load", "flood", &sink, PACKET_BYTES])?);
        }
        host.put_in_force(
            setting.method,
            RT,
            &party.options(&host, setting.endpoints, &[])?,
        )?;
        if setting.has_batches {
            let one = ["sysctl", "-qw", "net.core.rtnet_quantum=1 64"];
            host.connection().run(&one)?;
        }
        let vcpus = [vcpu(&host, first.name())?, vcpu(&host, second.name())?];
        let neighbours = (0..NEIGHBOURS).map(|_| neighbour(&host));
        let neighbours = neighbours.collect::<Result<_>>()?;
        host.pause()?;
        host.spread_processors()?;
        Ok(Self {
            path,
            host,
            party,
            vcpus,
            pipeline,
            stage,
            floods,
            neighbours,
            enforcement: Enforcement::default(),
            work: None,
            runs: 0,
            broken: false,
            _sinks: sinks,
        })
    }

    /// Lets the host run for one cell. `work`: the length of a stage, found by the first host that runs.
    ///
    /// # Errors
    /// One of its machines died, or the scheduler was ended: the place is broken from then on.
    pub fn measure(&mut self, cell: Cell, jobs: u64, work: &mut Option<u64>) -> Result<Sample> {
        let measured = self.resume_and_measure(cell, jobs, work);
        self.broken = measured.is_err();
        measured.map_err(|error| {
            let mut error = self.host.with_state(error, self.party.machines());
            error.what = format!("{}, {cell}: {}", self.path, error.what);
            error
        })
    }

    fn resume_and_measure(
        &mut self,
        cell: Cell,
        jobs: u64,
        work: &mut Option<u64>,
    ) -> Result<Sample> {
        self.host.resume()?;
        let units = match *work {
            Some(units) => units,
            None => *work.insert(self.calibrate()?),
        };
        if self.work.is_none() {
            self.warm_up(units)?;
        }
        let [first, second] = self.vcpus;
        let granted = [("high1", first), ("high2", second)].map(|(name, tid)| Granted {
            name,
            tid,
            budget_us: BUDGET_US,
            period_us: PERIOD_US,
        });
        self.enforcement
            .apply(self.host.connection(), cell.mechanism, &granted)?;
        let senders = cell.level.senders();
        for flood in &mut self.floods[..senders] {
            ask(flood, "start", PATIENCE)?;
        }
        let before = self.others()?;
        self.signal_neighbours(libc::SIGCONT)?;
        let ran = self.run(jobs, units)?;
        self.signal_neighbours(libc::SIGSTOP)?;
        let after = self.others()?;
        for flood in &mut self.floods[..senders] {
            ask(flood, "stop", PATIENCE)?;
        }
        Enforcement::release(self.host.connection(), &granted)?;
        self.host.pause()?;
        Ok(Sample {
            ran,
            others_packets_per_s: after.per_s_since(&before),
        })
    }

    /// The units of work of a stage. Both VMs at once: where this machine's CPUs share a core, they are slower together.
    fn calibrate(&mut self) -> Result<u64> {
        let request = format!("calibrate {STAGE_US}\n");
        let mut both = [&mut self.pipeline, &mut self.stage];
        for it in &both {
            it.input(request.as_bytes())?;
        }
        let mut least = u64::MAX;
        for it in &mut both {
            let answer = it.wait_for_line("", PATIENCE)?;
            let units: u64 = answer.trim().parse().doing("calibrate T1's stages")?;
            least = least.min(units);
        }
        Ok(least)
    }

    /// T1 alone, unmeasured: that it runs at all, too.
    fn warm_up(&mut self, units: u64) -> Result<()> {
        ask(&mut self.stage, &format!("work {units}"), PATIENCE)?;
        let ran = self.run(WARMUP_JOBS, units)?;
        if ran.lost > 0 {
            let why = format!(
                "{} of {WARMUP_JOBS} jobs were lost without any load",
                ran.lost
            );
            return Err(Error::machine("run T1", why));
        }
        self.work = Some(units);
        Ok(())
    }

    fn run(&mut self, jobs: u64, units: u64) -> Result<Ran> {
        self.runs += 1;
        let task = task(jobs, units, self.runs);
        let request = serde_json::to_string(&task).doing("describe T1")?;
        let longest = Duration::from_micros(PERIOD_US * jobs) * SLOWEST;
        let answer = ask(
            &mut self.pipeline,
            &format!("run {request}"),
            PATIENCE + longest,
        )?;
        serde_json::from_str(&answer).doing("read when T1's jobs were done")
    }

    fn signal_neighbours(&self, signal: i32) -> Result<()> {
        self.neighbours.iter().try_for_each(|it| it.signal(signal))
    }

    fn others(&self) -> Result<Packets> {
        let devices = self.party.low_devices();
        let files = devices.map(|device| format!("/sys/class/net/{device}/statistics/tx_packets"));
        let mut words = vec!["cat".to_owned(), "/proc/uptime".to_owned()];
        words.extend(files);
        let text = self.host.connection().text(&words)?;
        Packets::parse(&text).ok_or_else(|| Error::machine("count the others' packets", text))
    }
}

/// Packets that the others' devices handed to them, and when.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Packets {
    uptime_s: f64,
    count: u64,
}

impl Packets {
    /// /proc/uptime, and a line a device.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let uptime_s = lines.next()?.split_whitespace().next()?.parse().ok()?;
        let counts: Option<Vec<u64>> = lines.map(|line| line.trim().parse().ok()).collect();
        let count = counts?.into_iter().try_fold(0, u64::checked_add)?;
        Some(Self { uptime_s, count })
    }

    /// 0 if no time has passed.
    fn per_s_since(&self, earlier: &Self) -> f64 {
        let passed_s = self.uptime_s - earlier.uptime_s;
        if passed_s > 0.0 {
            self.count.saturating_sub(earlier.count) as f64 / passed_s
        } else {
            0.0
        }
    }
}

/// The thread of a VM's only VCPU.
fn vcpu(host: &EmulatedHost, name: &str) -> Result<u32> {
    let monitor = host.guest_pid(name)?;
    let script = format!("grep -lx 'CPU 0/KVM' /proc/{monitor}/task/*/comm");
    let text = host.connection().text(&["sh", "-euc", &script])?;
    let thread = text.trim().split('/').nth(4).and_then(|it| it.parse().ok());
    thread.ok_or_else(|| Error::machine(format!("find the VCPU of {name}"), text))
}

/// A normal thread that computes whenever it is not stopped.
fn neighbour(host: &EmulatedHost) -> Result<Process> {
    let script = "echo computes; while :; do :; done";
    let words = ["chrt", "-o", "0", "bash", "-c", script];
    let mut process = host.connection().spawn(&words)?;
    process.wait_for_line("computes", PATIENCE)?;
    process.signal(libc::SIGSTOP)?;
    Ok(process)
}

/// Writes a line to a process of `steadyvm load` and gives the line that it answers.
fn ask(process: &mut Process, request: &str, patience: Duration) -> Result<String> {
    process.input(format!("{request}\n").as_bytes())?;
    process.wait_for_line("", patience)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_summed_and_their_rate_is_a_seconds() {
        let before = Packets::parse("100.00 1.0\n5\n7\n0\n").unwrap();
        let after = Packets::parse("102.50 1.0\n255\n257\n0\n").unwrap();
        assert!((after.per_s_since(&before) - 200.0).abs() < 1e-9);
        assert!(before.per_s_since(&before).abs() < f64::EPSILON);
        for text in ["", "x\n1", "1.0 1\nx", &format!("1.0\n{}\n1", u64::MAX)] {
            assert_eq!(Packets::parse(text), None, "{text}");
        }
    }
}
