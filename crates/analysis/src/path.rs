//! Packets on a shared path: busy windows with jitter propagation (compositional performance analysis).
//!
//! Model: a path is a resource that handles one packet at a time: a receive CPU, a send thread, a NIC queue.
//! Streams share it. The more urgent level goes first, one level is first in, first out, and a packet that is
//! begun is finished. Packets of a stream come a period apart, each up to `jitter` late.
//!
//! Formula: with eta(w) = ceil((w + J) / T) arrivals in a window w, the q-th packet of a busy window begins at
//! w(q) = B + (q - 1) C + sum over streams of the same and higher levels of eta(w(q) + 1) C, and its response is
//! w(q) + C - max(0, (q - 1) T - J). B is what is in front at once: the wake-up of the path, and the packets of
//! less urgent levels that are finished before levels are looked at again. The bound is the largest response of
//! the busy window. What a path delays one packet more than another is jitter at the next path.
//!
//! Precondition: the load of the level and of those above is below 1; otherwise there is no bound.
//! Complexity: pseudo-polynomial, paid from [`Work`]. Sources: Tindell and Clark 1994 (holistic analysis); Davis,
//! Burns, Bril and Lukkien 2007 (without preemption); Richter 2005 (event models), Henia et al. 2005 (propagation).

use crate::{
    error::{Error, not_negative, positive},
    ratio::{Fraction, Interval},
    time::{MAX_TIME, Time, div_ceil},
    work::Work,
};

/// When packets of a stream come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrivals {
    /// T, time.
    pub period: Time,
    /// J, time.
    pub jitter: Time,
}

/// A stream of packets on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// C: handling one packet, time.
    pub packet: Time,
    /// The higher, the more urgent.
    pub level: i64,
    /// When its packets come.
    pub arrivals: Arrivals,
}

/// What is in front of a packet whatever the streams do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Front {
    /// From a packet's arrival on an idle path to the first instruction of its handling, time.
    pub interrupt: Time,
    /// Packets of less urgent levels that are finished before levels are looked at again, count; at least 1, as a
    /// packet that is begun is finished.
    pub batch: Time,
}

/// The longest response of a stream on a path, and what it is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// From arrival to the end of its handling, time.
    pub bound: Time,
    /// Which packet of the busy window that is, from 1.
    pub packet: Time,
    /// When that packet came, after the busy window began, time.
    pub arrived: Time,
    /// The wake-up of the path and the batch of less urgent packets, time.
    pub front: Time,
    /// Handling of its own stream up to it, time.
    pub own: Time,
    /// Handling of each stream before it, in the order given, time; 0 for its own.
    pub others: Vec<Time>,
}

/// Why there is no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unbounded {
    /// The level and those above load the path with 100 % or more.
    Overloaded,
    /// The busy window is longer than the analysis looks.
    Undecided,
}

impl Arrivals {
    /// Checks the range of both.
    ///
    /// # Errors
    /// A period that is not positive, a jitter that is negative, times beyond 2^53.
    pub fn checked(self) -> Result<Self, Error> {
        positive("the time between packets t", self.period)?;
        not_negative("the jitter of packets", self.jitter)?;
        Ok(self)
    }

    /// The most packets in a window.
    const fn most(self, window: Time) -> Time {
        div_ceil(window + self.jitter, self.period)
    }

    /// The least time from the first of `count` packets to the last.
    fn least(self, count: Time) -> Time {
        (count - 1)
            .saturating_mul(self.period)
            .saturating_sub(self.jitter)
            .max(0)
    }
}

/// The longest response of `streams[index]`.
///
/// # Errors
/// No bound: overload, or a busy window beyond the allowance of work or of time.
///
/// # Panics
/// Never for an index in range.
pub fn response(
    streams: &[Stream],
    index: usize,
    front: Front,
    work: &mut Work,
) -> Result<Response, Unbounded> {
    let own = streams[index];
    let ahead = || (streams.iter().enumerate()).filter(|&(_, stream)| stream.level >= own.level);
    let load = Interval::of(
        ahead().map(|(_, s)| Fraction::new(s.packet.into(), s.arrivals.period.into())),
    );
    // Where the load could be 1 the busy window need not end.
    if load.compare(Fraction::new(1, 1)) != Some(std::cmp::Ordering::Less) {
        return Err(Unbounded::Overloaded);
    }
    // Undeclared traffic is of the least level, and its packets are like ours.
    let lower = (streams.iter())
        .filter(|stream| stream.level < own.level)
        .map(|stream| stream.packet)
        .fold(own.packet, Time::max);
    let blocked = front
        .interrupt
        .saturating_add(front.batch.saturating_mul(lower));
    let grown = |packets: Time, window: Time, with_own: bool| -> Option<Time> {
        let mut sum = packets.checked_mul(own.packet)?.checked_add(blocked)?;
        for (_, stream) in ahead().filter(|&(other, _)| with_own || other != index) {
            sum = sum.checked_add(stream.arrivals.most(window).checked_mul(stream.packet)?)?;
        }
        (sum <= MAX_TIME).then_some(sum)
    };
    let mut fixed_point = |start: Time, packets: Time, with_own: bool, later: Time| {
        let mut window = start;
        loop {
            work.spend(streams.len(), window)
                .map_err(|_| Unbounded::Undecided)?;
            match grown(packets, window + later, with_own) {
                Some(next) if next == window => return Ok(window),
                Some(next) => window = next,
                None => return Err(Unbounded::Undecided),
            }
        }
    };
    // The longest busy window of the level: what comes in it, comes while the path is busy.
    let busy = fixed_point(blocked.max(1), 0, true, 0)?;
    let mut worst: Option<Response> = None;
    let mut begins = blocked;
    for packet in 1.. {
        begins = fixed_point(begins, packet - 1, false, 1)?;
        let arrived = own.arrivals.least(packet);
        let bound = begins + own.packet - arrived;
        if worst.as_ref().is_none_or(|worst| bound > worst.bound) {
            let others = streams.iter().enumerate().map(|(other, stream)| {
                let before = other != index && stream.level >= own.level;
                if before {
                    stream.arrivals.most(begins + 1) * stream.packet
                } else {
                    0
                }
            });
            worst = Some(Response {
                bound,
                packet,
                arrived,
                front: blocked,
                own: packet * own.packet,
                others: others.collect(),
            });
        }
        if own.arrivals.least(packet + 1) >= busy {
            break;
        }
    }
    worst.ok_or(Unbounded::Undecided)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn stream(packet: Time, level: i64, period: Time, jitter: Time) -> Stream {
        let arrivals = Arrivals { period, jitter };
        Stream {
            packet,
            level,
            arrivals,
        }
    }

    /// Earliest arrivals: the first as late as jitter lets it, all others as early.
    fn arrivals(stream: Stream, until: Time) -> Vec<Time> {
        (1..=Time::MAX)
            .map(|count| stream.arrivals.least(count))
            .take_while(|&time| time < until)
            .collect()
    }

    /// The path, packet by packet: the longest response of `index` with a batch of less urgent packets just begun.
    fn simulated(streams: &[Stream], index: usize, front: Time, offset: &[Time]) -> Time {
        let until = 400;
        let mut queues: Vec<VecDeque<Time>> = (streams.iter().zip(offset))
            .map(|(&stream, offset)| {
                arrivals(stream, until)
                    .into_iter()
                    .map(|t| t + offset)
                    .collect()
            })
            .collect();
        let (mut now, mut longest) = (front, 0);
        loop {
            let next = (0..streams.len())
                .filter(|&s| queues[s].front().is_some_and(|&came| came <= now))
                // The analysed stream loses ties of arrival.
                .min_by_key(|&s| (-streams[s].level, queues[s][0], s == index));
            let Some(next) = next else {
                match queues.iter().filter_map(|queue| queue.front()).min() {
                    Some(&came) => now = came,
                    None => return longest,
                }
                continue;
            };
            let came = queues[next].pop_front().unwrap();
            now += streams[next].packet;
            if next == index {
                longest = longest.max(now - came);
            }
        }
    }

    /// No simulated packet is later than its bound, and the bound is reached: it is not just large.
    #[test]
    fn bounds_hold_and_are_reached() {
        use rand::{Rng, SeedableRng};
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(9);
        let (mut checked, mut reached) = (0, 0);
        while checked < 2_000 {
            let streams: Vec<Stream> = (0..rng.random_range(1..=4))
                .map(|_| {
                    let period = rng.random_range(4..40);
                    stream(
                        rng.random_range(1..=5),
                        rng.random_range(0..3),
                        period,
                        rng.random_range(0..2 * period),
                    )
                })
                .collect();
            let front = Front {
                interrupt: rng.random_range(0..3),
                batch: rng.random_range(1..3),
            };
            let Ok(found) = response(&streams, 0, front, &mut Work::default()) else {
                continue;
            };
            checked += 1;
            let ours = found.front + found.own + found.others.iter().sum::<Time>() - found.arrived;
            assert_eq!(ours, found.bound, "the terms add up: {streams:?}");
            let mut longest = 0;
            for _ in 0..20 {
                let offset: Vec<Time> = streams.iter().map(|_| rng.random_range(0..4)).collect();
                for offset in [vec![0; streams.len()], offset] {
                    longest = longest.max(simulated(&streams, 0, found.front, &offset));
                }
            }
            assert!(
                longest <= found.bound,
                "{streams:?} {front:?}: {longest} > {}",
                found.bound
            );
            reached += usize::from(longest == found.bound);
        }
        assert!(reached > checked / 2, "{reached} of {checked}");
    }

    #[test]
    fn a_full_path_has_no_bound() {
        let full = [stream(5, 1, 10, 0), stream(5, 2, 10, 0)];
        let of = |index| response(&full, index, Front::default(), &mut Work::default());
        assert_eq!(of(0), Err(Unbounded::Overloaded));
        assert_eq!(of(1).unwrap().bound, 5);
        let little = response(&full[..1], 0, Front::default(), &mut Work::new(1));
        assert_eq!(little, Err(Unbounded::Undecided));
    }
}
