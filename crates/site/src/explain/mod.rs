//! Where a packet's time goes on this host: recorded by the kernel's own tracepoints, compared with a plan's bound.
//!
//! - `recorded`: a recording in a file, explained anywhere
//! - `terms`: a bound, term by term, beside what was measured; pure

mod recorded;
mod terms;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use steadyvm_analysis::plan::{self, ServiceReport};
use steadyvm_host::discover::{self, Processes};
use steadyvm_host::{HostError, Machine, Thread, printable};
use steadyvm_trace::receive_path::{Findings, Legs, Setup, VmThreads, Wanted};
use steadyvm_trace::{Name, Recorder, socket, softirq_lock_offset};

use crate::calibration;
use crate::error::Result;
use crate::request;

pub use recorded::Recorded;
pub use terms::{Allowed, Comparison, Part, Term, compare};

/// The longest recording.
pub const MOST_SECONDS: u64 = 600;
const DEFAULT_SECONDS: u64 = 10;

/// How often the buffers are emptied while the host is measured.
const FETCH_INTERVAL: Duration = Duration::from_millis(200);

/// What is to be recorded.
#[derive(Debug, Clone)]
pub struct Wish {
    /// The packets that this network interface receives.
    pub device: Option<String>,
    /// The packets that wake the process that listens on this port.
    pub port: Option<u16>,
    /// How long.
    pub seconds: Option<u64>,
    /// Until about so many packets were seen.
    pub packets: Option<u64>,
    /// Memory for each CPU's events.
    pub buffer_mib: u64,
}

impl Wish {
    /// How long it is recorded at most.
    pub fn seconds(&self) -> u64 {
        let limit = self.packets.map(|_| MOST_SECONDS);
        self.seconds.or(limit).unwrap_or(DEFAULT_SECONDS)
    }
}

/// The service of a plan file; `is_here`: CPUs and costs that it leaves out are this host's, as in `plan`. A recording may be of
/// another one.
///
/// # Errors
/// What is no plan, or has no such service.
pub fn planned(file: &Path, name: Option<&str>, is_here: bool) -> Result<ServiceReport, HostError> {
    let bad = |why: String| HostError::BadInput {
        what: format!("{}: {why}", file.display()),
        fix: "try it with `steadyvm plan`".into(),
    };
    let text = fs::read_to_string(file).map_err(|error| bad(format!("cannot be read: {error}")))?;
    let request = if is_here {
        let measured = calibration::measured(&calibration::of_this_host());
        request::of_this_host(file, &text, &measured).map(|(request, _)| request)
    } else {
        request::of_another_host(file, &text)
    };
    let report = request.and_then(|request| plan::run(&request));
    let report = report.map_err(|error| bad(error.to_string()))?;
    terms::service(&report, name).cloned().map_err(bad)
}

/// What was measured of the service's VM.
///
/// # Errors
/// That VM does not run here.
pub fn legs(
    findings: &Findings,
    setup: &Setup,
    service: &ServiceReport,
) -> Result<Legs, HostError> {
    Legs::of(findings, setup, &service.vm).ok_or_else(|| {
        let known: Vec<&str> = setup.vms.iter().map(|vm| vm.name.as_str()).collect();
        HostError::BadInput {
            what: format!(
                "service \"{}\" is in VM \"{}\", and no such VM runs here (running: {})",
                service.name,
                service.vm,
                if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                }
            ),
            fix: "start it, or give it the plan's name".into(),
        }
    })
}

/// Records this host until the time is over, enough packets were seen, or `stop` is told. `begun` is called as it begins.
///
/// # Errors
/// A device or a port that is not there, a VM of the service that does not run, no right to trace.
pub fn record(
    wish: &Wish,
    service: Option<&ServiceReport>,
    stop: &Receiver<()>,
    begun: impl FnOnce(),
) -> Result<Recorded> {
    let setup = setup(wish)?;
    if let Some(service) = service {
        // Said before anything is recorded.
        legs(&Findings::default(), &setup, service)?;
    }
    let cpus: Vec<usize> = Machine::real().online()?.iter().collect();
    let buffer_bytes = (wish.buffer_mib << 20) as usize;
    let mut recorder = Recorder::open(&cpus, buffer_bytes, wish.device.as_deref())?;
    recorder.start()?;
    begun();
    let start = Instant::now();
    fetch(wish, &setup.wanted, &mut recorder, stop);
    recorder.stop()?;
    let duration_s = start.elapsed().as_secs_f64();
    let packets = match (&wish.device, wish.port) {
        (None, Some(port)) => format!("port {port}"),
        (device, _) => format!("device {}", device.as_deref().unwrap_or_default()),
    };
    Ok(Recorded::new(packets, duration_s, setup, recorder.finish()))
}

/// Empties the buffers until the time is over, enough packets were seen, or a signal comes.
fn fetch(wish: &Wish, wanted: &Wanted, recorder: &mut Recorder, stop: &Receiver<()>) {
    let end = Instant::now() + Duration::from_secs(wish.seconds());
    let mut seen = 0;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let told = stop.recv_timeout(left.min(FETCH_INTERVAL));
        recorder.drain();
        // Events are decoded while the host is measured only if somebody has to count them.
        let enough = wish.packets.is_some_and(|packets| {
            let latest = recorder.latest();
            seen += latest.filter(|event| wanted.is_seen_in(event)).count() as u64;
            seen >= packets
        });
        if enough || left.is_zero() || told != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

fn setup(wish: &Wish) -> Result<Setup> {
    let machine = Machine::real();
    let threads = machine.all_threads()?;
    let devices = match &wish.device {
        Some(device) => vec![device.clone()],
        None => machine.tree.list("/sys/class/net").unwrap_or_default(),
    };
    let mut interrupts = BTreeMap::new();
    for device in &devices {
        let nic = discover::nic(&machine, &threads, device)?;
        let name = Name::from(device.as_str());
        interrupts.extend(nic.irqs.keys().map(|irq| (*irq, name)));
    }
    if interrupts.is_empty() {
        let which = wish.device.as_deref().unwrap_or("any interface");
        return Err(HostError::BadInput {
            what: format!("{which} has no interrupt in /proc/interrupts"),
            fix: "name the physical interface, not the bridge or tap, and bring it up first".into(),
        }
        .into());
    }
    let wanted = match (&wish.device, wish.port) {
        (None, Some(port)) => Wanted::Threads(socket::threads_on_port(port)?),
        (device, _) => Wanted::Device(device.as_deref().unwrap_or_default().into()),
    };
    Ok(Setup {
        interrupts,
        wanted,
        softirq_lock_offset: softirq_lock_offset(),
        vms: vms(&machine, &threads),
    })
}

/// The VMs that packets are followed into.
fn vms(machine: &Machine, threads: &[Thread]) -> Vec<VmThreads> {
    let all = discover::all_vms(machine, &Processes::of(threads)).into_iter();
    all.map(|(name, vm)| VmThreads {
        name: printable(&name).into_owned(),
        carriers: vm.vhost_workers.iter().map(|thread| thread.tid).collect(),
        vcpus: vm
            .vcpus
            .iter()
            .map(|(number, thread)| (thread.tid, *number))
            .collect(),
    })
    .collect()
}
