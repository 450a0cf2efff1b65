//! One method's emulated host with its guests, ready to be measured.

use super::cpu::CpuTimes;
use super::kernel_of;
use super::phase::{self, Load};
use crate::error::{At, Error, Result};
use crate::guest::Guest;
use crate::host::{BULK, EmulatedHost, HostSpecification, Network, RT};
use crate::laboratory::{Laboratory, guest};
use crate::progress::Observer;
use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;
use steadyvm_host::Method;
use steadyvm_latency::results::{Phase, PhaseData};

/// Last byte of a guest's address in its network.
const GUEST_ADDRESS: u8 = 3;
/// The guest of the latency-critical service: one VCPU for housekeeping, one for the service.
const RT_GUEST: &str = "rt";
const RT_VCPU: u32 = 1;
/// The guest that receives the bulk stream.
const BULK_GUEST: &str = "bulk";
/// A guest that starves under its method still runs a process within this time.
const LIFE_SIGN_PATIENCE: Duration = Duration::from_secs(60);

/// A booted host with an RT guest and a bulk guest, with its method in force.
pub struct Station {
    method: Method,
    host: EmulatedHost,
    rt_guest: Guest,
    bulk_guest: Guest,
    broken: bool,
}

impl Station {
    /// Boots host and guests, puts the method in force, starts the NetRT service and stops the
    /// host's clock. Until then all the host's processors share the CPU `on_cpu`.
    pub fn boot(
        laboratory: &Laboratory,
        method: Method,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let named = |mut error: Error| {
            error.what = format!("{method}: {}", error.what);
            error
        };
        Self::boot_unnamed(laboratory, method, on_cpu, observer).map_err(named)
    }

    fn boot_unnamed(
        laboratory: &Laboratory,
        method: Method,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let specification = HostSpecification {
            boot_on_cpu: Some(on_cpu),
            ..laboratory.host(method.name(), kernel_of(method))
        };
        let mut host = EmulatedHost::boot(&specification)?;
        host.require_kvm()?;
        let (rt_guest, bulk_guest) = start_guests(&host, observer)?;
        start_service(&rt_guest)?;
        put_in_force(&host, method)?;
        host.pause()?;
        host.spread_processors()?;
        Ok(Self {
            method,
            host,
            rt_guest,
            bulk_guest,
            broken: false,
        })
    }

    /// Its method.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Lets the host run for one phase.
    ///
    /// # Errors
    /// A machine of the station died: the station [`is_broken`](Self::is_broken) from then on.
    pub fn measure(&mut self, phase: Phase, rate: Option<f64>, load: &Load) -> Result<PhaseData> {
        let measured = self.resume_and_measure(phase, rate, load);
        self.broken = measured.is_err();
        measured.map_err(|mut error| {
            error.what = format!("{}: {}", self.method, error.what);
            error
        })
    }

    /// Whether it has to be booted again.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    fn resume_and_measure(
        &mut self,
        phase: Phase,
        rate: Option<f64>,
        load: &Load,
    ) -> Result<PhaseData> {
        self.host.resume()?;
        let data = self.measure_running(phase, rate, load)?;
        self.host.pause()?;
        Ok(data)
    }

    fn measure_running(&self, phase: Phase, rate: Option<f64>, load: &Load) -> Result<PhaseData> {
        let stream = match phase {
            Phase::Idle => None,
            Phase::Full | Phase::Equal => {
                let server = BULK.address(GUEST_ADDRESS);
                Some(phase::start_stream(
                    &self.host,
                    &self.bulk_guest,
                    server,
                    rate,
                    load,
                )?)
            }
        };
        let before = CpuTimes::read(self.host.connection())?;
        let netrt = phase::run_netrt(self.host.outside(), RT.address(GUEST_ADDRESS), load)?;
        let host_cpu_busy_fraction =
            CpuTimes::read(self.host.connection())?.busy_fraction_since(&before);
        // No answer at all is a result of the method, unless the guest is gone.
        if netrt.samples.is_empty() {
            self.rt_guest
                .connection()
                .require_alive(LIFE_SIGN_PATIENCE)?;
        }
        let netstream = stream.map(phase::Stream::finish).transpose()?;
        Ok(PhaseData {
            netrt,
            netstream,
            host_cpu_busy_fraction,
        })
    }
}

fn start_guests(host: &EmulatedHost, observer: &dyn Observer) -> Result<(Guest, Guest)> {
    let (rt, bulk) = thread::scope(|scope| {
        let rt = scope.spawn(|| start_guest(host, RT_GUEST, 1, 2, RT, observer));
        let bulk = start_guest(host, BULK_GUEST, 2, 1, BULK, observer);
        let panicked = |_| Err(Error::machine("start a guest", "a thread panicked"));
        (rt.join().unwrap_or_else(panicked), bulk)
    });
    Ok((rt?, bulk?))
}

fn start_guest(
    host: &EmulatedHost,
    name: &str,
    number: u8,
    cpus: u32,
    network: Network,
    observer: &dyn Observer,
) -> Result<Guest> {
    let guest = host.start_guest(&guest(name, number, cpus), &[network], observer)?;
    guest.set_network_up(network.address(GUEST_ADDRESS))?;
    Ok(guest)
}

/// Starts the NetRT server on the guest's second CPU, at real-time priority, with the card's
/// interrupts beside it, as the paper's section 2 has it. The same for every method.
fn start_service(rt_guest: &Guest) -> Result<()> {
    let interrupts_to_rt_vcpu = format!(
        "for irq in $(sed -n 's/^ *\\([0-9]*\\):.*virtio[0-9]*-\\(input\\|output\\).*/\\1/p' \
         /proc/interrupts); do echo {} > /proc/irq/$irq/smp_affinity; done",
        1 << RT_VCPU
    );
    rt_guest
        .connection()
        .run(&["sh", "-euc", &interrupts_to_rt_vcpu])?;
    let (cpu, port) = (RT_VCPU.to_string(), phase::NETRT_PORT.to_string());
    let address = Ipv4Addr::UNSPECIFIED.to_string();
    let words = [
        "taskset", "-c", &cpu, "chrt", "-f", "50", "steadyvm", "netrt", "serve",
    ];
    let listen = [format!("{address}:{port}")];
    let argv: Vec<&str> = words
        .into_iter()
        .chain(listen.iter().map(String::as_str))
        .collect();
    let mut service = rt_guest.connection().spawn(&argv)?;
    service.wait_for_line("ready", phase::SERVICE_PATIENCE)?;
    // It serves until the guest is gone.
    std::mem::forget(service);
    Ok(())
}

/// Puts the method in force with the host's own copy of this program.
fn put_in_force(host: &EmulatedHost, method: Method) -> Result<()> {
    if method == Method::Vanilla {
        return Ok(());
    }
    let vm = format!("{}:{RT_VCPU}", host.guest_pid(RT_GUEST)?);
    let words = [
        "steadyvm",
        "host",
        "apply",
        "--method",
        method.name(),
        "--rt-nic",
        RT.name,
    ];
    let argv: Vec<&str> = words.into_iter().chain(["--rt-vm", &vm]).collect();
    host.connection()
        .run(&argv)
        .map(drop)
        .doing(format!("put {method} in force"))
}
