//! The loops over all VCPUs, where [`super::responses`] spends its time. Each is run with the widest vectors that
//! the CPU has ([`pulp::Arch`]): its body is compiled once a kind of CPU, with all that it calls, which therefore
//! must be inlined.

#![allow(
    clippy::inline_always,
    reason = "what is not inlined is compiled for the oldest CPUs"
)]

use std::hint::select_unpredictable;

use pulp::{Simd, WithSimd};

use super::word::Word;
use crate::time::Amount;

/// Terms and spans summed in a word: of 64 bits, each is below 2^55 (times are at most 2^53); of 32, their lower
/// and upper halves are below 2^16.
pub(super) const CHUNK: usize = 128;

/// Some of the VCPUs, side by side.
#[derive(Clone, Copy)]
pub(super) struct Others<'a, W> {
    pub demands: &'a [W],
    pub periods: &'a [W],
    pub reciprocals: &'a [W],
    pub work_leads: &'a [W],
    pub slacks: &'a [W],
    pub whole: &'a [W],
    pub left: &'a [W],
}

/// What one VCPU does in the window looked at.
pub(super) trait Term<W>: Copy {
    /// Of the VCPU at `i`.
    fn of(self, others: Others<W>, i: usize) -> W;
}

/// The work due by the deadline, up to a cut.
#[derive(Clone, Copy)]
pub(super) struct Due<W> {
    pub cut: W,
}

/// The work in a window of length `response`, which is due by the deadline, up to a cut.
#[derive(Clone, Copy)]
pub(super) struct Piece<W> {
    pub response: W,
    pub cut: W,
}

impl<W: Word> Term<W> for Due<W> {
    #[inline(always)]
    fn of(self, others: Others<W>, i: usize) -> W {
        least_of(others.due(i), self.cut)
    }
}

impl<W: Word> Term<W> for Piece<W> {
    #[inline(always)]
    fn of(self, others: Others<W>, i: usize) -> W {
        self.line(others, i).0
    }
}

impl<W: Word> Piece<W> {
    /// (low, high) of min(low + d, high), a lower bound of the term at `response` + d, equal at d = 0.
    #[inline(always)]
    fn line(self, others: Others<W>, i: usize) -> (W, W) {
        let (period, demand) = (others.periods[i], others.demands[i]);
        let length = self.response + others.work_leads[i] - others.slacks[i];
        let (jobs, rest) = length.divided(period, others.reciprocals[i]);
        let before = jobs * demand;
        // The job that executes at R, if one does, goes on to its end; one that has ended stays there.
        let end = least_of(before + demand, others.due(i));
        (least_of(least_of(end, before + rest), self.cut), end)
    }
}

impl<W: Word> Others<'_, W> {
    /// Work due within a window that ends with a deadline.
    #[inline(always)]
    fn due(self, i: usize) -> W {
        let carried = self.left[i] - self.slacks[i];
        let carried = select_unpredictable(carried < W::ZERO, W::ZERO, carried);
        self.whole[i] + least_of(carried, self.demands[i])
    }
}

/// The sum of a term over all of `others`, at most [`CHUNK`].
pub(super) struct Sum<'a, W, T> {
    pub others: Others<'a, W>,
    pub term: T,
}

impl<W: Word, T: Term<W>> WithSimd for Sum<'_, W, T> {
    type Output = Amount;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Amount {
        let mut sum = Halves::new();
        for i in 0..self.others.demands.len() {
            sum.add(self.term.of(self.others, i));
        }
        sum.total()
    }
}

/// The sum of pieces over all of `others`, at most [`CHUNK`], and how far each goes on.
pub(super) struct Pieces<'a, W> {
    pub others: Others<'a, W>,
    pub at: Piece<W>,
    pub spans: &'a mut [W],
}

impl<W: Word> WithSimd for Pieces<'_, W> {
    type Output = Amount;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Amount {
        let mut sum = Halves::new();
        for (i, span) in self.spans.iter_mut().enumerate() {
            let (low, high) = self.at.line(self.others, i);
            *span = high - low;
            sum.add(low);
        }
        sum.total()
    }
}

/// (The sum of the spans shorter than `further`, how many are not), of at most [`CHUNK`].
pub(super) struct Rising<'a, W> {
    pub spans: &'a [W],
    pub further: W,
}

impl<W: Word> WithSimd for Rising<'_, W> {
    type Output = (Amount, Amount);

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> (Amount, Amount) {
        let (mut ended, mut rising) = (Halves::new(), W::ZERO);
        for &span in self.spans {
            let rises = span >= self.further;
            ended.add(if rises { W::ZERO } else { span });
            rising = rising + if rises { W::ONE } else { W::ZERO };
        }
        (ended.total(), rising.wide())
    }
}

/// For each VCPU, the work of whole jobs due within `limit`, and how much of it is left for the job carried in.
pub(super) struct DueJobs<'a, W> {
    pub limit: W,
    pub periods: &'a [W],
    pub reciprocals: &'a [W],
    pub demands: &'a [W],
    pub leads: &'a [W],
    pub whole: &'a mut [W],
    pub left: &'a mut [W],
}

impl<W: Word> WithSimd for DueJobs<'_, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for i in 0..self.whole.len() {
            let reach = self.limit + self.leads[i];
            let (jobs, rest) = reach.divided(self.periods[i], self.reciprocals[i]);
            self.whole[i] = jobs * self.demands[i];
            self.left[i] = rest - self.leads[i];
        }
    }
}

/// A sum of up to [`CHUNK`] words, its lower and its upper halves apart, so that no wider word is needed.
struct Halves<W> {
    lower: W,
    upper: W,
}

impl<W: Word> Halves<W> {
    #[inline(always)]
    fn new() -> Self {
        Self {
            lower: W::ZERO,
            upper: W::ZERO,
        }
    }

    #[inline(always)]
    fn add(&mut self, word: W) {
        let (lower, upper) = word.halves();
        self.lower = self.lower + lower;
        self.upper = self.upper + upper;
    }

    #[inline(always)]
    fn total(self) -> Amount {
        self.lower.wide() + (self.upper.wide() << W::HALF)
    }
}

#[inline(always)]
fn least_of<W: Word>(a: W, b: W) -> W {
    select_unpredictable(a < b, a, b)
}
