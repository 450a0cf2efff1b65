//! One row's host with its two VMs, its clock's daemon, and the master outside.

use super::Row;
use super::offsets::{told, within};
use crate::engine::rounds::{or_broken, station};
use crate::testbed::beside::{Beside, Others};
use crate::testbed::one_card::apply_file;
use std::process::{Command, Stdio};
use std::time::Duration;
use steadyvm_lab::agent::{Connection, Process};
use steadyvm_lab::child::{self, Child};
use steadyvm_lab::host::{EmulatedHost, HostSpecification, RT};
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{Error, Namespace, Result, scheduling};

/// What the guide has for a card of a process bus and for the daemon of its clock.
const FILE: &str = "[[nic]]\nname = \"rt\"\nclass = \"rt\"\n[[host_service]]\nunit = \"ptp4l.service\"\nrank = 85\n";
/// Where systemd has the unit's processes.
const UNIT: &str = "/sys/fs/cgroup/system.slice/ptp4l.service";
/// Messages per second, as a power of two: eight. Of messages with the master's time, and of those that ask for the way's length.
const RATE: &str = "--logSyncInterval=-3 --logMinDelayReqInterval=-3";
const PER_S: u64 = 8;
/// It tells each offset, and does not begin anew where a stamp comes late: on an emulated host many do.
const TELL_ALL: &str = "--summary_interval=-3 --sanity_freq_limit=0";
/// Offsets before the measured ones, 60 s of them, in which the clock finds its rate, is set, and settles. The servo looks for
/// 0.016 s over its integral constant before it sets the clock (linuxptp's `pi_sample`). With time stamps of software that constant
/// is 0.001 times the messages' interval in seconds to the power of 0.4 (`pi_sync_interval`): 37 s.
const WARMUP: u64 = 480;
/// The next offset comes within this time before anything runs beside.
const PATIENCE: Duration = Duration::from_secs(60);

/// What one measurement gives.
#[derive(Debug)]
pub struct Sample {
    /// Sizes of the offsets that were told.
    pub offsets_ns: Vec<u64>,
    /// So many were to be told and were not.
    pub missing: u64,
}

/// A booted host with its row's settings in force.
pub struct ClockStation {
    row: Row,
    host: EmulatedHost,
    others: Others,
    broken: bool,
}

station!(ClockStation);

impl ClockStation {
    /// Boots the host with its VMs and stops the host's clock.
    pub fn boot(
        laboratory: &Laboratory,
        row: Row,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let specification = HostSpecification {
            boot_on_cpu: Some(on_cpu),
            ..laboratory.host(row.setting.name, row.setting.kernel)?
        };
        let mut host = EmulatedHost::boot(&specification)?;
        host.require_kvm()?;
        let others = Others::start(&host, observer, |_| ())?;
        host.pause()?;
        host.spread_processors()?;
        Ok(Self {
            row,
            host,
            others,
            broken: false,
        })
    }

    /// Lets the host run for one condition, in which so many offsets are due.
    pub fn measure(&mut self, beside: Beside, samples: u64) -> Result<Sample> {
        let measured = self.resume_and_measure(beside, samples);
        let machines = [
            ("the bulk VM", self.others.bulk.connection()),
            ("the neighbour", self.others.neighbour.connection()),
        ];
        or_broken(measured, (&self.host, &mut self.broken), self.row, machines)
    }

    fn resume_and_measure(&mut self, beside: Beside, samples: u64) -> Result<Sample> {
        self.host.resume()?;
        // It ends with this measurement: the host's clock stands still after it.
        let _master = Master::start(self.host.outside())?;
        let mut slave = start_slave(self.host.connection())?;
        if self.row.has_file {
            // Now that the unit runs.
            apply_file(&self.host, FILE)?;
        }
        let mut line = String::new();
        for _ in 0..WARMUP {
            line = slave.wait_for_line("offset", PATIENCE)?;
        }
        let Some(last) = told(&line).filter(|it| it.is_locked) else {
            let why = format!(
                "ptp4l is not locked after {WARMUP} offsets: {}",
                line.trim()
            );
            return Err(Error::machine("discipline the host's clock", why));
        };
        // Half an interval more: the last comes as late as the first did.
        let length_ms = samples * 1000 / PER_S + 500 / PER_S;
        let length = Duration::from_millis(length_ms);
        let running = self.others.begin(&self.host, beside, length)?;
        // The window is a length of time, not of words: beside the neighbour word of each offset comes late, and what was told in time
        // counts.
        std::thread::sleep(length);
        running.end()?;
        slave.signal(libc::SIGINT)?;
        let said = slave.finish(PATIENCE)?.text();
        self.host.pause()?;
        let mut offsets_ns = within(&said, last.at_ms, length_ms);
        offsets_ns.truncate(usize::try_from(samples).unwrap_or(usize::MAX));
        let missing = samples.saturating_sub(offsets_ns.len() as u64);
        Ok(Sample {
            offsets_ns,
            missing,
        })
    }
}

/// `ptp4l` outside. Its clock is this machine's, which it sets nothing of.
struct Master(Option<Child>);

/// Where it is asked. ptp4l that is killed leaves it.
const MASTERS_SOCKET: &str = "/run/steadyvm-lab-ptp4l";

impl Master {
    fn start(outside: &Namespace) -> Result<Self> {
        let what = "start ptp4l outside";
        Command::new("ptp4l").arg("-v").output().map_err(|error| {
            Error::lack(what, error.to_string()).what_to_do("install linuxptp: make set-up does")
        })?;
        let mut command = Command::new("chrt");
        let words = format!(
            "-f {} ptp4l -2 -S -q -i {} --masterOnly=1 {RATE} --uds_address={MASTERS_SOCKET}",
            scheduling::CLIENT_PRIORITY,
            RT.name
        );
        command
            .args(words.split(' '))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        outside.hold(&mut command)?;
        child::spawn(command).map(|child| Self(Some(child)))
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        // Its end first.
        self.0 = None;
        let _ = std::fs::remove_file(MASTERS_SOCKET);
    }
}

/// As its unit starts it, in the unit's cgroup.
fn start_slave(host: &Connection) -> Result<Process> {
    let script = format!(
        "mkdir -p /var/run {UNIT}; echo $$ > {UNIT}/cgroup.procs
         exec ptp4l -2 -S -s -q -m -i {} {RATE} {TELL_ALL}",
        RT.name
    );
    let mut slave = host.spawn(&["sh", "-euc", &script])?;
    slave.wait_for_line("offset", PATIENCE)?;
    Ok(slave)
}
