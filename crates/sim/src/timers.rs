//! The next of many timers: a tournament tree.
//!
//! One time per timer; setting one costs the tree's depth, the next one is at the root. Nothing is allocated after the
//! start. Of equal times, the lowest number is first: task releases come before what servers and CPUs do.

/// A timer that is not set.
pub const NEVER: u64 = u64::MAX;

/// Timers 0 to n - 1.
#[derive(Debug, Clone)]
pub struct Timers {
    times: Vec<u64>,
    /// The winner of each match; the matches of 2i and 2i + 1 meet in i, the final is 1.
    winners: Vec<u32>,
    leaves: usize,
}

impl Timers {
    /// `count` timers, none set.
    pub fn new(count: usize) -> Self {
        let leaves = count.max(2).next_power_of_two();
        let mut timers = Self {
            times: vec![NEVER; leaves],
            winners: vec![0; leaves],
            leaves,
        };
        for node in (1..leaves).rev() {
            timers.play(node);
        }
        timers
    }

    /// The earliest timer: (time, number).
    pub fn first(&self) -> (u64, usize) {
        let winner = self.winners[1] as usize;
        (self.times[winner], winner)
    }

    /// Sets a timer, or takes it back ([`NEVER`]).
    pub fn set(&mut self, timer: usize, time: u64) {
        if self.times[timer] == time {
            return;
        }
        self.times[timer] = time;
        let mut node = usize::midpoint(self.leaves, timer);
        while node > 0 {
            let before = self.winners[node];
            self.play(node);
            // The same loser elsewhere: nothing above has changed.
            if self.winners[node] == before && before as usize != timer {
                return;
            }
            node /= 2;
        }
    }

    fn play(&mut self, node: usize) {
        let side = |child: usize| {
            if child >= self.leaves {
                child - self.leaves
            } else {
                self.winners[child] as usize
            }
        };
        let (left, right) = (side(2 * node), side(2 * node + 1));
        let winner = if self.times[right] < self.times[left] {
            right
        } else {
            left
        };
        self.winners[node] = winner as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_is_the_least(
            count in 1_usize..40,
            sets in proptest::collection::vec((0_usize..40, 0_u64..9), 0..200),
        ) {
            let mut timers = Timers::new(count);
            let mut model = vec![NEVER; count];
            for (timer, time) in sets {
                let (timer, time) = (timer % count, if time == 8 { NEVER } else { time });
                timers.set(timer, time);
                model[timer] = time;
                let least = (0..count).min_by_key(|&timer| (model[timer], timer)).expect("not empty");
                if model[least] == NEVER {
                    prop_assert_eq!(timers.first().0, NEVER);
                } else {
                    prop_assert_eq!(timers.first(), (model[least], least));
                }
            }
        }
    }
}
