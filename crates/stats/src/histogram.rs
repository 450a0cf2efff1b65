//! HdrHistogram recording, and its percentile distribution as text (`.hgrm`).

use hdrhistogram::Histogram;
use std::fmt::Write;

/// Decimal digits every recorded value keeps: a histogram's value is at most 0.1 % above the
/// sample's.
pub const SIGNIFICANT_DIGITS: u8 = 3;

/// Steps for each halving of the distance to 100 %, as HdrHistogram's own tools write them.
const TICKS_PER_HALF_DISTANCE: u32 = 5;
const NS_PER_US: f64 = 1_000.0;

/// The histogram could not take a sample.
#[derive(Debug, thiserror::Error)]
#[error("histogram: cannot record {sample_ns} ns: {reason}; drop the sample or its run")]
pub struct HistogramError {
    /// The sample.
    pub sample_ns: u64,
    /// The library's reason.
    pub reason: String,
}

/// A histogram of `samples_ns` with [`SIGNIFICANT_DIGITS`]; it grows to hold any round trip.
///
/// # Errors
/// A sample beyond half of what 64 bits hold (146 years).
pub fn histogram(samples_ns: &[u64]) -> Result<Histogram<u64>, HistogramError> {
    let failed = |sample_ns, reason: String| HistogramError { sample_ns, reason };
    let mut histogram =
        Histogram::new(SIGNIFICANT_DIGITS).map_err(|error| failed(0, error.to_string()))?;
    for &sample_ns in samples_ns {
        if sample_ns > u64::MAX / 2 {
            return Err(failed(sample_ns, "it is longer than 146 years".to_owned()));
        }
        histogram
            .record(sample_ns)
            .map_err(|error| failed(sample_ns, error.to_string()))?;
    }
    Ok(histogram)
}

/// The percentile distribution of `samples_ns` in HdrHistogram's text format, values in
/// microseconds: what HdrHistogram's plotters read.
///
/// # Errors
/// As [`histogram`].
pub fn hgrm(samples_ns: &[u64]) -> Result<String, HistogramError> {
    let histogram = histogram(samples_ns)?;
    let mut text = String::new();
    write_distribution(&mut text, &histogram).map_err(|error| HistogramError {
        sample_ns: 0,
        reason: error.to_string(),
    })?;
    Ok(text)
}

fn write_distribution(text: &mut String, histogram: &Histogram<u64>) -> std::fmt::Result {
    writeln!(
        text,
        "{:>12} {:>14} {:>10} {:>14}\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    )?;
    let mut total_count = 0;
    for step in histogram.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
        total_count += step.count_since_last_iteration();
        let value_us = step.value_iterated_to() as f64 / NS_PER_US;
        let quantile = step.quantile_iterated_to();
        write!(text, "{value_us:12.3} {quantile:14.12} {total_count:10}")?;
        if quantile < 1.0 {
            write!(text, " {:14.2}", 1.0 / (1.0 - quantile))?;
        }
        writeln!(text)?;
    }
    writeln!(
        text,
        "#[Mean    = {:12.3}, StdDeviation   = {:12.3}]",
        histogram.mean() / NS_PER_US,
        histogram.stdev() / NS_PER_US
    )?;
    writeln!(
        text,
        "#[Max     = {:12.3}, Total count    = {:12}]",
        histogram.max() as f64 / NS_PER_US,
        histogram.len()
    )?;
    writeln!(
        text,
        "#[Buckets = {:12}, SubBuckets     = {:12}]",
        buckets(histogram),
        SUB_BUCKETS
    )
}

/// Sub-buckets at three significant digits: the power of two at or above 2·10^3.
const SUB_BUCKETS: u64 = 2048;

/// Buckets, each twice as wide as the one before, that reach the highest trackable value.
fn buckets(histogram: &Histogram<u64>) -> u32 {
    (histogram.high() / SUB_BUCKETS)
        .checked_ilog2()
        .map_or(1, |log| log + 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PerMille, Summary, nearest_rank};
    use proptest::prelude::*;

    fn round_trips() -> impl Strategy<Value = Vec<u64>> {
        // From 1 ns to minutes, all magnitudes alike.
        let sample =
            (0_u32..37, any::<u64>()).prop_map(|(bits, noise)| (1 << bits) + noise % (1 << bits));
        proptest::collection::vec(sample, 1..400)
    }

    proptest! {
        #[test]
        fn percentiles_are_within_the_stated_error(samples in round_trips()) {
            let histogram = histogram(&samples).unwrap();
            let mut sorted = samples.clone();
            sorted.sort_unstable();
            for thousandths in [500, 900, 990, 999, 1000] {
                let exact = nearest_rank(&sorted, PerMille::new(thousandths)).unwrap();
                let recorded = histogram.value_at_quantile(f64::from(thousandths) / 1000.0);
                prop_assert!(recorded >= exact, "{recorded} < {exact}");
                prop_assert!(recorded as f64 <= exact as f64 * 1.001, "{recorded} {exact}");
            }
            let summary = Summary::of(&samples).unwrap();
            prop_assert_eq!(histogram.len(), summary.n);
            prop_assert!((histogram.mean() - summary.mean_ns).abs() <= 0.001 * summary.mean_ns);
        }

        #[test]
        fn the_text_reads_back_as_the_distribution(samples in round_trips()) {
            let text = hgrm(&samples).unwrap();
            let mut sorted = samples.clone();
            sorted.sort_unstable();
            let mut lines = text.lines();
            prop_assert_eq!(
                lines.next().unwrap().split_whitespace().collect::<Vec<_>>(),
                ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
            );
            prop_assert_eq!(lines.next(), Some(""));
            let (mut last_value, mut last_count, mut last_percentile) = (0.0, 0, 0.0);
            for line in lines.by_ref().take_while(|line| !line.starts_with('#')) {
                let fields: Vec<f64> = line.split_whitespace().map(|field| field.parse().unwrap()).collect();
                let (value_us, percentile, count) = (fields[0], fields[1], fields[2] as usize);
                prop_assert!(value_us >= last_value && count >= last_count && percentile >= last_percentile);
                (last_value, last_count, last_percentile) = (value_us, count, percentile);
                // The count-th smallest sample is in the bucket the line ends.
                let exact_us = sorted[count - 1] as f64 / NS_PER_US;
                prop_assert!(value_us >= exact_us - 0.001 && value_us <= exact_us * 1.001 + 0.001, "{line} {exact_us}");
                prop_assert_eq!(fields.len() == 4, percentile < 1.0);
            }
            prop_assert_eq!(last_count, samples.len());
            prop_assert!((last_percentile - 1.0).abs() < 1e-12);
            prop_assert_eq!(text.lines().filter(|line| line.starts_with("#[")).count(), 3);
        }
    }

    #[test]
    fn the_format_is_hdrhistograms_own() {
        let text = hgrm(&[1_000, 2_000, 3_000, 1_000_000]).unwrap();
        assert_eq!(text, DISTRIBUTION_OF_FOUR);
    }

    const DISTRIBUTION_OF_FOUR: &str = "       Value     Percentile TotalCount 1/(1-Percentile)

       1.000 0.000000000000          1           1.00
       1.000 0.100000000000          1           1.11
       1.000 0.200000000000          1           1.25
       2.000 0.300000000000          2           1.43
       2.000 0.400000000000          2           1.67
       2.000 0.500000000000          2           2.00
       3.001 0.550000000000          3           2.22
       3.001 0.600000000000          3           2.50
       3.001 0.650000000000          3           2.86
       3.001 0.700000000000          3           3.33
    1000.447 0.750000000000          4           4.00
    1000.447 1.000000000000          4
#[Mean    =      251.548, StdDeviation   =      432.230]
#[Max     =     1000.447, Total count    =            4]
#[Buckets =           10, SubBuckets     =         2048]
";

    #[test]
    fn no_samples_and_absurd_samples_do_no_harm() {
        assert!(hgrm(&[]).unwrap().contains("Total count    =            0"));
        assert!(hgrm(&[0, u64::MAX / 2]).is_ok());
        let error = hgrm(&[u64::MAX]).unwrap_err().to_string();
        assert!(error.contains("146 years"), "{error}");
    }
}
