//! The host with all guests.

use super::{KERNEL, NAME, Row};
use crate::engine::rounds::{or_broken, station};
use crate::testbed::ask::ask;
use std::time::Duration;
use steadyvm_lab::agent::Process;
use steadyvm_lab::emulator::{Machine, Monitor, Sockets};
use steadyvm_lab::host::{BULK, EmulatedHost, HostSpecification, RT};
use steadyvm_lab::laboratory::{Laboratory, guest};
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{At, Guest, Result};
use steadyvm_load::connections::{Answered, Asked};

/// The requests of a round are answered within this time; each of them has a limit of its own.
const PATIENCE: Duration = Duration::from_secs(600);
/// A program starts within this time.
const START_PATIENCE: Duration = Duration::from_secs(120);
/// The host has room for all guests.
const MEMORY_MIB: u32 = 160;

/// A booted host; its guests take turns.
pub struct ConnectionsStation {
    row: Row,
    host: EmulatedHost,
    /// By row, with its program.
    guests: Vec<(Row, Guest, Process)>,
    broken: bool,
}

station!(ConnectionsStation);

impl ConnectionsStation {
    /// Boots the host with all guests and their programs, and stops the host's clock.
    pub fn boot(laboratory: &Laboratory, on_cpu: usize, observer: &dyn Observer) -> Result<Self> {
        let specification = HostSpecification {
            boot_on_cpu: Some(on_cpu),
            ..laboratory.host(NAME, KERNEL)?
        };
        let mut host = EmulatedHost::boot(&specification)?;
        host.require_kvm()?;
        let mut guests = Vec::new();
        for row in Row::ALL {
            let guest = start(&host, row, observer)?;
            let connection = guest.connection();
            connection.run(&["ip", "link", "set", "dev", "lo", "up"])?;
            let mut program = connection.spawn(&["steadyvm-lab", "load", "connections"])?;
            program.wait_for_line("ready", START_PATIENCE)?;
            guests.push((row, guest, program));
        }
        host.pause()?;
        host.spread_processors()?;
        Ok(Self {
            row: Row::OwnStack,
            host,
            guests,
            broken: false,
        })
    }

    /// The next measurement is of this row.
    pub fn turn_to(&mut self, row: Row) {
        self.row = row;
    }

    /// Lets the host run for one shape.
    pub fn measure(&mut self, asked: &Asked) -> Result<Vec<u64>> {
        let measured = self.resume_and_measure(asked);
        let machines = self.guests.iter();
        let machines = machines.map(|(_, guest, _)| ("the guest", guest.connection()));
        or_broken(measured, (&self.host, &mut self.broken), self.row, machines)
    }

    fn resume_and_measure(&mut self, asked: &Asked) -> Result<Vec<u64>> {
        let request = serde_json::to_string(asked).doing("write the request")?;
        self.host.resume()?;
        let row = self.row;
        let mut each_ns = Vec::new();
        for (_, _, program) in self.guests.iter_mut().filter(|(of, ..)| *of == row) {
            let answer = ask(program, &request, PATIENCE)?;
            let answered: Answered =
                serde_json::from_str(&answer).doing("read how long requests took")?;
            each_ns = answered.each_ns;
        }
        self.host.pause()?;
        Ok(each_ns)
    }
}

fn start(host: &EmulatedHost, row: Row, observer: &dyn Observer) -> Result<Guest> {
    match row {
        Row::OwnStack => {
            let machine = Machine {
                monitor: Monitor::Steadyvm,
                memory_mib: MEMORY_MIB,
                ..guest("own", 2, 2)
            };
            host.start_guest(&machine, &[BULK], observer)
        }
        Row::Outsourced => outsourced(host, Monitor::Steadyvm, ("steadyvm", 1), observer),
        Row::OutsourcedLarge => {
            let guest = outsourced(host, Monitor::Steadyvm, ("large", 4), observer)?;
            large_requests(&guest)?;
            Ok(guest)
        }
        Row::OutsourcedBuffers => {
            let name = "buffers";
            let guest = outsourced(host, Monitor::Steadyvm, (name, 5), observer)?;
            large_requests(&guest)?;
            let namespace = namespace(name);
            let words = ["ip", "netns", "exec", &namespace, "sh", "-euc", BUFFERS];
            host.connection().run(&words)?;
            Ok(guest)
        }
        Row::OutsourcedQemu => outsourced(host, Monitor::Qemu, ("qemu", 3), observer),
    }
}

/// Least, first and most of a TCP socket's buffers. Of 400 connections both ends' first ones are below the VM's limit, 1 GiB.
const BUFFERS: &str =
    "for which in wmem rmem; do echo 4096 524288 8388608 > /proc/sys/net/ipv4/tcp_$which; done";

/// The module's most, of later requests.
fn large_requests(guest: &Guest) -> Result<()> {
    let script = "echo 1024 > /sys/module/steadyvm_sockets/parameters/request_kib";
    guest.connection().run(&["sh", "-euc", script]).map(drop)
}

fn namespace(name: &str) -> String {
    format!("vm-{name}")
}

/// A guest whose sockets are in a network namespace of its own.
fn outsourced(
    host: &EmulatedHost,
    monitor: Monitor,
    (name, number): (&str, u8),
    observer: &dyn Observer,
) -> Result<Guest> {
    let namespace = namespace(name);
    host.make_namespace(&namespace, RT, RT.address(number + 2))?;
    let machine = Machine {
        monitor,
        sockets: Some(Sockets {
            namespace,
            poll_us: 0,
        }),
        cards: Vec::new(),
        memory_mib: MEMORY_MIB,
        ..guest(name, number, 2)
    };
    let guest = host.start_guest(&machine, &[RT], observer)?;
    guest.outsource_sockets()?;
    Ok(guest)
}
