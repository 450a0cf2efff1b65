//! What a figure is to reach, and whether a run says that it does.

use steadyvm_stats::bootstrap::Ratio;

/// A bound of a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// It is kept below and at this.
    AtMost(f64),
    /// It is kept above and at this.
    AtLeast(f64),
}

impl Bound {
    /// "met" or "missed" where the whole interval says so; else "open".
    pub fn verdict(self, ratio: &Ratio) -> &'static str {
        let Some((low, high)) = ratio.interval() else {
            return "open";
        };
        let (is_met, is_missed) = match self {
            Self::AtMost(bound) => (high <= bound, low > bound),
            Self::AtLeast(bound) => (low >= bound, high < bound),
        };
        match (is_met, is_missed) {
            (true, _) => "met",
            (_, true) => "missed",
            _ => "open",
        }
    }

    /// "at most 0.4".
    pub fn words(self) -> String {
        match self {
            Self::AtMost(bound) => format!("at most {bound}"),
            Self::AtLeast(bound) => format!("at least {bound}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_interval_decides() {
        let ratio = |low, high| Ratio {
            estimate: 0.5,
            median: 0.5,
            low,
            high,
            rounds: 3,
        };
        let verdicts = |bound: Bound| {
            [(0.3, 0.4), (0.3, 0.6), (0.5, 0.6)]
                .map(|(low, high)| bound.verdict(&ratio(Some(low), Some(high))))
        };
        assert_eq!(verdicts(Bound::AtMost(0.4)), ["met", "open", "missed"]);
        assert_eq!(verdicts(Bound::AtLeast(0.5)), ["missed", "open", "met"]);
        assert_eq!(Bound::AtMost(0.4).verdict(&ratio(None, None)), "open");
        assert_eq!(Bound::AtLeast(0.95).words(), "at least 0.95");
    }
}
