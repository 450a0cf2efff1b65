//! Bursts, so that what computes at a real-time rank gives way.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// No burst is longer by more than one step of what is measured.
pub(super) const BURST: Duration = Duration::from_millis(10);

/// A burst after another, with as much sleep between them.
#[derive(Debug)]
pub(super) struct Pace {
    begun: Instant,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
        }
    }

    /// Between two steps. Sleeps if the burst is over, as long as it was; tells whether it did.
    pub(super) fn rest(&mut self) -> bool {
        let ran = self.begun.elapsed();
        if ran < BURST {
            return false;
        }
        sleep(ran);
        self.begun = Instant::now();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_time_is_slept() {
        let begun = Instant::now();
        let (mut pace, mut rests) = (Pace::new(), 0);
        while rests < 3 {
            rests += u32::from(pace.rest());
        }
        assert!(begun.elapsed() >= 6 * BURST, "{:?}", begun.elapsed());
    }
}
