//! Notices when this machine itself stands still: when its own hypervisor takes all of its CPUs away
//! for a while, every emulated host in it stops too, whatever its method.

use super::Standstills;
use crate::error::Result;
use crate::progress::{News, Observer};
use crate::scheduling;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// The watch looks at the clock this often: too rarely to cost anything measurable. A kernel that runs
/// gives its first thread a CPU within a fraction of a millisecond.
pub const PERIOD: Duration = Duration::from_millis(2);
/// The time between two looks that counts as standing still, where nothing that is measured says more.
pub const STANDSTILL: Duration = Duration::from_millis(15);

/// A thread a CPU before all others, until this is dropped.
pub struct Watch {
    shared: Arc<Shared>,
    standstill: Duration,
}

#[derive(Default)]
struct Shared {
    end: AtomicBool,
    /// The longest time between two looks since it was last taken.
    longest_ns: AtomicU64,
}

impl Watch {
    /// Begins to watch every CPU for times between two looks of `standstill` and more.
    ///
    /// # Errors
    /// A thread cannot be put before the others.
    pub fn start(standstill: Duration) -> Result<Self> {
        let watch = Self {
            shared: Arc::default(),
            standstill,
        };
        let (sender, started) = channel();
        for cpu in 0..scheduling::cpus() {
            let (shared, sender) = (Arc::clone(&watch.shared), sender.clone());
            thread::spawn(move || {
                let placed = scheduling::pin(0, cpu)
                    .and_then(|()| scheduling::make_fifo(0, scheduling::WATCH_PRIORITY));
                let may_watch = placed.is_ok();
                let _ = sender.send(placed);
                drop(sender);
                if may_watch {
                    shared.watch();
                }
            });
        }
        drop(sender);
        started.iter().collect::<Result<()>>()?;
        Ok(watch)
    }

    /// The longest standstill since the last call, if there was one.
    pub fn take(&self) -> Option<Duration> {
        let longest = Duration::from_nanos(self.shared.longest_ns.swap(0, Ordering::Relaxed));
        (longest >= self.standstill).then_some(longest)
    }
}

/// Decides what is measured again because this machine stood still meanwhile: a clock beside the
/// experiment does, never what was measured.
pub struct Repetitions {
    watch: Watch,
    left: u64,
    standstills: Standstills,
}

impl Repetitions {
    /// Begins to watch for standstills; so much is measured again at the most.
    pub fn start(most: u64, standstill: Duration) -> Result<Self> {
        Ok(Self {
            watch: Watch::start(standstill)?,
            left: most,
            standstills: Standstills::default(),
        })
    }

    /// Something is measured from now on.
    pub fn begin(&self) {
        self.watch.take();
    }

    /// Whether what was measured since [`begin`](Self::begin) is to be measured again.
    pub fn are_needed(&mut self, what: &str, observer: &dyn Observer) -> bool {
        let Some(standstill) = self.watch.take() else {
            return false;
        };
        let again = self.left > 0;
        self.standstills.add(standstill, again);
        if again {
            self.left -= 1;
            observer.tell(News::Note(format!(
                "this machine stood still for {} ms: measuring {what} again",
                standstill.as_millis()
            )));
        }
        again
    }

    /// The standstills so far.
    pub fn standstills(&self) -> Standstills {
        self.standstills
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn watch(&self) {
        let mut last = Instant::now();
        while !self.end.load(Ordering::Relaxed) {
            thread::sleep(PERIOD);
            let now = Instant::now();
            let passed = now.duration_since(last).as_nanos() as u64;
            self.longest_ns.fetch_max(passed, Ordering::Relaxed);
            last = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;

    #[test]
    fn what_a_standstill_met_is_measured_again_but_not_for_ever() {
        let shared = Arc::<Shared>::default();
        let stand_still = || shared.longest_ns.fetch_max(20_000_000, Ordering::Relaxed);
        let mut repetitions = Repetitions {
            watch: Watch {
                shared: Arc::clone(&shared),
                standstill: STANDSTILL,
            },
            left: 1,
            standstills: Standstills::default(),
        };
        let mut needed = || repetitions.are_needed("it", &Silent);
        assert!(!needed());
        stand_still();
        assert!(needed());
        assert!(!needed(), "it was reported");
        stand_still();
        assert!(!needed(), "none is left");
        let counted = repetitions.standstills();
        assert_eq!((counted.phases_measured_again, counted.phases_kept), (1, 1));
        // What was before the beginning does not count.
        stand_still();
        repetitions.begin();
        repetitions.left = 1;
        assert!(!repetitions.are_needed("it", &Silent));
    }

    #[test]
    fn a_standstill_is_reported_once() {
        let watch = Watch {
            shared: Arc::default(),
            standstill: Duration::from_millis(5),
        };
        let look_after = |ns| watch.shared.longest_ns.fetch_max(ns, Ordering::Relaxed);
        assert_eq!(watch.take(), None);
        look_after(4_999_999);
        assert_eq!(watch.take(), None);
        for ns in [2_000_000, 33_000_000, 15_000_000] {
            look_after(ns);
        }
        assert_eq!(watch.take(), Some(Duration::from_millis(33)));
        assert_eq!(watch.take(), None);
    }
}
