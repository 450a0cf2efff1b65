//! One method's emulated host with what receives the loads, ready to be measured.

use super::Options;
use crate::compare::{Phase, PhaseData};
use crate::engine::rounds::{or_broken, station};
use crate::testbed::phase::{self, Load};
use crate::testbed::receivers::Receivers;
use crate::testbed::{ComparedMethod, Counters, cpu_times};
use std::time::Duration;
use steadyvm_lab::Result;
use steadyvm_lab::host::{EmulatedHost, RT};
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::Observer;

/// A receiver that starves under its method still runs a process within this time.
const LIFE_SIGN_PATIENCE: Duration = Duration::from_secs(60);

/// A booted host with what receives the loads, with its method in force.
pub struct Station {
    method: ComparedMethod,
    host: EmulatedHost,
    receivers: Receivers,
    broken: bool,
}

station!(Station);

impl Station {
    /// Boots the host, starts what receives the loads, puts the method in force and stops the
    /// host's clock. Until then all the host's processors share the CPU `on_cpu`.
    pub fn boot(
        laboratory: &Laboratory,
        method: ComparedMethod,
        options: &Options,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let mut host = EmulatedHost::boot(&method.specification(laboratory, on_cpu)?)?;
        let receivers = Receivers::start(options.service, method.row().guests, &host, observer)?;
        let mut apply = receivers.named.clone();
        apply.extend(method.options());
        if options.keep_fair_server {
            apply.push("--keep-fair-server".to_owned());
        }
        host.put_in_force(method.method, RT, &apply)?;
        host.pause()?;
        host.spread_processors()?;
        Ok(Self {
            method,
            host,
            receivers,
            broken: false,
        })
    }

    /// Lets the host run for one phase.
    ///
    /// # Errors
    /// A machine of the station died: it is broken from then on.
    pub fn measure(&mut self, phase: Phase, rate: Option<f64>, load: &Load) -> Result<PhaseData> {
        let measured = self.resume_and_measure(phase, rate, load);
        let machines = self.receivers.machines();
        or_broken(
            measured,
            (&self.host, &mut self.broken),
            self.method,
            machines,
        )
    }

    fn resume_and_measure(
        &mut self,
        phase: Phase,
        rate: Option<f64>,
        load: &Load,
    ) -> Result<PhaseData> {
        self.host.resume()?;
        let data = self.measure_running(phase, rate, load)?;
        self.host.pause()?;
        Ok(data)
    }

    fn measure_running(&self, phase: Phase, rate: Option<f64>, load: &Load) -> Result<PhaseData> {
        let untraced = self.run_phase(phase, rate, load)?;
        if !load.receive_path {
            return Ok(untraced);
        }
        let tracing = phase::start_tracing(self.host.connection(), phase::SLOWEST)?;
        let counters = self.receivers.counters.as_ref();
        counters.map(Counters::begin_exits).transpose()?;
        let traced = self.run_phase(phase, rate, load)?;
        let sent = phase::WARMUP_REQUESTS + traced.netrt.counters.requests;
        let exits = counters.map(|it| it.end_exits(sent)).transpose()?;
        Ok(PhaseData {
            receive_path: Some(tracing.finish()?),
            exit_costs: exits.flatten(),
            ..untraced
        })
    }

    fn run_phase(&self, phase: Phase, rate: Option<f64>, load: &Load) -> Result<PhaseData> {
        // Before the stream, whose time is measured out for the requests.
        let counters = self.receivers.counters.as_ref();
        let counting = counters.map(Counters::begin).transpose()?;
        let stream = match phase {
            Phase::Idle => None,
            Phase::Full | Phase::Equal => Some(phase::start_stream(
                self.host.outside(),
                &self.receivers.netstream,
                phase::Bulk::beside(load, rate),
            )?),
        };
        let before = cpu_times(self.host.connection())?;
        let netrt = phase::run_netrt(self.host.outside(), self.receivers.netrt.address, load)?;
        let host_cpu_busy_fraction =
            cpu_times(self.host.connection())?.busy_fraction_since(&before);
        let sent = phase::WARMUP_REQUESTS + netrt.counters.requests;
        let count = |(counters, counting): (&Counters, _)| counters.end(counting, sent);
        let guest = counters.zip(counting.as_ref()).map(count).transpose()?;
        // No answer at all is a result of the method, unless its receiver is gone.
        if netrt.samples.is_empty() {
            let receiver = &self.receivers.netrt.connection;
            receiver.require_alive(LIFE_SIGN_PATIENCE)?;
        }
        let netstream = stream.map(phase::Stream::finish).transpose()?;
        Ok(PhaseData {
            netrt,
            netstream,
            host_cpu_busy_fraction,
            guest,
            receive_path: None,
            exit_costs: None,
        })
    }
}
