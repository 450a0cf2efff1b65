//! With MMPP-2 bursts of UDP packets at rising mean rates, as in the paper.

use super::{
    BULK, DEADLINES_US, EXECUTION_US, PERIOD_US, Place, Processes, SINK_PORT, beside, too_few_jobs,
};
use crate::compare::CpuTimes;
use crate::error::{At, Result};
use crate::host::{EmulatedHost, keep_kernel_logs};
use crate::laboratory::Laboratory;
use crate::progress::{News, Observer, task};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use steadyvm_host::Method;
use steadyvm_latency::flood::{self, Flooded};
use steadyvm_latency::job::{Punctuality, Ran, Task};
use steadyvm_latency::mmpp::Mmpp2;
use steadyvm_latency::nisp::udp::{Curve, Point, Results};

/// The paper's packets are small: their number is what counts.
const PACKET_BYTES: usize = 64;
/// The first rate at which the peak is looked for; each further one is twice that before.
const FIRST_PACKETS_PER_S: f64 = 1000.0;
/// More than any emulated host receives: where the search ends, if nothing else is asked for.
pub const LAST_PACKETS_PER_S: u32 = 64_000;
/// Jobs' time at each of these rates.
const PEAK_JOBS: u64 = 60;
/// A method that receives less than this share of its best has its peak behind it.
const PAST_THE_PEAK: f64 = 0.5;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Methods, in the order shown.
    pub methods: Vec<Method>,
    /// The highest rate at which a peak is looked for, in packets a second.
    pub last_packets_per_s: u32,
    /// How many rates from 0 (not counted) to the best method's peak.
    pub rates: u32,
    /// Jobs at each rate.
    pub jobs: u64,
    /// Seed of the first rate's schedule.
    pub seed: u64,
}

/// Measures everything: at each rate the methods take turns, the others stand still.
pub fn run(laboratory: &Laboratory, options: &Options, observer: &dyn Observer) -> Result<Results> {
    let mut places = Place::boot_all(laboratory, &options.methods, &[], observer)?;
    let peaks = task(observer, "find the peaks", || {
        places
            .iter_mut()
            .map(|place| place.peak(options.last_packets_per_s.into()))
            .collect::<Result<Vec<_>>>()
    })?;
    // The best method's: one that collapses under a flood would hide what happens before.
    let best = peaks.iter().copied().fold(0.0, f64::max);
    let mut points = vec![Vec::new(); places.len()];
    task(observer, "measure", || -> Result<()> {
        for step in 0..=options.rates {
            let rate = best * f64::from(step) / f64::from(options.rates);
            for (place, points) in places.iter_mut().zip(&mut points) {
                observer.tell(News::Advance {
                    done: step.into(),
                    of: u64::from(options.rates) + 1,
                    detail: format!("{}: {rate:.0} packets/s", place.method),
                });
                points.push(place.measure(rate, options.jobs, options.seed + u64::from(step))?);
            }
        }
        Ok(())
    })?;
    keep_kernel_logs(places.iter_mut().map(|place| &mut place.host), observer);
    let curves = places.iter().zip(peaks).zip(points);
    Ok(Results {
        schema_version: 2,
        period_us: PERIOD_US,
        execution_us: EXECUTION_US,
        deadlines_us: DEADLINES_US.to_vec(),
        peak_packets_per_s: best,
        seed: options.seed,
        methods: curves
            .map(|((place, peak_packets_per_s), points)| Curve {
                name: place.method.to_string(),
                peak_packets_per_s,
                points,
            })
            .collect(),
    })
}

impl Place {
    /// The most packets a second that the receiver gets at any rate up to `last`, with jobs of no length.
    fn peak(&mut self, last: f64) -> Result<f64> {
        let jobs = Task {
            work: 0,
            ..self.jobs(PEAK_JOBS)
        };
        let (mut best, mut rate): (f64, f64) = (0.0, FIRST_PACKETS_PER_S.min(last));
        self.host.resume()?;
        while rate <= last {
            let (measured, _) = self.flooded(rate, 0, &jobs)?;
            if measured.received_per_s < PAST_THE_PEAK * best {
                break;
            }
            best = best.max(measured.received_per_s);
            rate *= 2.0;
        }
        self.host.pause()?;
        Ok(best)
    }

    fn measure(&mut self, packets_per_s: f64, jobs: u64, seed: u64) -> Result<Point> {
        let task = self.jobs(jobs);
        self.host.resume()?;
        let (measured, sent_packets_per_s) = self.flooded(packets_per_s, seed, &task)?;
        self.host.pause()?;
        let punctuality =
            Punctuality::of(&measured.ran.done, &DEADLINES_US.map(Duration::from_micros));
        Ok(Point {
            asked_packets_per_s: packets_per_s,
            sent_packets_per_s,
            received_packets_per_s: measured.received_per_s,
            cpu_busy_fraction: measured.cpu_busy_fraction,
            waited_mean_us: measured.ran.waited_ns as f64 / 1e3 / jobs as f64,
            punctuality: punctuality.ok_or_else(too_few_jobs)?,
        })
    }

    /// Does the jobs while packets come, and tells how many a second were sent.
    fn flooded(&mut self, packets_per_s: f64, seed: u64, task: &Task) -> Result<(Measured, f64)> {
        let (host, processes) = (&self.host, &mut self.processes);
        if packets_per_s <= 0.0 {
            return Ok((watched(host, processes, task)?, 0.0));
        }
        let flood = |stop: &AtomicBool| send_flood(host, packets_per_s, seed, stop);
        let (measured, sent) = beside(flood, || watched(host, processes, task))?;
        Ok((measured, sent.sent as f64 / sent.duration_s))
    }
}

/// What the processes did.
struct Measured {
    ran: Ran,
    received_per_s: f64,
    cpu_busy_fraction: f64,
}

/// Does jobs, and looks at what else happened meanwhile.
fn watched(host: &EmulatedHost, processes: &mut Processes, task: &Task) -> Result<Measured> {
    let (cpu_before, count_before) = (CpuTimes::read(host.connection())?, processes.count()?);
    let ran = processes.run(task)?;
    let received_per_s = processes.count()?.per_s_since(&count_before);
    let cpu_busy_fraction = CpuTimes::read(host.connection())?.busy_fraction_since(&cpu_before);
    Ok(Measured {
        ran,
        received_per_s,
        cpu_busy_fraction,
    })
}

fn send_flood(
    host: &EmulatedHost,
    packets_per_s: f64,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Flooded> {
    host.outside().enter(|| {
        let what = "send packets";
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).doing(what)?;
        socket.connect((BULK.host(), SINK_PORT)).doing(what)?;
        let schedule = Mmpp2::with_mean(packets_per_s).schedule(seed);
        flood::send(&socket, schedule, PACKET_BYTES, stop).doing(what)
    })
}
