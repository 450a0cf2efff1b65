//! The host: two cards whose interrupts share a CPU, a service, a stream, and the thread between the cards'.

use super::packets::SPINNER;
use super::{Beside, Row};
use crate::engine::rounds::station;
use crate::testbed::phase::{self, Load, Receiver};
use steadyvm_lab::agent::Process;
use steadyvm_lab::host::{BULK, EmulatedHost, HostSpecification, RT};
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::{Error, Result};
use steadyvm_load::netrt::ClientRun;
use steadyvm_trace::receive_path::Report;

/// The CPU of everything but the cards' interrupts and the spinner.
const OTHER_CPU: &str = "1";
/// Every packet's parts are wanted.
const ALL_PACKETS: u64 = 1_000_000;
/// From the stream's beginning to the first request: what the host is told meanwhile takes this long at most.
const MARGIN_S: u32 = 4;

/// Puts the real-time card's threads above the bulk card's, which have FIFO 50; names a shell after what it will do.
const PREPARE: &str = "pgrep 'irq/[0-9]*-rt(-|$)' > /dev/null
    for thread in $(pgrep 'irq/[0-9]*-rt(-|$)'); do chrt -f -p 80 $thread; done
    [ -p /run/never ] || mkfifo /run/never";
/// Computes 15 of every 60 ms. Reading what nobody writes waits without starting a process.
const SPIN: &str = "exec 3<> /run/never; echo spins; while :; do \
    end=$((${EPOCHREALTIME/./} + 15000)); while ((${EPOCHREALTIME/./} < end)); do :; done; \
    read -t 0.045 -u 3 _ || :; done";

/// What one measurement gives.
#[derive(Debug)]
pub struct Sample {
    /// What `explain` says, with the parts of every packet's time.
    pub report: Report,
    /// What the client measured.
    pub netrt: ClientRun,
    /// What the stream carried.
    pub mbit_per_s: f64,
}

/// A booted host.
pub struct InversionStation {
    row: Row,
    host: EmulatedHost,
    stream: Receiver,
    broken: bool,
    _service: Process,
}

station!(InversionStation);

impl InversionStation {
    /// Boots a row's host and stops its clock.
    ///
    /// # Errors
    /// It does not come up, or refuses a priority.
    pub fn boot(laboratory: &Laboratory, row: Row, on_cpu: usize) -> Result<Self> {
        Self::boot_unnamed(laboratory, row, on_cpu).map_err(|error| named(row, error))
    }

    fn boot_unnamed(laboratory: &Laboratory, row: Row, on_cpu: usize) -> Result<Self> {
        let specification = HostSpecification {
            boot_on_cpu: Some(on_cpu),
            ..laboratory.host(row.0.name, row.0.kernel)?
        };
        let mut host = EmulatedHost::boot(&specification)?;
        let threaded = u8::from(row.0.bulk_in_threads);
        let prepare = format!(
            "{PREPARE}\n ln -sf \"$(command -v bash)\" /run/{SPINNER}
             echo {threaded} > /sys/class/net/{}/threaded",
            BULK.name
        );
        host.connection().run(&["sh", "-euc", &prepare])?;
        let listen = format!("{}:{}", RT.host(), phase::NETRT_PORT);
        let words = [
            "taskset", "-c", OTHER_CPU, "chrt", "-f", "90", "steadyvm", "netrt", "serve", &listen,
        ];
        let mut service = host.connection().spawn(&words)?;
        service.wait_for_line("ready", phase::SERVICE_PATIENCE)?;
        let stream = Receiver {
            connection: host.connection().clone(),
            address: BULK.host(),
        };
        host.pause()?;
        host.spread_processors()?;
        Ok(Self {
            row,
            host,
            stream,
            broken: false,
            _service: service,
        })
    }

    /// Lets the host run for one condition.
    ///
    /// # Errors
    /// It died: the station is broken from then on.
    pub fn measure(&mut self, beside: Beside, load: &Load) -> Result<Sample> {
        let measured = self.resume_and_measure(beside, load);
        self.broken = measured.is_err();
        measured.map_err(|error| named(self.row, self.host.with_state(error, [])))
    }

    fn resume_and_measure(&mut self, beside: Beside, load: &Load) -> Result<Sample> {
        self.host.resume()?;
        let host = self.host.connection();
        let tracing = phase::start_tracing(host, ALL_PACKETS)?;
        let spinner = match beside {
            Beside::Stream => None,
            Beside::StreamAndSpinner => Some(self.start_spinner()?),
        };
        let bulk = phase::Bulk::beside(load, None);
        let bulk = phase::Bulk {
            seconds: bulk.seconds + MARGIN_S,
            ..bulk
        };
        let stream = phase::start_stream(self.host.outside(), &self.stream, bulk)?;
        let aside = format!("for it in $(pgrep iperf3); do taskset -acp {OTHER_CPU} $it; done");
        host.run(&["sh", "-euc", &aside])?;
        let netrt = phase::run_netrt(self.host.outside(), RT.host(), load)?;
        if let Some(spinner) = spinner {
            spinner.signal(libc::SIGKILL)?;
            spinner.finish(phase::SERVICE_PATIENCE)?;
        }
        let (report, _) = tracing.report()?;
        let mbit_per_s = stream.finish()?.mbit_per_s;
        self.host.pause()?;
        Ok(Sample {
            report,
            netrt,
            mbit_per_s,
        })
    }

    /// On the CPU of the cards' interrupts, between their threads.
    fn start_spinner(&self) -> Result<Process> {
        let shell = format!("/run/{SPINNER}");
        let words = ["taskset", "-c", "0", "chrt", "-f", "60", &shell, "-c", SPIN];
        let mut spinner = self.host.connection().spawn(&words)?;
        spinner.wait_for_line("spins", phase::SERVICE_PATIENCE)?;
        Ok(spinner)
    }
}

fn named(row: Row, mut error: Error) -> Error {
    error.what = format!("{row}: {}", error.what);
    error
}
