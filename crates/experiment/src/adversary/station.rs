//! One row's host: the service in one guest, the stream into another, attackers in two more and outside.

use super::Row;
use super::account::{Account, Times};
use super::attack::{ATTACKER_ADDRESS, Attack, By, Cell, FRAMES_PER_S, OUTSOURCED_ADDRESS};
use crate::engine::rounds::{or_broken, station};
use crate::experiment::Setting;
use crate::testbed::phase::{self, Load, SERVICE_PATIENCE, Stream};
use crate::testbed::receivers::Receivers;
use crate::testbed::{cpu_times, one_card};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use steadyvm_lab::Guest;
use steadyvm_lab::agent::Status;
use steadyvm_lab::emulator::{Machine, Monitor, Sockets};
use steadyvm_lab::host::{EmulatedHost, HostSpecification, RT};
use steadyvm_lab::laboratory::{Laboratory, guest};
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{At, Error, Result};
use steadyvm_load::attack::{Attacked, Frames, Pace, Sender};
use steadyvm_load::netrt::ClientRun;
use steadyvm_load::netstream::NetStreamRun;

/// The third guest. Two VCPUs: one alone interrupts nobody.
const ATTACKER: &str = "attacker";
/// The fourth, and the network namespace of its sockets.
const OUTSOURCED: &str = "sockets";
const NAMESPACE: &str = "vm-sockets";
const ATTACKER_CPUS: u32 = 2;
const ATTACKER_MEMORY_MIB: u32 = 160;
/// An attack from outside that is not ended ends after this.
const LONGEST: Duration = Duration::from_secs(600);
/// The last reply has come, or is lost, so many seconds after the last request was due.
const AFTER_S: u64 = 3;
/// An attacker whose writes wait ends within this time: what a storm has left in a slow console is written first.
const ENDING: Duration = Duration::from_secs(300);

/// What one measurement gives.
#[derive(Debug)]
pub(super) struct Sample {
    /// What the client measured.
    pub netrt: ClientRun,
    /// Mbit/s of each second of the stream while the attack lasted.
    pub stream: Vec<f64>,
    /// What the attack was, if there was one.
    pub attacked: Option<Attacked>,
    /// What the host spent on packets, where threads count for a VM.
    pub account: Option<Account>,
    /// Whether the host had done before what the attack before had left it.
    pub was_quiet: bool,
}

/// A host that is busier works at what an attack has left: all its VMs together take less without one.
const QUIET: f64 = 0.5;
/// Looks at the host until it is quiet, half a second each.
const MOST_LOOKS: u32 = 40;

/// A booted host with its row's settings in force.
pub(super) struct AdversaryStation {
    row: Row,
    host: EmulatedHost,
    receivers: Receivers,
    attacker: Guest,
    outsourced: Guest,
    broken: bool,
}

station!(AdversaryStation);

impl AdversaryStation {
    /// Boots the host with its guests, puts the row in force and stops the host's clock.
    pub fn boot(
        laboratory: &Laboratory,
        row: Row,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let Setting { name, kernel, .. } = row.setting;
        let specification = HostSpecification {
            boot_on_cpu: Some(on_cpu),
            scratch: true,
            ..laboratory.host(name, kernel)?
        };
        let (mut host, receivers) = row.how.boot(specification, kernel, observer)?;
        one_card::share(&host)?;
        let attacker = attacker(&host, observer)?;
        let outsourced = outsourced(&host, observer)?;
        row.how.put_in_force(&host, &receivers)?;
        host.pause()?;
        host.spread_processors()?;
        Ok(Self {
            row,
            host,
            receivers,
            attacker,
            outsourced,
            broken: false,
        })
    }

    /// Lets the host run for one condition.
    pub fn measure(&mut self, cell: Cell, load: &Load) -> Result<Sample> {
        let measured = self.resume_and_measure(cell, load);
        let attackers = [
            ("the attacker", self.attacker.connection()),
            ("the attacker by sockets", self.outsourced.connection()),
        ];
        let machines = self.receivers.machines().chain(attackers);
        or_broken(measured, (&self.host, &mut self.broken), self.row, machines)
    }

    fn resume_and_measure(&mut self, cell: Cell, load: &Load) -> Result<Sample> {
        self.host.resume()?;
        let was_quiet = self.becomes_quiet()?;
        let before = Times::now(self.host.connection())?;
        let bulk = phase::Bulk::beside(load, None);
        let stream = phase::start_stream(self.host.outside(), &self.receivers.netstream, bulk)?;
        let begun = Instant::now();
        let (netrt, attacked) = match cell.0 {
            None => (self.requests(load)?, None),
            Some(attack) => {
                let (netrt, attacked) = match attack.by {
                    By::Outside(frames) => self.under_frames(&attack, frames, load)?,
                    By::Neighbour => self.under_neighbour(&self.attacker, &attack, load)?,
                    By::Outsourced => self.under_neighbour(&self.outsourced, &attack, load)?,
                };
                (netrt, Some(attacked))
            }
        };
        let lasted_s = begun.elapsed().as_secs_f64();
        let carried = Stream::finish(stream)?;
        let account = self.account_since(&before)?;
        self.host.pause()?;
        Ok(Sample {
            netrt,
            stream: rates_within(&carried, lasted_s),
            attacked,
            account,
            was_quiet,
        })
    }

    fn account_since(&self, before: &Times) -> Result<Option<Account>> {
        if !self.row.how.has_file() {
            return Ok(None);
        }
        let connection = self.host.connection();
        Times::now(connection)?.account_since(before, connection)
    }

    /// Waits until nothing of the attack before is left: else it would be in the figures of this condition. Not for ever.
    fn becomes_quiet(&self) -> Result<bool> {
        let connection = self.host.connection();
        for _ in 0..MOST_LOOKS {
            let before = cpu_times(connection)?;
            connection.run(&["sleep", "0.5"])?;
            if cpu_times(connection)?.busy_fraction_since(&before) < QUIET {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn requests(&self, load: &Load) -> Result<ClientRun> {
        phase::run_netrt(self.host.outside(), self.receivers.netrt.address, load)
    }

    fn under_frames(
        &self,
        attack: &Attack,
        frames: Frames,
        load: &Load,
    ) -> Result<(ClientRun, Attacked)> {
        let aim = attack.aim()?;
        let outside = self.host.outside();
        let stop = AtomicBool::new(false);
        let attack = || {
            let what = "attack from outside";
            let sender = Sender::open(RT.name, frames, &aim).doing(what)?;
            let pace = Pace {
                per_second: NonZeroU32::new(FRAMES_PER_S),
                duration: LONGEST,
                stop: &stop,
            };
            sender.run(&pace).doing(what)
        };
        thread::scope(|scope| {
            let attacking = scope.spawn(|| outside.enter(attack));
            let netrt = self.requests(load);
            stop.store(true, Ordering::Relaxed);
            let panicked = |_| Err(Error::machine("attack from outside", "a thread panicked"));
            let attacked = attacking.join().unwrap_or_else(panicked)?;
            Ok((netrt?, attacked))
        })
    }

    fn under_neighbour(
        &self,
        neighbour: &Guest,
        attack: &Attack,
        load: &Load,
    ) -> Result<(ClientRun, Attacked)> {
        let what = "attack from another VM";
        // It ends by itself, too: beside some attacks word from outside hardly gets through.
        let seconds = phase::longest_s(load.samples).ceil() as u64 + AFTER_S;
        let words = attack.command(seconds);
        let mut attacking = neighbour.connection().spawn(&words)?;
        attacking.wait_for_line("attacking", SERVICE_PATIENCE)?;
        let netrt = self.requests(load)?;
        attacking.signal(libc::SIGINT)?;
        let finished = attacking.finish(ENDING)?;
        if finished.status != Status::Exited(0) {
            let said = String::from_utf8_lossy(&finished.error);
            return Err(Error::machine(what, format!("{}: {said}", finished.status)));
        }
        let attacked = serde_json::from_str(&finished.text()).doing(what)?;
        Ok((netrt, attacked))
    }
}

fn attacker(host: &EmulatedHost, observer: &dyn Observer) -> Result<Guest> {
    let machine = Machine {
        memory_mib: ATTACKER_MEMORY_MIB,
        scratch: true,
        ..guest(ATTACKER, 3, ATTACKER_CPUS)
    };
    let guest = host.start_guest(&machine, &[RT], observer)?;
    host.set_network_up(&guest, ATTACKER, RT.address(ATTACKER_ADDRESS))?;
    Ok(guest)
}

fn outsourced(host: &EmulatedHost, observer: &dyn Observer) -> Result<Guest> {
    host.make_namespace(NAMESPACE, RT, RT.address(OUTSOURCED_ADDRESS))?;
    let machine = Machine {
        monitor: Monitor::Steadyvm,
        sockets: Some(Sockets {
            namespace: NAMESPACE.to_owned(),
            poll_us: 0,
        }),
        cards: Vec::new(),
        memory_mib: ATTACKER_MEMORY_MIB,
        ..guest(OUTSOURCED, 4, 1)
    };
    let guest = host.start_guest(&machine, &[], observer)?;
    guest.outsource_sockets()?;
    Ok(guest)
}

/// The stream's rates in the seconds that ended before so many; all of it where none did.
fn rates_within(carried: &NetStreamRun, seconds: f64) -> Vec<f64> {
    let within = carried.intervals.iter().filter(|it| it.end_s <= seconds);
    let rates: Vec<f64> = within.map(|it| it.mbit_per_s).collect();
    if rates.is_empty() {
        return vec![carried.mbit_per_s];
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadyvm_load::netstream::Interval;

    #[test]
    fn seconds_after_the_attack_do_not_count() {
        let interval = |second: u32| Interval {
            start_s: second.into(),
            end_s: f64::from(second) + 1.0,
            mbit_per_s: f64::from(second) * 100.0,
        };
        let carried = NetStreamRun {
            mbit_per_s: 150.0,
            retransmits: None,
            duration_s: 4.0,
            intervals: (0..4).map(interval).collect(),
            sender_cpu_fraction: 0.0,
            receiver_cpu_fraction: 0.0,
        };
        assert_eq!(rates_within(&carried, 2.9), [0.0, 100.0]);
        assert_eq!(rates_within(&carried, 0.5), [150.0]);
    }
}
