//! One row's host with its service, what disturbs it, and a stream's guest.

use super::Row;
use super::disturbance::{Disturbance, FLOOD_PER_S, rules};
use crate::engine::rounds::{or_broken, station};
use crate::testbed::Guests;
use crate::testbed::phase::{self, Load, SERVICE_PATIENCE, Stream};
use crate::testbed::receivers::{Receivers, Server};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use steadyvm_lab::agent::{Connection, Process, Status};
use steadyvm_lab::host::{BULK, EmulatedHost, HostSpecification, RT};
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{At, Error, Result};
use steadyvm_load::attack::{Aim, Frames, Pace, Sender, To, USUAL_MOST_BYTES};
use steadyvm_load::netrt::ClientRun;
use steadyvm_load::netstream;

/// A flood that is not ended ends after this.
const LONGEST: Duration = Duration::from_secs(600);
/// Sockets that are listed. Their program ends with the host.
const OPEN_SOCKETS: [&str; 9] = [
    "steadyvm-lab",
    "load",
    "attack",
    "sockets",
    "--to",
    "127.0.0.1",
    "--rate",
    "1",
    "--seconds=3600",
];

/// They open one after the other.
const ALL_OPEN: &str = "until [ $(wc -l < /proc/net/udp) -gt 9000 ]; do sleep 1; done";

/// A booted host with its method in force.
pub struct SectionsStation {
    row: Row,
    host: EmulatedHost,
    receivers: Receivers,
    broken: bool,
}

station!(SectionsStation);

impl SectionsStation {
    /// Boots the host with its guests, puts the method in force and stops the host's clock.
    pub fn boot(
        laboratory: &Laboratory,
        row: Row,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let host = laboratory.host(row.setting.name, row.setting.kernel)?;
        let specification = HostSpecification {
            boot_on_cpu: Some(on_cpu),
            kernel_words: format!("{} {}", host.kernel_words, row.words),
            ..host
        };
        let mut host = EmulatedHost::boot(&specification)?;
        host.ip("link set dev lo up")?;
        let receivers = Receivers::in_guests(Guests::Qemu, &host, &Server::netrt(), observer)?;
        host.load_later_modules()?;
        host.put_in_force(row.method, RT, &receivers.named)?;
        host.pause()?;
        host.spread_processors()?;
        Ok(Self {
            row,
            host,
            receivers,
            broken: false,
        })
    }

    /// Lets the host run for one condition.
    pub fn measure(&mut self, beside: Disturbance, load: &Load) -> Result<ClientRun> {
        let measured = self.resume_and_measure(beside, load);
        let machines = self.receivers.machines();
        or_broken(measured, (&self.host, &mut self.broken), self.row, machines)
    }

    fn resume_and_measure(&mut self, beside: Disturbance, load: &Load) -> Result<ClientRun> {
        self.host.resume()?;
        let host = self.host.connection();
        let mut running = Vec::new();
        if beside == Disturbance::Sockets {
            let mut sockets = host.spawn(&OPEN_SOCKETS)?;
            sockets.wait_for_line("attacking", SERVICE_PATIENCE)?;
            host.run(&["bash", "-c", ALL_OPEN])?;
            running.push(sockets);
        }
        for script in beside.scripts() {
            running.push(host.spawn(&["bash", "-c", script])?);
        }
        let netrt = match beside {
            Disturbance::Stream => self.beside_a_stream(load)?,
            Disturbance::Rules => self.under_a_flood(load)?,
            _ => self.requests(load)?,
        };
        running.into_iter().try_for_each(end)?;
        self.host.pause()?;
        Ok(netrt)
    }

    fn requests(&self, load: &Load) -> Result<ClientRun> {
        phase::run_netrt(self.host.outside(), self.receivers.netrt.address, load)
    }

    fn beside_a_stream(&self, load: &Load) -> Result<ClientRun> {
        let bulk = phase::Bulk::beside(load, None);
        let stream = phase::start_stream(self.host.outside(), &self.receivers.netstream, bulk)?;
        let netrt = self.requests(load)?;
        Stream::finish(stream)?;
        Ok(netrt)
    }

    fn under_a_flood(&self, load: &Load) -> Result<ClientRun> {
        let host = self.host.connection();
        put_rules(host)?;
        let aim = Aim {
            to: Some(To::Address(BULK.host())),
            hardware: None,
            from: Some(BULK.outside()),
            port: netstream::DEFAULT_PORT,
            bytes: USUAL_MOST_BYTES,
        };
        let outside = self.host.outside();
        let stop = AtomicBool::new(false);
        let flood = || {
            let what = "flood the host";
            let sender = Sender::open(BULK.name, Frames::UdpSmall, &aim).doing(what)?;
            let pace = Pace {
                per_second: NonZeroU32::new(FLOOD_PER_S),
                duration: LONGEST,
                stop: &stop,
            };
            sender.run(&pace).doing(what)
        };
        let netrt = thread::scope(|scope| {
            let flooding = scope.spawn(|| outside.enter(flood));
            let netrt = self.requests(load);
            stop.store(true, Ordering::Relaxed);
            let panicked = |_| Err(Error::machine("flood the host", "a thread panicked"));
            flooding.join().unwrap_or_else(panicked)?;
            netrt
        })?;
        host.run(&["nft", "delete", "table", "inet", "sections"])?;
        Ok(netrt)
    }
}

fn put_rules(host: &Connection) -> Result<()> {
    let nft = host.spawn(&["nft", "-f", "-"])?;
    nft.input(rules().as_bytes())?;
    nft.end_of_input()?;
    let finished = nft.finish(SERVICE_PATIENCE)?;
    if finished.status == Status::Exited(0) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&finished.error).into_owned();
    Err(Error::machine("load the firewall's rules", said))
}

/// Ends what disturbed, which had to go on until now.
fn end(process: Process) -> Result<()> {
    process.signal(libc::SIGKILL)?;
    let finished = process.finish(SERVICE_PATIENCE)?;
    if let Status::Exited(code) = finished.status {
        let said = String::from_utf8_lossy(&finished.error).into_owned();
        let why = format!("it had ended with code {code}: {said}");
        return Err(Error::machine("disturb the host", why));
    }
    Ok(())
}
