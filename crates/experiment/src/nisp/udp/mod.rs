//! With MMPP-2 bursts of UDP packets at rising mean rates, as in the paper.
//!
//! The peaks are looked for once. Then every round has every rate up to the best of them, and none, for
//! every method; and the rate at which that peak was found, without jobs. At each rate the methods take
//! turns, beginning with another one each round, and the others stand still. Before a turn the receiver
//! gets what the last one has left it.

mod answer;
mod data;
mod figures;
mod rates;
mod shown;
mod turn;

pub use answer::answer;
pub use data::{RateData, RunData, samples_table};
pub use figures::{NAME, assemble, required};
pub use shown::page;

#[cfg(test)]
mod results_tests;

use super::{BULK, Place, Processes, SINK_PORT, Times, beside};
use crate::engine::Limit;
use crate::engine::rounds::{self, Outcome, share};
use crate::testbed::cpu_times;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use steadyvm_host::Method;
use steadyvm_lab::host::EmulatedHost;
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{At, Error, Result};
use steadyvm_load::flood::{self, Flooded};
use steadyvm_load::job::{FEWEST_JOBS, Ran, Task};
use steadyvm_load::mmpp::Mmpp2;
use turn::Experiment;

/// The paper's packets are small: their number is what counts.
const PACKET_BYTES: usize = 64;
/// The first rate at which the peak is looked for; each further one is twice that before.
const FIRST_PACKETS_PER_S: f64 = 1000.0;
/// More than any emulated host receives: where the search ends, if nothing else is asked for.
pub const LAST_PACKETS_PER_S: u32 = 64_000;
/// What goes on while a receiver has the CPU for itself: at each of these rates, and in each round without jobs.
const NO_JOBS: Task = Task {
    period_us: 30_000,
    work: 0,
    jobs: 60,
    backlog: false,
};
/// A method that receives less than this share of its best has its peak behind it.
const PAST_THE_PEAK: f64 = 0.5;
/// A tenth of a second in which the process of the jobs sleeps.
const IDLE_TENTH: Task = Task {
    period_us: 100_000,
    work: 0,
    jobs: 2,
    backlog: false,
};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Methods, in the order shown.
    pub methods: Vec<Method>,
    /// The jobs'.
    pub times: Times,
    /// The highest rate at which a peak is looked for, in packets a second.
    pub last_packets_per_s: u32,
    /// How many rates from 0 (not counted) to the best method's peak.
    pub rates: u32,
    /// Jobs a method and rate, over all rounds.
    pub jobs: u64,
    /// Rounds.
    pub rounds: u64,
    /// Seed of the schedule of the first round's first rate; each round and rate has another one.
    pub seed: u64,
}

impl Options {
    /// Refuses what cannot be measured.
    pub fn check(&self) -> Result<()> {
        let wrong = if self.methods.is_empty() {
            "no method is given".to_owned()
        } else if self.rates == 0 {
            "there must be a rate at least".to_owned()
        } else if self.rounds == 0 {
            "there must be at least one round".to_owned()
        } else if self.jobs / self.rounds < FEWEST_JOBS as u64 {
            let Self { jobs, rounds, .. } = self;
            format!("{jobs} jobs in {rounds} rounds: jitter takes {FEWEST_JOBS} a round at least")
        } else {
            return Ok(());
        };
        Err(Error::input("measure NISP's experiment", wrong)
            .what_to_do("see --jobs, --rounds and --rates in steadyvm-lab experiment nisp --help"))
    }

    /// The jobs of a round, counted from 0: all rounds together have as many as asked for.
    fn jobs_in(&self, round: u64) -> u64 {
        share(self.jobs, self.rounds, round)
    }

    /// The seed of the schedule of one turn in one round, both counted from 0: the rates, and the one without
    /// jobs.
    fn seed_of(&self, round: u64, turn: usize) -> u64 {
        let turns = u64::from(self.rates) + 2;
        let number = round.wrapping_mul(turns).wrapping_add(turn as u64);
        self.seed.wrapping_add(number)
    }
}

/// Measures everything. See the module's introduction for how.
///
/// # Errors
/// Options that cannot be measured, a host that does not come up or does not answer, and hosts of which
/// none receives a packet.
pub fn run(
    laboratory: &Laboratory,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Outcome<RunData>> {
    options.check()?;
    let experiment = Experiment::of(options);
    let measured = rounds::run(laboratory, &experiment, observer)?;
    let found = experiment.into_found()?;
    let Outcome {
        data: methods,
        dropped_rounds,
        disturbance,
    } = measured.by_row(&options.methods);
    let peaks = found.peaks.iter().map(|peak| peak.received_per_s);
    let data = RunData {
        times: options.times,
        asked_packets_per_s: found.asked_packets_per_s,
        alone_asked_packets_per_s: found.best.asked_per_s,
        peaks_packets_per_s: peaks.collect(),
        methods,
    };
    Ok(Outcome {
        data,
        dropped_rounds,
        disturbance,
    })
}

/// A job that meets this says more of the machine than of its host. The machine's hypervisor takes CPUs away in
/// pieces of some tenths of a millisecond, many in a row. Who looks now and then sees a piece only if it
/// looks within it, and of that the rest: a fraction of what a job loses, whose time to spare until its
/// first deadline is four times this.
fn standstill(times: &Times) -> Limit {
    let period = Duration::from_millis(1);
    let deadline = Duration::from_micros(times.deadlines_us[0]);
    Limit {
        period,
        lost: Duration::from_micros(times.slack_us()) / 4,
        periods: deadline.div_duration_f64(period).ceil() as usize,
    }
}

/// The most packets a second that a receiver got, and the rate of the source then.
#[derive(Debug, Clone, Copy, Default)]
struct Peak {
    asked_per_s: f64,
    received_per_s: f64,
}

impl Peak {
    fn better(self, other: Self) -> Self {
        if other.received_per_s > self.received_per_s {
            other
        } else {
            self
        }
    }
}

impl Place {
    /// The most packets a second that the receiver gets at any rate up to `last`, with jobs of no length.
    fn peak(&mut self, last: f64) -> Result<Peak> {
        let (mut best, mut rate) = (Peak::default(), FIRST_PACKETS_PER_S.min(last));
        while rate <= last {
            let (measured, _) = self.flooded(rate, 0, &NO_JOBS)?;
            if measured.received_per_s < PAST_THE_PEAK * best.received_per_s {
                break;
            }
            best = best.better(Peak {
                asked_per_s: rate,
                received_per_s: measured.received_per_s,
            });
            rate *= 2.0;
        }
        Ok(best)
    }

    /// Does jobs at one rate.
    fn measure(&mut self, packets_per_s: f64, jobs: &Task, seed: u64) -> Result<RateData> {
        self.processes.drain()?;
        let (measured, sent_packets_per_s) = self.flooded(packets_per_s, seed, jobs)?;
        Ok(RateData {
            ran: measured.ran,
            sent_packets_per_s,
            received_packets_per_s: measured.received_per_s,
            cpu_busy_fraction: measured.cpu_busy_fraction,
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

impl Processes {
    /// Lets the sink have what has been sent already: packets wait on the way to a host that stands still,
    /// and a CPU that jobs fill leaves some to the sink's next turn.
    fn drain(&mut self) -> Result<()> {
        let mut before = self.count()?.received;
        loop {
            self.run(&IDLE_TENTH)?;
            let received = self.count()?.received;
            if received == before {
                return Ok(());
            }
            before = received;
        }
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
    let (cpu_before, count_before) = (cpu_times(host.connection())?, processes.count()?);
    let ran = processes.run(task)?;
    let received_per_s = processes.count()?.per_s_since(&count_before);
    let cpu_busy_fraction = cpu_times(host.connection())?.busy_fraction_since(&cpu_before);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nisp::SCALE;
    use steadyvm_lab::Blame;

    type Spoil = fn(&mut Options);

    fn options() -> Options {
        Options {
            methods: vec![Method::Vanilla, Method::PreemptRt],
            times: Times::scaled(SCALE),
            last_packets_per_s: LAST_PACKETS_PER_S,
            rates: 2,
            jobs: 11,
            rounds: 3,
            seed: 7,
        }
    }

    #[test]
    fn rounds_share_the_jobs_out_and_every_turn_has_a_schedule_of_its_own() {
        let options = options();
        let jobs: Vec<u64> = (0..3).map(|round| options.jobs_in(round)).collect();
        assert_eq!(jobs, [4, 4, 3]);
        let seeds = (0..3).flat_map(|round| (0..4).map(move |turn| (round, turn)));
        let seeds: Vec<u64> = seeds
            .map(|(round, turn)| options.seed_of(round, turn))
            .collect();
        assert_eq!(seeds, (7..19).collect::<Vec<u64>>());
        let last = Options {
            seed: u64::MAX,
            ..options
        };
        assert_eq!(last.seed_of(0, 1), 0);
    }

    #[test]
    fn what_cannot_be_measured_is_refused_first() {
        options().check().unwrap();
        let spoilt: [Spoil; 4] = [
            |it| it.methods.clear(),
            |it| it.rates = 0,
            |it| it.rounds = 0,
            |it| it.jobs = 8,
        ];
        for spoil in spoilt {
            let mut options = options();
            spoil(&mut options);
            let error = options.check().unwrap_err();
            assert_eq!(error.blame, Blame::Input, "{error}");
        }
    }
}
