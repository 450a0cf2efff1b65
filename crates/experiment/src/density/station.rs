//! One row's host with all of its VMs.

use super::file::{self, Kept, Services};
use super::{Asking, Row, VMS};
use crate::engine::rounds::{or_broken, station};
use crate::testbed::phase::{self, Bulk, Receiver, Stream};
use crate::testbed::work;
use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;
use steadyvm_lab::agent::{Connection, Process, Status};
use steadyvm_lab::emulator::{Machine, Monitor};
use steadyvm_lab::host::{BULK, EmulatedHost, HostSpecification, RT};
use steadyvm_lab::laboratory::{Laboratory, guest};
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{Error, Guest, Result};
use steadyvm_load::netrt::{ClientOptions, ClientRun, End, Intervals};

/// The host's memory holds all guests'.
const HOST_MEMORY_MIB: u32 = 6144;
/// A guest needs this much to unpack its kernel and its initramfs.
const GUEST_MEMORY_MIB: u32 = 160;
/// The first VM's address, and the number of its card, in the host's network.
const FIRST_ADDRESS: u8 = 100;
/// Ten requests per second in the mean.
const INTERVALS: Intervals = Intervals {
    shortest: file::APART,
    longest: Duration::from_millis(150),
};
/// Requests before the counted ones.
const WARMUP: u64 = 5;
/// A reply that takes longer is lost.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Putting a file in force for all VMs takes this long at most, and calibrating the host.
const PATIENCE: Duration = Duration::from_secs(300);
/// Requests by which the work of one is measured, after some that warm the guest.
const WORK_REQUESTS: u64 = 100;
const WORK_WARMUP: u64 = 20;
const PATH: &str = "/run/steadyvm.toml";
/// The most VMs that a plan is asked about.
const MOST_PLANNED: usize = 128;

/// What one measurement gives.
#[derive(Debug)]
pub struct Sample {
    /// What each client measured, by VM.
    pub by_vm: Vec<ClientRun>,
    /// What the stream carried.
    pub mbit_per_s: f64,
    /// What a monitor takes beside its guest's memory, the most of all, in MiB (Pss).
    pub monitor_mib: f64,
    /// Where the row has budgets: what they are for, and the most VMs that a plan accepts on this host.
    pub admitted: Option<Services>,
}

/// A booted host with its row's settings in force.
pub struct DensityStation {
    row: Row,
    host: EmulatedHost,
    bulk: Receiver,
    guests: Vec<Guest>,
    /// They serve until their guests are gone.
    _services: Vec<Process>,
    monitor_mib: f64,
    admitted: Option<Services>,
    broken: bool,
}

station!(DensityStation);

impl DensityStation {
    /// Boots the host with all guests, puts ranks in force and stops the host's clock.
    pub fn boot(
        laboratory: &Laboratory,
        row: Row,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let specification = HostSpecification {
            boot_on_cpu: Some(on_cpu),
            memory_mib: HOST_MEMORY_MIB,
            ..laboratory.host(row.setting.name, row.setting.kernel)?
        };
        let mut host = EmulatedHost::boot(&specification)?;
        host.require_kvm()?;
        let (mut guests, mut services) = (Vec::new(), Vec::new());
        for number in 0..VMS {
            let guest = host.start_guest(&machine(number), &[RT], observer)?;
            host.set_network_up(&guest, &file::name(number), address(number))?;
            services.push(serve(guest.connection())?);
            guests.push(guest);
        }
        let bulk = host.start_guest(&guest("bulk", 2, 1), &[BULK], observer)?;
        let of_bulk = BULK.address(FIRST_ADDRESS);
        host.set_network_up(&bulk, "bulk", of_bulk)?;
        let bulk = Receiver {
            connection: bulk.connection().clone(),
            address: of_bulk,
        };
        if row.kept == Kept::Ranks {
            run_with_file(&host, &file::text(VMS, None), "steadyvm apply --strict")?;
        }
        let monitor_mib = monitor_mib(&host)?;
        host.pause()?;
        host.spread_processors()?;
        Ok(Self {
            row,
            host,
            bulk,
            guests,
            _services: services,
            monitor_mib,
            admitted: None,
            broken: false,
        })
    }

    /// Lets the host run for one condition, with so many counted requests per VM that is asked. Budgets are in force from the
    /// first on.
    pub fn measure(&mut self, asking: Asking, seed: u64, requests: u64) -> Result<Sample> {
        let measured = self.resume_and_measure(asking, seed, requests);
        let names: Vec<String> = (0..VMS).map(file::name).collect();
        let machines = names.iter().zip(&self.guests);
        let machines = machines.map(|(name, guest)| (name.as_str(), guest.connection()));
        let host = (&self.host, &mut self.broken);
        or_broken(measured, host, self.row, machines)
    }

    fn resume_and_measure(&mut self, asking: Asking, seed: u64, requests: u64) -> Result<Sample> {
        self.host.resume()?;
        if self.row.kept == Kept::Budgets && self.admitted.is_none() {
            self.admitted = Some(budgets_in_force(&self.host)?);
        }
        let longest_s = (WARMUP + requests) as f64 * INTERVALS.longest.as_secs_f64();
        let bulk = Bulk {
            mbit_per_s: None,
            streams: 1,
            seconds: longest_s.ceil() as u32 + 1,
        };
        let stream = phase::start_stream(self.host.outside(), &self.bulk, bulk)?;
        let by_vm = ask(&self.host, asking.0, seed, requests)?;
        let carried = Stream::finish(stream)?;
        self.host.pause()?;
        Ok(Sample {
            by_vm,
            mbit_per_s: carried.mbit_per_s,
            monitor_mib: self.monitor_mib,
            admitted: self.admitted,
        })
    }
}

fn address(number: usize) -> Ipv4Addr {
    RT.address(FIRST_ADDRESS + number as u8)
}

fn machine(number: usize) -> Machine {
    Machine {
        monitor: Monitor::Steadyvm,
        memory_mib: GUEST_MEMORY_MIB,
        ..guest(&file::name(number), FIRST_ADDRESS + number as u8, 1)
    }
}

/// At real-time priority, as in every experiment.
fn serve(guest: &Connection) -> Result<Process> {
    let listen = format!("{}:{}", Ipv4Addr::UNSPECIFIED, phase::NETRT_PORT);
    let words = ["chrt", "-f", "50", "steadyvm", "netrt", "serve", &listen];
    let mut service = guest.spawn(&words)?;
    service.wait_for_line("ready", phase::SERVICE_PATIENCE)?;
    Ok(service)
}

/// Asks the first VMs at the same time, each by a client of its own.
fn ask(host: &EmulatedHost, vms: usize, seed: u64, requests: u64) -> Result<Vec<ClientRun>> {
    let panicked = |_| Err(Error::machine("ask the VMs", "a thread panicked"));
    thread::scope(|scope| {
        let clients: Vec<_> = (0..vms)
            .map(|number| {
                let options = client(number, seed, requests);
                scope.spawn(move || phase::ask(host.outside(), address(number), &options))
            })
            .collect();
        let runs = clients.into_iter();
        runs.map(|client| client.join().unwrap_or_else(panicked))
            .collect()
    })
}

fn client(number: usize, seed: u64, requests: u64) -> ClientOptions {
    ClientOptions {
        seed: seed.wrapping_mul(1000).wrapping_add(number as u64),
        intervals: INTERVALS,
        warmup: WARMUP,
        end: End::Requests(requests),
        timeout: TIMEOUT,
        ..ClientOptions::default()
    }
}

/// Gives the host a file, and runs a command on it.
fn run_with_file(host: &EmulatedHost, text: &str, command: &str) -> Result<()> {
    let (status, said) = try_with_file(host, text, command)?;
    if status == Status::Exited(0) {
        return Ok(());
    }
    let why = format!("{status}: {}", said.trim());
    Err(Error::machine(format!("run {command}"), why))
}

fn try_with_file(host: &EmulatedHost, text: &str, command: &str) -> Result<(Status, String)> {
    let script = format!("cat > {PATH} && {command} {PATH}");
    let started = host.connection().spawn(&["sh", "-euc", &script])?;
    started.input(text.as_bytes())?;
    started.end_of_input()?;
    let finished = started.finish(PATIENCE)?;
    let said = [finished.output, finished.error].concat();
    Ok((finished.status, String::from_utf8_lossy(&said).into_owned()))
}

/// Measures the host's costs and a request's work, plans with them and puts the plan in force. While hosts boot, several share the
/// machine, and each has one CPU of it: what is measured then is no cost of this one.
fn budgets_in_force(host: &EmulatedHost) -> Result<Services> {
    calibrate(host)?;
    let admitted = admitted(host, work_us(host)?)?;
    // Where the plan admits fewer, the others have ranks alone.
    let services = Services {
        vms: admitted.vms.min(VMS),
        ..admitted
    };
    let text = file::text(VMS, Some(services));
    run_with_file(host, &text, "steadyvm apply --strict")?;
    Ok(admitted)
}

/// The most VMs of this kind that a plan accepts on the host, with this work for a request. What one accepts, it accepts with a
/// VM less.
fn admitted(host: &EmulatedHost, work_us: u64) -> Result<Services> {
    let accepts = |vms: usize| -> Result<bool> {
        let text = file::text(vms, Some(Services { vms, work_us }));
        let (status, said) = try_with_file(host, &text, "steadyvm plan")?;
        match status {
            Status::Exited(0) => Ok(true),
            // The plan's word for a set that it does not accept.
            Status::Exited(1) => Ok(false),
            other => Err(Error::machine(
                "plan the host's VMs",
                format!("{other}: {said}"),
            )),
        }
    };
    let (mut most, mut refused) = (0, MOST_PLANNED);
    while refused - most > 1 {
        let middle = usize::midpoint(most, refused);
        if accepts(middle)? {
            most = middle;
        } else {
            refused = middle;
        }
    }
    Ok(Services { vms: most, work_us })
}

fn calibrate(host: &EmulatedHost) -> Result<()> {
    let started = host.connection().spawn(&["steadyvm", "calibrate"])?;
    let finished = started.finish(PATIENCE)?;
    if finished.status == Status::Exited(0) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&finished.error);
    Err(Error::machine("calibrate the host", said.trim()))
}

/// CPU time of its VCPU that a request to the first VM takes.
fn work_us(host: &EmulatedHost) -> Result<u64> {
    let request = |warmup, seed| {
        let options = ClientOptions {
            warmup,
            ..client(0, seed, 1)
        };
        phase::ask(host.outside(), address(0), &options).map(drop)
    };
    // A guest's first requests fault its pages in.
    request(WORK_WARMUP, 0)?;
    let vcpu = work::vcpu(host, &file::name(0))?;
    work::planned_us(host.connection(), vcpu, WORK_REQUESTS, |seed| {
        request(0, seed)
    })
}

/// What the largest monitor has in memory beside its guest's. A page that several monitors have counts in parts.
fn monitor_mib(host: &EmulatedHost) -> Result<f64> {
    let mut most = 0.0_f64;
    for number in 0..VMS {
        let pid = host.guest_pid(&file::name(number))?;
        let maps = host
            .connection()
            .text(&["cat", &format!("/proc/{pid}/smaps")])?;
        most = most.max(beside_guest_mib(&maps));
    }
    Ok(most)
}

/// Of a process's `smaps`: its part of the pages of mappings that are smaller than a guest's memory, in MiB.
fn beside_guest_mib(maps: &str) -> f64 {
    let guest_kib = u64::from(GUEST_MEMORY_MIB) * 1024;
    let kib_of = |line: &str, key: &str| -> Option<u64> {
        let rest = line.strip_prefix(key)?;
        rest.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    let (mut size_kib, mut all_kib) = (0, 0);
    for line in maps.lines() {
        if let Some(size) = kib_of(line, "Size:") {
            size_kib = size;
        } else if let Some(part) = kib_of(line, "Pss:")
            && size_kib < guest_kib / 4
        {
            all_kib += part;
        }
    }
    all_kib as f64 / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_memory_is_not_its_monitors() {
        let maps = "7f00-7f10 rw-p 0 00:00 0\nSize: 163840 kB\nRss:   90000 kB\nPss: 90000 kB\n\
                    5500-5501 r-xp 0 08:01 7 /usr/bin/steadyvm\nSize:   4096 kB\nRss:   3072 kB\nPss: 512 kB\n";
        assert!((beside_guest_mib(maps) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn every_vm_has_an_address_and_a_card_of_its_own() {
        let machines: Vec<Machine> = (0..VMS).map(machine).collect();
        for (number, machine) in machines.iter().enumerate() {
            let same = machines.iter().filter(|it| {
                it.name == machine.name
                    || it.cards[0].mac == machine.cards[0].mac
                    || it.cards[0].tap == machine.cards[0].tap
            });
            assert_eq!(same.count(), 1, "{number}");
            // The kernel's limit of a device's name.
            assert!(machine.cards[0].tap.len() < 16);
        }
        assert_ne!(address(0), address(VMS - 1));
    }
}
