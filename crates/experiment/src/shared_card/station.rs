//! One row's host: the service in one guest, the stream into another, by one card or two.

use super::{How, Row};
use crate::engine::rounds::{or_broken, station};
use crate::service::Beside;
use crate::testbed::Guests;
use crate::testbed::phase::{self, Load};
use crate::testbed::receivers::{Receivers, Server};
use std::time::Duration;
use steadyvm_lab::agent::Status;
use steadyvm_lab::host::{EmulatedHost, HostSpecification, RT};
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{Error, Result};
use steadyvm_load::netrt::ClientRun;

/// The host's file where the real-time VM has a way of its own on the card.
fn file(way: &str) -> String {
    format!("[[vm]]\nname = \"rt\"\nclass = \"rt\"\nnic = \"rt\"\nway = \"{way}\"\n")
}

const PATH: &str = "/run/steadyvm.toml";
/// The tap of the guest that receives the stream.
const TAP_OF_STREAM: &str = "tap-bulk";
/// Putting a file in force takes this long at most, on a loaded machine too.
const PATIENCE: Duration = Duration::from_secs(120);

/// What one measurement gives.
#[derive(Debug)]
pub struct Sample {
    /// What the client measured.
    pub netrt: ClientRun,
    /// What the stream carried, if one flowed.
    pub mbit_per_s: Option<f64>,
}

/// A booted host with its row's settings in force.
pub struct SharedCardStation {
    row: Row,
    host: EmulatedHost,
    receivers: Receivers,
    broken: bool,
}

station!(SharedCardStation);

impl SharedCardStation {
    /// Boots the host with both guests, puts the row in force and stops the host's clock.
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
        let receivers = Receivers::in_guests(Guests::Qemu, &host, &Server::netrt(), observer)?;
        if !row.own_card {
            host.share_one_card(TAP_OF_STREAM)?;
        }
        match row.how {
            How::Stock => {}
            How::Method(method) => host.put_in_force(method, RT, &receivers.named)?,
            How::Way(way) => {
                apply_file(&host, &file(way))?;
                host.interrupts_of_shared_card()?;
            }
        }
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
    pub fn measure(&mut self, beside: Beside, load: &Load) -> Result<Sample> {
        let measured = self.resume_and_measure(beside, load);
        let machines = self.receivers.machines();
        or_broken(measured, (&self.host, &mut self.broken), self.row, machines)
    }

    fn resume_and_measure(&mut self, beside: Beside, load: &Load) -> Result<Sample> {
        self.host.resume()?;
        let stream = match beside {
            Beside::Nothing => None,
            Beside::NetStream => Some(phase::start_stream(
                self.host.outside(),
                &self.receivers.netstream,
                phase::Bulk::beside(load, None),
            )?),
        };
        let netrt = phase::run_netrt(self.host.outside(), self.receivers.netrt.address, load)?;
        let carried = stream.map(phase::Stream::finish).transpose()?;
        self.host.pause()?;
        Ok(Sample {
            netrt,
            mbit_per_s: carried.map(|it| it.mbit_per_s),
        })
    }
}

fn apply_file(host: &EmulatedHost, text: &str) -> Result<()> {
    let script = format!("cat > {PATH} && steadyvm apply {PATH}");
    let applied = host.connection().spawn(&["sh", "-euc", &script])?;
    applied.input(text.as_bytes())?;
    applied.end_of_input()?;
    let finished = applied.finish(PATIENCE)?;
    if finished.status == Status::Exited(0) {
        return Ok(());
    }
    let said = [finished.output, finished.error].concat();
    let said = String::from_utf8_lossy(&said);
    let why = format!("{}: {}", finished.status, said.trim());
    Err(Error::machine("put the shared card's file in force", why))
}
