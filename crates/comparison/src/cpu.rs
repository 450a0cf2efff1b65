//! How busy a host's CPUs are, as its own kernel counts.

/// CPU time of all CPUs together since boot, in the kernel's ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTimes {
    busy: u64,
    idle: u64,
}

impl CpuTimes {
    /// Reads "cpu user nice system idle iowait irq softirq steal guest `guest_nice`". Guest time is
    /// already in user's, and waiting for a disk is idle.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        if words.next() != Some("cpu") {
            return None;
        }
        let ticks: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let idle = ticks.get(3)? + ticks.get(4)?;
        let busy = ticks.iter().take(8).sum::<u64>() - idle;
        Some(Self { busy, idle })
    }

    /// The share of CPU time since `earlier` that was not idle: 0 to 1, of all CPUs.
    pub fn busy_fraction_since(&self, earlier: &Self) -> f64 {
        let busy = self.busy.saturating_sub(earlier.busy) as f64;
        let idle = self.idle.saturating_sub(earlier.idle) as f64;
        if busy + idle > 0.0 {
            busy / (busy + idle)
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_time_is_not_counted_twice() {
        let before = CpuTimes::parse("cpu  10 0 0 100 0 0 0 0 0 0").unwrap();
        let after = CpuTimes::parse("cpu  35 0 5 160 10 0 0 0 20 0").unwrap();
        assert!((after.busy_fraction_since(&before) - 0.3).abs() < 1e-12);
    }

    #[test]
    fn no_time_passed_is_idle_and_garbage_is_refused() {
        let times = CpuTimes::parse("cpu 1 2 3 4 5 6 7 8").unwrap();
        assert!(times.busy_fraction_since(&times).abs() < f64::EPSILON);
        for text in ["", "cpu", "cpu 1 2 3", "cpu0 1 2 3 4 5", "cpu a b c d e"] {
            assert_eq!(CpuTimes::parse(text), None, "{text}");
        }
    }
}
