//! One method's host: the service in one guest, the bulk stream into another.

use super::{Beside, Load, Service};
use crate::engine::rounds::{or_broken, station};
use crate::testbed::ComparedMethod;
use crate::testbed::cpu_times;
use crate::testbed::phase;
use crate::testbed::receivers::Receivers;
use steadyvm_lab::Result;
use steadyvm_lab::host::{EmulatedHost, RT};
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::Observer;

/// What one measurement gives.
#[derive(Debug)]
pub struct Sample<R> {
    /// What the service's clients measured.
    pub run: R,
    /// What the stream carried, if one flowed.
    pub mbit_per_s: Option<f64>,
    /// The host's CPU time that was not idle, of all CPUs: 0 to 1.
    pub cpu_busy_fraction: f64,
}

/// A booted host with its method in force.
pub struct ServiceStation {
    method: ComparedMethod,
    host: EmulatedHost,
    receivers: Receivers,
    broken: bool,
}

station!(ServiceStation);

impl ServiceStation {
    /// Boots the host with both guests, makes the service ready, puts the method in force and stops
    /// the host's clock.
    pub(super) fn boot(
        laboratory: &Laboratory,
        method: ComparedMethod,
        service: &impl Service,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let mut host = EmulatedHost::boot(&method.specification(laboratory, on_cpu)?)?;
        let mut receivers =
            Receivers::in_guests(method.row().guests, &host, &service.server(), observer)?;
        let mut apply = receivers.named.clone();
        apply.extend(method.options());
        host.put_in_force(method.method, RT, &apply)?;
        let ready = service.prepare(&host, &receivers);
        // Why it does not serve, rather than that it does not.
        ready.or_else(|error| receivers.require_service().and(Err(error)))?;
        host.pause()?;
        host.spread_processors()?;
        Ok(Self {
            method,
            host,
            receivers,
            broken: false,
        })
    }

    /// Lets the host run for one condition.
    pub(super) fn measure<S: Service>(
        &mut self,
        service: &S,
        beside: Beside,
        load: Load,
    ) -> Result<Sample<S::Run>> {
        let measured = self.resume_and_measure(service, beside, load);
        let machines = self.receivers.machines();
        or_broken(
            measured,
            (&self.host, &mut self.broken),
            self.method,
            machines,
        )
    }

    fn resume_and_measure<S: Service>(
        &mut self,
        service: &S,
        beside: Beside,
        load: Load,
    ) -> Result<Sample<S::Run>> {
        self.host.resume()?;
        let stream = match beside {
            Beside::Nothing => None,
            Beside::NetStream => Some(phase::start_stream(
                self.host.outside(),
                &self.receivers.netstream,
                phase::Bulk {
                    mbit_per_s: None,
                    streams: 1,
                    seconds: service.longest_s(load).ceil() as u32 + 1,
                },
            )?),
        };
        let before = cpu_times(self.host.connection())?;
        let run = service.put_load(&self.host, &self.receivers, load)?;
        let cpu_busy_fraction = cpu_times(self.host.connection())?.busy_fraction_since(&before);
        let carried = stream.map(phase::Stream::finish).transpose()?;
        self.host.pause()?;
        Ok(Sample {
            run,
            mbit_per_s: carried.map(|it| it.mbit_per_s),
            cpu_busy_fraction,
        })
    }
}
