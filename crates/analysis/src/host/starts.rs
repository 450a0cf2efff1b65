//! How often a VCPU starts to run in one of its budgets, and so what of it the host's costs use up.
//!
//! Model: whoever starts to run pays for it out of its own budget: the decision, the switch, cold caches and, on a global
//! host, the move to another CPU. Schedulers charge who has the CPU, so the budget to install holds all of a VCPU's starts:
//!
//! - *Its own*: once as its budget comes back, and once for each time its guest may wake it.
//! - *A sporadic server's pieces*: each comes back by itself. A reservation whose requests come no closer than its period
//!   has one piece, and so has a guest that sleeps for a period before it wakes. Any other may have as many as the queue
//!   has places ([`PIECES`]): a guest that sleeps with budget left and wakes splits a piece, and what it waits for is joined
//!   by nothing, so that the pieces of many periods add up.
//! - *After others*: once for each time a VCPU that comes before it may take its CPU. Nobody takes a CPU but who comes:
//!   by a budget that comes back, or by a wake-up. Whoever comes takes one CPU only, also where masks make those who lose
//!   a CPU take another's.
//!
//! Formula: let S be how long a budget of VCPU v may take to be used: its deadline D_v; with several pieces Pi_v + D_v.
//! Under fixed priorities VCPU u takes the CPU of a v that comes after it up to (wake-ups of u in S) + p_u ceil(S / Pi_u)
//! times, p_u its pieces. Under EDF a budget that comes back takes it only if it is due before v's: the second term has
//! S - D_u in the place of S; and a wake-up counts whatever D_u, as its budget may be due soon. Servers that idle their
//! budgets away hold their CPU while their guests sleep (one that lends it takes it back from whoever runs on its budget, and starts
//! by itself at each wake-up), and reservations begin a budget as they wake: no wake-ups. But
//! `SCHED_DEADLINE` counts runtime in 1.024 us there: a reservation with D = T that wakes just at its deadline, with less than that
//! left, uses it up with the old deadline (`dl_entity_overflow`), and takes the CPU of any: its wake-ups count alone. With a
//! quantum q both are seen up to q late: S + q. Where the file says how
//! often guests wake, that number times ceil(S / Pi_u) stands for both terms, as it counts every start in a period; 1 where
//! nothing is known of the guest.
//!
//! Not counted: starts after a CPU's fair server ([`super::FairServer`]), and the host's interrupts and threads.
//!
//! Nothing here depends on budgets, so that there is nothing to repeat: a placement decides what each VCPU on it costs.
//!
//! Complexity: O(tasks of u) for a pair.
//! Sources: Burns, Tindell and Wellings, IEEE TSE 21 (1995), for costs as execution of who causes them; who pays is the
//! kernel's rule (`update_curr_dl`). Stanovich et al., RTAS 2010: a start for each piece.

use std::sync::Arc;

use super::{
    Dispatch, Host, Vcpu,
    overhead::{Keeping, Overheads},
};
use crate::{
    task::Task,
    time::{Time, div_ceil},
};

/// Places in a sporadic server's queue: `POLICY_MAX_REPLENISHMENTS` of crates/sched-policy.
pub const PIECES: Time = 16;

/// What wakes a VCPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wakes {
    /// Nothing is known of its guest, which is taken to sleep for a period before it wakes.
    Unknown,
    /// The requests of a reservation: this task's releases, each of which begins its budget.
    Request(Task),
    /// Releases of these tasks, and the ends of their suspensions.
    Tasks(Arc<[Task]>),
}

impl Wakes {
    /// How often it starts in one of its periods, at most: the return of its budget is counted as well.
    fn starts(&self, period: Time) -> Time {
        match self {
            // Its period begins with the wake-up, and its budget is not used up before the request is done.
            Self::Unknown | Self::Request(_) => 1,
            Self::Tasks(tasks) => wakeups(tasks, period).saturating_add(1),
        }
    }

    /// How often in an open window, at most.
    fn within(&self, window: Time, period: Time) -> Time {
        match self {
            Self::Unknown => div_ceil(window, period),
            Self::Request(task) => wakeups(std::slice::from_ref(task), window),
            Self::Tasks(tasks) => wakeups(tasks, window),
        }
    }

    fn suspends(&self) -> bool {
        matches!(self, Self::Tasks(tasks) if tasks.iter().any(|task| task.suspension() > 0))
    }

    /// Whether what is used comes back as one piece.
    fn is_one_piece(&self, period: Time) -> bool {
        match self {
            Self::Unknown => true,
            Self::Request(task) => task.period() - task.jitter() >= period,
            Self::Tasks(_) => false,
        }
    }
}

/// How often tasks may wake a guest in an open window: once for each release, and each end of a suspension.
fn wakeups(tasks: &[Task], window: Time) -> Time {
    let wakes = |task: &Task| {
        let releases = div_ceil(window.saturating_add(task.jitter()), task.period());
        releases.saturating_mul(if task.suspension() > 0 { 2 } else { 1 })
    };
    tasks.iter().map(wakes).fold(0, Time::saturating_add)
}

impl Overheads {
    /// How often a VCPU starts for its own sake in one of its periods, at most. `early`: it is due before its period ends.
    pub(crate) fn own_starts(&self, wakes: &Wakes, period: Time, early: bool) -> Time {
        if self.once() == 0 {
            // Whatever their number, they cost nothing.
            return 1;
        }
        let own = match (self.wakeups, self.keeping) {
            // Only while a guest's task suspends itself does its work wait for more than the first of them.
            (0, Keeping::Idles) if !wakes.suspends() => 1,
            (0, _) => wakes.starts(period),
            (told, _) => told,
        };
        own.max(self.pieces(wakes, period, early))
    }

    /// How many pieces its budget comes back in.
    fn pieces(&self, wakes: &Wakes, period: Time, early: bool) -> Time {
        let in_pieces = match self.keeping {
            Keeping::Pieces => true,
            Keeping::BeginsOrPieces => early,
            Keeping::Idles | Keeping::Lends | Keeping::Keeps | Keeping::Begins => false,
        };
        let is_one = wakes.is_one_piece(period) && self.wakeups <= 1;
        if in_pieces && !is_one { PIECES } else { 1 }
    }
}

/// What counts of a VCPU.
#[derive(Debug, Clone)]
pub(crate) struct Starter {
    index: usize,
    deadline: Time,
    period: Time,
    wakes: Wakes,
    pieces: Time,
}

impl Starter {
    pub fn new(index: usize, vcpu: &Vcpu, overheads: &Overheads) -> Self {
        let early = vcpu.deadline < vcpu.period;
        Self {
            index,
            deadline: vcpu.deadline,
            period: vcpu.period,
            pieces: overheads.pieces(&vcpu.wakes, vcpu.period, early),
            wakes: vcpu.wakes.clone(),
        }
    }
}

/// The rules of a host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Starts {
    dispatch: Dispatch,
    overheads: Overheads,
}

impl Starts {
    pub fn of(host: &Host) -> Self {
        Self {
            dispatch: host.scheduler.dispatch(),
            overheads: host.overheads,
        }
    }

    /// Where starts cost nothing, or all of them are counted already.
    pub fn free(dispatch: Dispatch) -> Self {
        Self {
            dispatch,
            overheads: Overheads::default(),
        }
    }

    /// Starts cost nothing, so that nobody pays for others.
    pub fn are_free(&self) -> bool {
        self.overheads.once() == 0
    }

    /// What `one` pays for its starts after `others`.
    pub fn after<'a>(&self, one: &Starter, others: impl Iterator<Item = &'a Starter>) -> Time {
        if self.are_free() {
            return 0;
        }
        let used_within = if one.pieces > 1 {
            one.period + one.deadline
        } else {
            one.deadline
        };
        let span = used_within + self.overheads.quantum;
        others
            .filter(|other| other.index != one.index)
            .map(|other| self.taken(one, other, span))
            .fold(0, Time::saturating_add)
            .saturating_mul(self.overheads.once())
    }

    /// How often `other` takes the CPU of `one` within `span`.
    fn taken(&self, one: &Starter, other: &Starter, span: Time) -> Time {
        let comes_first = (other.deadline, other.index) < (one.deadline, one.index);
        let begun_in = match self.dispatch {
            Dispatch::FixedPriority if !comes_first => return 0,
            Dispatch::FixedPriority => span,
            Dispatch::EarliestDeadline => (span - other.deadline).max(0),
        };
        let budgets = div_ceil(begun_in, other.period).saturating_mul(other.pieces);
        let told = match (self.overheads.wakeups, &other.wakes) {
            (0, Wakes::Unknown) => 1,
            (told, _) => told,
        };
        if matches!(self.overheads.keeping, Keeping::Idles | Keeping::Lends) {
            return budgets;
        }
        if matches!(other.wakes, Wakes::Request(_)) && other.pieces == 1 && told <= 1 {
            let may_go_on =
                self.overheads.keeping == Keeping::Begins && other.deadline == other.period;
            return if may_go_on {
                other.wakes.within(span, other.period)
            } else {
                budgets
            };
        }
        if told == 0 {
            return budgets.saturating_add(other.wakes.within(span, other.period));
        }
        // The file's number counts every start in a period, but those of pieces.
        let starts = told.saturating_mul(div_ceil(span, other.period));
        if other.pieces > 1 || self.overheads.keeping == Keeping::Keeps {
            starts.saturating_add(budgets)
        } else {
            starts
        }
    }
}
