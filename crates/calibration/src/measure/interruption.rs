//! How long a thread that never waits does not run: interrupts, the kernel's threads of higher rank, firmware (SMI), and a
//! hypervisor below this host. As `osnoise` and `hwlatdetect` look for it: the largest gap between two readings of the clock.

use std::thread::sleep;
use std::time::Instant;

use super::pace::BURST;

const LEAST: usize = 5;

/// The largest gap of each burst, ns.
pub(super) fn samples(until: Instant) -> Vec<u64> {
    let mut samples = Vec::new();
    while samples.len() < LEAST || Instant::now() < until {
        let begun = Instant::now();
        let (mut last, mut longest) = (begun, 0);
        while last.duration_since(begun) < BURST {
            let now = Instant::now();
            longest = longest.max(now.duration_since(last).as_nanos());
            last = now;
        }
        samples.push(longest as u64);
        sleep(begun.elapsed());
    }
    samples
}
