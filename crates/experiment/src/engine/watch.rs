//! Notices when this machine itself stands still: when its own hypervisor takes CPUs of it away for a while,
//! at once or in pieces, every emulated host in it stops too, whatever its method.

use super::Standstills;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use steadyvm_lab::Result;
use steadyvm_lab::progress::{News, Observer};
use steadyvm_lab::scheduling;

/// A kernel that runs gives its first thread a CPU within this time.
const WAKING: Duration = Duration::from_micros(100);

/// When a CPU counts as standing still.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// The watch looks at the clock this often.
    pub period: Duration,
    /// So much was lost
    pub lost: Duration,
    /// within so many periods in a row.
    pub periods: usize,
}

/// What counts where nothing that is measured says more. To look so rarely costs nothing measurable.
pub const STANDSTILL: Limit = Limit {
    period: Duration::from_millis(2),
    lost: Duration::from_millis(13),
    periods: 1,
};

/// A thread a CPU before all others, until this is dropped.
pub struct Watch {
    shared: Arc<Shared>,
    limit: Limit,
}

#[derive(Default)]
struct Shared {
    end: AtomicBool,
    /// The most that a CPU has lost within the limit's periods since it was last taken.
    most_lost_ns: AtomicU64,
}

impl Watch {
    /// Begins to watch every CPU for times that are lost.
    ///
    /// # Errors
    /// A thread cannot be put before the others.
    pub fn start(limit: Limit) -> Result<Self> {
        let watch = Self {
            shared: Arc::default(),
            limit,
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
                    shared.watch(limit);
                }
            });
        }
        drop(sender);
        started.iter().collect::<Result<()>>()?;
        Ok(watch)
    }

    /// The most that was lost since the last call, if that is a standstill.
    pub fn take(&self) -> Option<Duration> {
        let most = Duration::from_nanos(self.shared.most_lost_ns.swap(0, Ordering::Relaxed));
        (most >= self.limit.lost).then_some(most)
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
    pub fn start(most: u64, limit: Limit) -> Result<Self> {
        Ok(Self {
            watch: Watch::start(limit)?,
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
                "this machine stood still for {:.1} ms: measuring {what} again",
                standstill.as_secs_f64() * 1e3
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
    fn watch(&self, limit: Limit) {
        let mut window = Window::new(limit);
        let mut last = Instant::now();
        while !self.end.load(Ordering::Relaxed) {
            thread::sleep(limit.period);
            let now = Instant::now();
            let sum = window.add(now.duration_since(last));
            self.most_lost_ns
                .fetch_max(sum.as_nanos() as u64, Ordering::Relaxed);
            last = now;
        }
    }
}

/// What was lost in each of the last periods.
struct Window {
    limit: Limit,
    lost: VecDeque<Duration>,
}

impl Window {
    fn new(limit: Limit) -> Self {
        Self {
            limit,
            lost: VecDeque::with_capacity(limit.periods),
        }
    }

    /// Adds the time between two looks, and gives what was lost in all of the window.
    fn add(&mut self, passed: Duration) -> Duration {
        if self.lost.len() == self.limit.periods {
            self.lost.pop_front();
        }
        self.lost
            .push_back(passed.saturating_sub(self.limit.period + WAKING));
        self.lost.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadyvm_lab::progress::Silent;

    #[test]
    fn what_a_standstill_met_is_measured_again_but_not_for_ever() {
        let shared = Arc::<Shared>::default();
        let stand_still = || shared.most_lost_ns.fetch_max(20_000_000, Ordering::Relaxed);
        let mut repetitions = Repetitions {
            watch: Watch {
                shared: Arc::clone(&shared),
                limit: STANDSTILL,
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
    fn what_is_lost_in_small_pieces_counts_while_they_are_in_the_window() {
        let limit = Limit {
            periods: 3,
            ..STANDSTILL
        };
        let mut window = Window::new(limit);
        let mut lost_us = |us| {
            window
                .add(limit.period + Duration::from_micros(us))
                .as_micros()
        };
        // A thread that is woken late by less than the waking takes has lost nothing.
        assert_eq!([0, 40, 100].map(&mut lost_us), [0, 0, 0]);
        assert_eq!([600, 0, 400].map(&mut lost_us), [500, 500, 800]);
        assert_eq!([0, 0, 0].map(&mut lost_us), [300, 300, 0]);
    }

    #[test]
    fn a_standstill_is_reported_once() {
        let watch = Watch {
            shared: Arc::default(),
            limit: Limit {
                lost: Duration::from_millis(5),
                ..STANDSTILL
            },
        };
        let look_after = |ns| watch.shared.most_lost_ns.fetch_max(ns, Ordering::Relaxed);
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
