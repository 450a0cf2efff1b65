//! The mean of independent runs, and how well it is known.

use crate::bootstrap::student_quantile;

/// A mean with its 95 % interval, Student's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanInterval {
    /// The mean.
    pub mean: f64,
    /// The interval's ends; none of a single value.
    pub interval: Option<(f64, f64)>,
}

impl MeanInterval {
    /// Of some values, one of each run; none of no value.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mean = crate::mean(values.iter().copied())?;
        let n = values.len() as f64;
        let interval = (values.len() > 1).then(|| {
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            let half = student_quantile(n - 1.0) * (squares / (n - 1.0) / n).sqrt();
            (mean - half, mean + half)
        });
        Some(Self { mean, interval })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn three_values_have_the_interval_of_the_textbook() {
        // Mean 2, standard deviation 1, t of two degrees of freedom 4.302653.
        let found = MeanInterval::of(&[1.0, 2.0, 3.0]).unwrap();
        let half = 4.302_653 / 3_f64.sqrt();
        let (low, high) = found.interval.unwrap();
        assert!((found.mean - 2.0).abs() < 1e-12);
        assert!((low - (2.0 - half)).abs() < 1e-3 && (high - (2.0 + half)).abs() < 1e-3);
    }

    #[test]
    fn one_value_has_no_interval_and_none_no_mean() {
        assert_eq!(MeanInterval::of(&[]), None);
        let one = MeanInterval {
            mean: 7.0,
            interval: None,
        };
        assert_eq!(MeanInterval::of(&[7.0]), Some(one));
    }

    proptest! {
        #[test]
        fn a_shift_of_all_values_shifts_the_interval(
            values in proptest::collection::vec(0.0_f64..1e6, 2..50), by in -1e6_f64..1e6,
        ) {
            let shifted: Vec<f64> = values.iter().map(|value| value + by).collect();
            let (here, there) = (MeanInterval::of(&values).unwrap(), MeanInterval::of(&shifted).unwrap());
            let ((low, high), (low_there, high_there)) = (here.interval.unwrap(), there.interval.unwrap());
            prop_assert!(low <= here.mean && here.mean <= high);
            prop_assert!((low + by - low_there).abs() < 1e-3 && (high + by - high_there).abs() < 1e-3);
        }
    }
}
