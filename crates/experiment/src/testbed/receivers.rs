//! Where the loads are received: in a guest each, or by the host itself.

use super::counts::Counters;
use super::phase::{self, Receiver};
use std::net::Ipv4Addr;
use std::thread;
use steadyvm_comparison::Service;
use steadyvm_lab::Guest;
use steadyvm_lab::agent::{Connection, Process, Status};
use steadyvm_lab::emulator::{Machine, Monitor, Sockets};
use steadyvm_lab::host::{BULK, EmulatedHost, Network, RT};
use steadyvm_lab::laboratory::guest;
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{Error, Result};
use steadyvm_methods::Guests;

/// Last byte of a guest's address in its network.
const GUEST_ADDRESS: u8 = 3;
/// The guest of the latency-critical service: one VCPU for housekeeping, one for the service.
const RT_GUEST: &str = "rt";
const RT_VCPU: u32 = 1;
/// The guest that receives the bulk stream.
const BULK_GUEST: &str = "bulk";

impl Receiver {
    /// At a guest's address.
    fn of_guest(connection: &Connection, network: Network) -> Self {
        Self {
            connection: connection.clone(),
            address: network.address(GUEST_ADDRESS),
        }
    }
}

/// What receives the two loads.
pub struct Receivers {
    /// The latency-critical service, which listens.
    pub netrt: Receiver,
    /// The bulk stream.
    pub netstream: Receiver,
    /// The counters of the latency-critical service's guest, if it runs in one.
    pub counters: Option<Counters>,
    /// The option of `steadyvm apply --method` that names the latency-critical service.
    pub named: Vec<String>,
    /// The latency-critical service: it serves until its machine is gone.
    service: Option<Process>,
}

/// The latency-critical service's program.
#[derive(Debug, Clone)]
pub struct Server {
    /// Its command.
    pub words: Vec<String>,
    /// The beginning of the line that it prints when it listens, if it prints one.
    pub ready: Option<&'static str>,
    /// A file that it reads: path and text.
    pub file: Option<(&'static str, String)>,
}

impl Server {
    /// The NetRT service.
    pub fn netrt() -> Self {
        let listen = format!("{}:{}", Ipv4Addr::UNSPECIFIED, phase::NETRT_PORT);
        Self {
            words: ["steadyvm", "netrt", "serve", &listen]
                .map(str::to_owned)
                .into(),
            ready: Some("ready"),
            file: None,
        }
    }

    /// Starts it, by the command in front of it.
    fn start(&self, connection: &Connection, by: &[&str]) -> Result<Process> {
        if let Some((path, text)) = &self.file {
            let writer = connection.spawn(&["sh", "-euc", &format!("cat > {path}")])?;
            writer.input(text.as_bytes())?;
            writer.end_of_input()?;
            let status = writer.finish(phase::SERVICE_PATIENCE)?.status;
            if status != Status::Exited(0) {
                return Err(Error::machine(format!("write {path}"), status));
            }
        }
        let words = self.words.iter().map(String::as_str);
        let argv: Vec<&str> = by.iter().copied().chain(words).collect();
        let mut service: Process = connection.spawn(&argv)?;
        if let Some(mark) = self.ready {
            service.wait_for_line(mark, phase::SERVICE_PATIENCE)?;
        }
        Ok(service)
    }
}

impl Receivers {
    /// Starts what receives the loads in or on a host, up to a NetRT service that listens.
    pub fn start(
        service: Service,
        guests: Guests,
        host: &EmulatedHost,
        observer: &dyn Observer,
    ) -> Result<Self> {
        match service {
            Service::Vm if guests == Guests::OutsourcedBulk => Self::beside_a_guest(host, observer),
            Service::Vm => Self::in_guests(guests, host, &Server::netrt(), observer),
            // A host of the lab is nobody's own.
            Service::Host | Service::Own => Self::on_the_host(host),
            Service::Container => Self::in_a_container(host),
        }
    }

    /// The machines of the two, with what they receive.
    pub fn machines(&self) -> impl Iterator<Item = (&str, &Connection)> {
        [
            ("NetRT's receiver", &self.netrt.connection),
            ("NetStream's receiver", &self.netstream.connection),
        ]
        .into_iter()
    }

    /// Checks that the latency-critical service has not ended.
    ///
    /// # Errors
    /// It has: how, and what it said.
    pub fn require_service(&mut self) -> Result<()> {
        let Some(service) = self.service.take() else {
            return Err(Error::machine("serve", "the service has ended"));
        };
        let lives = format!("[ -d /proc/{} ]", service.pid());
        let connection = &self.netrt.connection;
        let finished = connection.spawn(&["sh", "-c", &lives])?;
        if finished.finish(phase::SERVICE_PATIENCE)?.status == Status::Exited(0) {
            self.service = Some(service);
            return Ok(());
        }
        let finished = service.finish(phase::SERVICE_PATIENCE)?;
        let said = [finished.output, finished.error].concat();
        let said = String::from_utf8_lossy(&said);
        let why = format!("{}: {}", finished.status, said.trim());
        Err(Error::machine("run the service", why))
    }

    /// The service of a guest, and the bulk stream to another one.
    pub fn in_guests(
        guests: Guests,
        host: &EmulatedHost,
        server: &Server,
        observer: &dyn Observer,
    ) -> Result<Self> {
        host.require_kvm()?;
        let (rt, bulk) = start_guests(guests, host, observer)?;
        if !rt_has_sockets(guests) {
            card_to_rt_vcpu(&rt)?;
        }
        let service = start_service_in(&rt, server)?;
        let monitor = host.guest_pid(RT_GUEST)?;
        let counters = Counters::new(host.connection().clone(), rt.connection().clone(), monitor);
        Ok(Self {
            netrt: Receiver::of_guest(rt.connection(), RT),
            netstream: Receiver::of_guest(bulk.connection(), BULK),
            counters: Some(counters),
            named: vec!["--vm".to_owned(), format!("{monitor}:{RT_VCPU}")],
            service: Some(service),
        })
    }

    /// The service is a process of the host where its guest's sockets would be, the bulk stream goes
    /// to a guest.
    fn beside_a_guest(host: &EmulatedHost, observer: &dyn Observer) -> Result<Self> {
        host.require_kvm()?;
        let namespace = namespace_of(RT_GUEST);
        host.make_namespace_on_card(&namespace, RT, RT.address(GUEST_ADDRESS))?;
        let service =
            Server::netrt().start(host.connection(), &["ip", "netns", "exec", &namespace])?;
        let machine = guest(BULK_GUEST, 2, 1);
        let bulk = start_guest(Guests::OutsourcedBulk, host, machine, BULK, observer)?;
        Ok(Self {
            netrt: Receiver::of_guest(host.connection(), RT),
            netstream: Receiver::of_guest(bulk.connection(), BULK),
            counters: None,
            named: rt_process(service.pid()),
            service: Some(service),
        })
    }

    /// The same, but the service is behind a veth and a bridge.
    fn in_a_container(host: &EmulatedHost) -> Result<Self> {
        let address = RT.address(GUEST_ADDRESS);
        host.make_namespace(CONTAINER, RT, address)?;
        let by = ["ip", "netns", "exec", CONTAINER];
        let service = Server::netrt().start(host.connection(), &by)?;
        let receiver = |address| Receiver {
            connection: host.connection().clone(),
            address,
        };
        Ok(Self {
            netrt: receiver(address),
            netstream: receiver(BULK.host()),
            counters: None,
            named: rt_process(service.pid()),
            service: Some(service),
        })
    }

    /// The service is an ordinary process here: its priority is the method's to set.
    fn on_the_host(host: &EmulatedHost) -> Result<Self> {
        let service = Server::netrt().start(host.connection(), &[])?;
        let receiver = |network: Network| Receiver {
            connection: host.connection().clone(),
            address: network.host(),
        };
        Ok(Self {
            netrt: receiver(RT),
            netstream: receiver(BULK),
            counters: None,
            named: rt_process(service.pid()),
            service: Some(service),
        })
    }
}

/// Whether the latency-critical guest has outsourced sockets, and so no card.
const fn rt_has_sockets(guests: Guests) -> bool {
    matches!(
        guests,
        Guests::Outsourced | Guests::OutsourcedPolling | Guests::OutsourcedQemu
    )
}

/// How long virtual CPUs poll that do. Some round trips of an emulated host; of hardware it would be much.
const POLL_US: u32 = 5_000;

/// The network namespace of the latency-critical service where there are no VMs.
const CONTAINER: &str = "container";

fn rt_process(service: u32) -> Vec<String> {
    vec!["--process".to_owned(), service.to_string()]
}

/// The network namespace of a guest's outsourced sockets.
fn namespace_of(guest: &str) -> String {
    format!("vm-{guest}")
}

fn start_guests(
    guests: Guests,
    host: &EmulatedHost,
    observer: &dyn Observer,
) -> Result<(Guest, Guest)> {
    // What is done for the latency-critical VM alone.
    let other_guests = match guests {
        Guests::RealTime | Guests::Passthrough => Guests::Qemu,
        all => all,
    };
    let (rt, bulk) = thread::scope(|scope| {
        let rt = scope.spawn(|| start_guest(guests, host, guest(RT_GUEST, 1, 2), RT, observer));
        let bulk = start_guest(other_guests, host, guest(BULK_GUEST, 2, 1), BULK, observer);
        let panicked = |_| Err(Error::machine("start a guest", "a thread panicked"));
        (rt.join().unwrap_or_else(panicked), bulk)
    });
    Ok((rt?, bulk?))
}

fn start_guest(
    guests: Guests,
    host: &EmulatedHost,
    mut machine: Machine,
    network: Network,
    observer: &dyn Observer,
) -> Result<Guest> {
    let address = network.address(GUEST_ADDRESS);
    machine.monitor = match guests {
        Guests::Qemu | Guests::OutsourcedQemu | Guests::RealTime | Guests::Passthrough => {
            Monitor::Qemu
        }
        Guests::Steadyvm
        | Guests::Outsourced
        | Guests::OutsourcedPolling
        | Guests::OutsourcedBulk => Monitor::Steadyvm,
    };
    match guests {
        Guests::Qemu | Guests::Steadyvm => {}
        Guests::RealTime => machine.real_time = true,
        Guests::Passthrough => {
            for card in &mut machine.cards {
                card.function = Some(host.make_function(network, &card.mac)?);
            }
        }
        Guests::Outsourced
        | Guests::OutsourcedPolling
        | Guests::OutsourcedQemu
        | Guests::OutsourcedBulk => {
            let namespace = namespace_of(&machine.name);
            host.make_namespace_on_card(&namespace, network, address)?;
            machine.cards.clear();
            let polls = guests == Guests::OutsourcedPolling && network == RT;
            machine.sockets = Some(Sockets {
                namespace,
                poll_us: if polls { POLL_US } else { 0 },
            });
        }
    }
    let guest = host.start_guest(&machine, &[network], observer)?;
    let up = || host.set_network_up(&guest, &machine.name, address);
    match guests {
        Guests::Qemu | Guests::RealTime | Guests::Steadyvm => up()?,
        Guests::Passthrough => {
            up()?;
            guest.await_link()?;
            let functions = machine
                .cards
                .iter()
                .filter_map(|card| card.function.as_deref());
            for function in functions {
                host.function_to_interrupts_cpu(function)?;
            }
        }
        Guests::Outsourced
        | Guests::OutsourcedPolling
        | Guests::OutsourcedQemu
        | Guests::OutsourcedBulk => {
            guest.outsource_sockets()?;
        }
    }
    Ok(guest)
}

/// Lets the card interrupt the VCPU of the service, as the paper's section 2 has it. Its interrupts
/// have its name alone, or one a queue; a virtual function's have the network device's.
pub fn card_to_rt_vcpu(rt_guest: &Guest) -> Result<()> {
    let interrupts_to_rt_vcpu = format!(
        "card=$(basename $(readlink /sys/class/net/eth0/device)); \
         for irq in $(sed -n \"s/^ *\\([0-9]*\\):.* \\($card\\|eth0\\)\\(-\\(input\\|output\\|rx\\|tx\\).*\\)\\?$/\\1/p\" \
         /proc/interrupts); do echo {} > /proc/irq/$irq/smp_affinity; done",
        1 << RT_VCPU
    );
    let argv = ["sh", "-euc", &interrupts_to_rt_vcpu];
    rt_guest.connection().run(&argv).map(drop)
}

/// Starts the server on the guest's second CPU, at real-time priority. The same for every
/// method.
fn start_service_in(rt_guest: &Guest, server: &Server) -> Result<Process> {
    let cpu = RT_VCPU.to_string();
    let by = ["taskset", "-c", &cpu, "chrt", "-f", "50"];
    server.start(rt_guest.connection(), &by)
}
