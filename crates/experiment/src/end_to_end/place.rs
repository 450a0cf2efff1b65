//! One host: T1's two VMs, those that send, and the neighbours that compute.

use super::combination::{Cell, Path};
use super::task::{BUDGET_US, PERIOD_US, STAGE_US, task};
use crate::engine::rounds::station;
use crate::testbed::ask::ask;
use crate::testbed::endpoint::{PATIENCE, Party};
use crate::testbed::mechanism::{Enforcement, Granted};
use crate::testbed::senders::{Packets, Senders};
use crate::testbed::work;
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
const T1_PORT: u16 = 7702;
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
    senders: Senders,
    /// Stopped but for a measurement.
    neighbours: Vec<Process>,
    enforcement: Enforcement,
    /// The length of a stage here, as soon as T1 has run.
    work: Option<u64>,
    /// How often T1 was run.
    runs: u64,
    broken: bool,
}

station!(Place);

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
            ..laboratory.host(&setting.name(), HostKernel::V6_12RtPatched)?
        };
        let mut host = EmulatedHost::boot(&specification)?;
        let party = Party::start(&host, setting, observer)?;
        let anywhere = |port: u16| format!("{}:{port}", Ipv4Addr::UNSPECIFIED);
        let [first, second] = &party.high;
        let stage = second.start(&["steadyvm-lab", "load", "stage", &anywhere(T1_PORT)])?;
        let next = format!("{}:{T1_PORT}", second.address);
        let pipeline = first.start(&["steadyvm-lab", "load", "pipeline", &next])?;
        let senders = Senders::ready(&party)?;
        host.put_in_force(
            setting.method,
            RT,
            &party.options(&host, setting.endpoints, &[])?,
        )?;
        if setting.has_batches {
            let one = ["sysctl", "-qw", "net.core.rtnet_quantum=1 64"];
            host.connection().run(&one)?;
        }
        let vcpus = [
            work::vcpu(&host, first.name())?,
            work::vcpu(&host, second.name())?,
        ];
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
            senders,
            neighbours,
            enforcement: Enforcement::default(),
            work: None,
            runs: 0,
            broken: false,
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
        self.senders.start(cell.level)?;
        let before = self.others()?;
        self.signal_neighbours(libc::SIGCONT)?;
        let ran = self.run(jobs, units)?;
        self.signal_neighbours(libc::SIGSTOP)?;
        let after = self.others()?;
        self.senders.stop(cell.level)?;
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
        let mut words = vec!["cat".to_owned()];
        words.extend(self.senders.counters());
        let text = self.host.connection().text(&words)?;
        Packets::parse(&text).ok_or_else(|| Error::machine("count the others' packets", text))
    }
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
