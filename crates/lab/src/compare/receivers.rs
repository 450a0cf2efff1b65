//! Where the loads are received: in a guest each, or by the host itself.

use super::phase;
use crate::agent::{Connection, Process};
use crate::error::{Error, Result};
use crate::guest::Guest;
use crate::host::{BULK, EmulatedHost, Network, RT};
use crate::laboratory::guest;
use crate::progress::Observer;
use std::net::Ipv4Addr;
use std::thread;
use steadyvm_latency::results::Service;

/// Last byte of a guest's address in its network.
const GUEST_ADDRESS: u8 = 3;
/// The guest of the latency-critical service: one VCPU for housekeeping, one for the service.
const RT_GUEST: &str = "rt";
const RT_VCPU: u32 = 1;
/// The guest that receives the bulk stream.
const BULK_GUEST: &str = "bulk";

/// A machine of the lab, the host or a guest, that receives a load.
pub struct Receiver {
    /// Where its processes are started.
    pub connection: Connection,
    /// Its address in the load's network.
    pub address: Ipv4Addr,
}

/// What receives the two loads.
pub struct Receivers {
    /// The latency-critical service, which listens.
    pub netrt: Receiver,
    /// The bulk stream.
    pub netstream: Receiver,
    /// The option of `steadyvm host apply` that names the latency-critical service.
    pub named: Vec<String>,
}

impl Receivers {
    /// Starts what receives the loads in or on a host, up to a NetRT service that listens.
    pub fn start(service: Service, host: &EmulatedHost, observer: &dyn Observer) -> Result<Self> {
        match service {
            Service::Vm => Self::in_guests(host, observer),
            Service::Host => Self::on_the_host(host),
        }
    }

    fn in_guests(host: &EmulatedHost, observer: &dyn Observer) -> Result<Self> {
        host.require_kvm()?;
        let (rt, bulk) = start_guests(host, observer)?;
        start_service_in(&rt)?;
        let vm = format!("{}:{RT_VCPU}", host.guest_pid(RT_GUEST)?);
        let receiver = |guest: &Guest, network: Network| Receiver {
            connection: guest.connection().clone(),
            address: network.address(GUEST_ADDRESS),
        };
        Ok(Self {
            netrt: receiver(&rt, RT),
            netstream: receiver(&bulk, BULK),
            named: vec!["--rt-vm".to_owned(), vm],
        })
    }

    /// The service is an ordinary process here: its priority is the method's to set.
    fn on_the_host(host: &EmulatedHost) -> Result<Self> {
        let service = serve_netrt(host.connection(), &[])?;
        let receiver = |network: Network| Receiver {
            connection: host.connection().clone(),
            address: network.host(),
        };
        Ok(Self {
            netrt: receiver(RT),
            netstream: receiver(BULK),
            named: vec!["--rt-process".to_owned(), service.to_string()],
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
fn start_service_in(rt_guest: &Guest) -> Result<()> {
    let interrupts_to_rt_vcpu = format!(
        "for irq in $(sed -n 's/^ *\\([0-9]*\\):.*virtio[0-9]*-\\(input\\|output\\).*/\\1/p' \
         /proc/interrupts); do echo {} > /proc/irq/$irq/smp_affinity; done",
        1 << RT_VCPU
    );
    let connection = rt_guest.connection();
    connection.run(&["sh", "-euc", &interrupts_to_rt_vcpu])?;
    let cpu = RT_VCPU.to_string();
    serve_netrt(connection, &["taskset", "-c", &cpu, "chrt", "-f", "50"]).map(drop)
}

/// Starts the NetRT server, by the command in front of it, and gives its process id.
fn serve_netrt(connection: &Connection, by: &[&str]) -> Result<u32> {
    let listen = format!("{}:{}", Ipv4Addr::UNSPECIFIED, phase::NETRT_PORT);
    let argv = [by, &["steadyvm", "netrt", "serve", &listen]].concat();
    let mut service: Process = connection.spawn(&argv)?;
    service.wait_for_line("ready", phase::SERVICE_PATIENCE)?;
    let pid = service.pid();
    // It serves until its machine is gone.
    std::mem::forget(service);
    Ok(pid)
}
