//! One row's host: the service in one guest, the stream into another, by one card or two.

use super::Row;
use super::pollers::{self, Handed};
use crate::engine::rounds::{or_broken, station};
use crate::service::Beside;
use crate::testbed::one_card;
use crate::testbed::phase::{self, Load};
use crate::testbed::receivers::Receivers;
use steadyvm_lab::Result;
use steadyvm_lab::host::{EmulatedHost, HostSpecification};
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::Observer;
use steadyvm_load::netrt::ClientRun;

/// What one measurement gives.
#[derive(Debug)]
pub struct Sample {
    /// What the client measured.
    pub netrt: ClientRun,
    /// What the stream carried, if one flowed.
    pub mbit_per_s: Option<f64>,
    /// Who handed the real-time VM its packets.
    pub(super) handed: Handed,
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
        let kernel = row.setting.kernel;
        let specification = HostSpecification {
            boot_on_cpu: Some(on_cpu),
            ..laboratory.host(row.setting.name, kernel)?
        };
        let (mut host, receivers) = row.how.boot(specification, kernel, observer)?;
        if !row.own_card {
            one_card::share(&host)?;
        }
        row.how.put_in_force(&host, &receivers)?;
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
        pollers::begin(self.host.connection())?;
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
        let handed = pollers::end(self.host.connection())?;
        self.host.pause()?;
        Ok(Sample {
            netrt,
            mbit_per_s: carried.map(|it| it.mbit_per_s),
            handed,
        })
    }
}
