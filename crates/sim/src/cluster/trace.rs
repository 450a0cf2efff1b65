//! What happens to a cluster whatever its policy does: arrivals, departures, wishes, failures, maintenance.
//!
//! All is drawn before anything is placed, so that all policies see the same (common random numbers). Events of one instant
//! keep their order here: VMs, failures, maintenance.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::scenario::{Flavour, Scenario};

/// The most events of a run: what some GiB of memory hold.
pub const MAX_EVENTS: usize = 100_000_000;

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// This VM comes.
    Arrive,
    /// It goes.
    Depart,
    /// Somebody wants it on another host.
    Migrate,
    /// Somebody wants it of this flavour.
    Resize(u16),
    /// This host fails.
    Fail,
    /// It returns.
    Return,
    /// It is emptied for maintenance.
    Drain,
    /// It takes VMs again.
    Resume,
}

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When, ns.
    pub at_ns: u64,
    /// The VM's number, or the host's.
    pub subject: u32,
    /// What.
    pub what: What,
}

/// All of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// In the order of time.
    pub events: Vec<Event>,
    /// The flavour that each VM comes with.
    pub flavours: Vec<u16>,
}

/// More events than memory is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a run has more than {MAX_EVENTS} events; give a shorter length, or fewer arrivals, migrations or resizes"
)]
pub struct TooManyEvents;

impl Trace {
    /// Draws a run.
    ///
    /// # Errors
    /// More than [`MAX_EVENTS`].
    pub fn draw(scenario: &Scenario, seed: u64) -> Result<Self, TooManyEvents> {
        let mut drawing = Drawing {
            end_ns: scenario.length_ns,
            events: Vec::new(),
        };
        let mut flavours = Vec::new();
        let mut random = generator(seed, 0);
        for &flavour in &scenario.start {
            drawing.vm(&mut random, &mut flavours, scenario, flavour, 0)?;
        }
        if let Some(gap_ns) = scenario.arrival_ns {
            let upper = upper_weights(&scenario.flavours);
            let mut at = exponential(&mut random, gap_ns);
            while at < scenario.length_ns as f64 {
                let flavour = choose(&mut random, &upper);
                drawing.vm(&mut random, &mut flavours, scenario, flavour, at as u64)?;
                at += exponential(&mut random, gap_ns);
            }
        }
        // A stream of their own: other VMs do not change failures.
        drawing.failures(&mut generator(seed, 1), scenario)?;
        drawing.maintenance(scenario)?;
        let mut events = drawing.events;
        events.sort_by_key(|event| event.at_ns);
        Ok(Self { events, flavours })
    }
}

struct Drawing {
    end_ns: u64,
    events: Vec<Event>,
}

impl Drawing {
    fn push(&mut self, at_ns: u64, subject: u32, what: What) -> Result<(), TooManyEvents> {
        if at_ns < self.end_ns {
            if self.events.len() == MAX_EVENTS {
                return Err(TooManyEvents);
            }
            self.events.push(Event {
                at_ns,
                subject,
                what,
            });
        }
        Ok(())
    }

    /// A VM's whole life, as it would be if all its wishes came true.
    fn vm(
        &mut self,
        random: &mut ChaCha8Rng,
        flavours: &mut Vec<u16>,
        scenario: &Scenario,
        first: u16,
        at_ns: u64,
    ) -> Result<(), TooManyEvents> {
        let number = u32::try_from(flavours.len()).map_err(|_| TooManyEvents)?;
        flavours.push(first);
        self.push(at_ns, number, What::Arrive)?;
        let flavour = &scenario.flavours[usize::from(first)];
        let end_ns = (flavour.lifetime_ns).map_or(self.end_ns, |mean_ns| {
            at_ns.saturating_add(exponential(random, mean_ns) as u64)
        });
        let last_ns = end_ns.min(self.end_ns);
        if let Some(gap_ns) = flavour.migration_ns {
            let mut next = at_ns as f64 + exponential(random, gap_ns);
            while next < last_ns as f64 {
                self.push(next as u64, number, What::Migrate)?;
                next += exponential(random, gap_ns);
            }
        }
        if let Some(gap_ns) = flavour.resize_ns {
            let mut next = at_ns as f64 + exponential(random, gap_ns);
            while next < last_ns as f64 {
                let to = random.random_range(0..flavour.resize_to.len());
                self.push(next as u64, number, What::Resize(flavour.resize_to[to]))?;
                next += exponential(random, gap_ns);
            }
        }
        if flavour.lifetime_ns.is_some() {
            self.push(end_ns, number, What::Depart)?;
        }
        Ok(())
    }

    fn failures(
        &mut self,
        random: &mut ChaCha8Rng,
        scenario: &Scenario,
    ) -> Result<(), TooManyEvents> {
        let Some(failures) = scenario.failures else {
            return Ok(());
        };
        for host in 0..scenario.hosts.len() as u32 {
            let mut at = exponential(random, failures.every_ns);
            while at < self.end_ns as f64 {
                self.push(at as u64, host, What::Fail)?;
                at += exponential(random, failures.repair_ns);
                self.push(at as u64, host, What::Return)?;
                at += exponential(random, failures.every_ns);
            }
        }
        Ok(())
    }

    fn maintenance(&mut self, scenario: &Scenario) -> Result<(), TooManyEvents> {
        let Some(maintenance) = scenario.maintenance else {
            return Ok(());
        };
        let hosts: Vec<u32> = (0..scenario.hosts.len() as u32).collect();
        let mut at_ns = maintenance.begin_ns;
        for batch in hosts.chunks(maintenance.hosts_at_once) {
            let end_ns = at_ns.saturating_add(maintenance.each_ns);
            for &host in batch {
                self.push(at_ns, host, What::Drain)?;
            }
            for &host in batch {
                self.push(end_ns, host, What::Resume)?;
            }
            at_ns = end_ns;
        }
        Ok(())
    }
}

fn generator(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(stream);
    random
}

/// At least a nanosecond: no process stands still.
fn exponential(random: &mut ChaCha8Rng, mean_ns: f64) -> f64 {
    let below_1: f64 = random.random();
    (-mean_ns * (1.0 - below_1).ln()).max(1.0)
}

/// The sums of weights up to each flavour.
fn upper_weights(flavours: &[Flavour]) -> Vec<f64> {
    (flavours.iter())
        .scan(0.0, |sum, flavour| {
            *sum += flavour.weight;
            Some(*sum)
        })
        .collect()
}

fn choose(random: &mut ChaCha8Rng, upper: &[f64]) -> u16 {
    let all = upper.last().copied().unwrap_or_default();
    let drawn = random.random::<f64>() * all;
    let found = upper.partition_point(|&upper| upper <= drawn);
    found.min(upper.len().saturating_sub(1)) as u16
}
