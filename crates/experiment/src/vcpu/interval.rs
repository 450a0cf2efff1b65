//! 95 % intervals of the tables: of a mean over windows, and of the share of late jobs.

/// The two-sided 95 % point of the normal distribution.
const NORMAL: f64 = 1.959_963_985;

/// Student's t for so many degrees of freedom, two-sided 95 %: exact where few, else Cornish and Fisher's series, which is right to
/// 0.02 from there.
fn student(freedom: usize) -> Option<f64> {
    const FEW: [f64; 5] = [12.706, 4.303, 3.182, 2.776, 2.571];
    let number = freedom.checked_sub(1)?;
    if let Some(exact) = FEW.get(number) {
        return Some(*exact);
    }
    let (z, freedom) = (NORMAL, freedom as f64);
    let first = (z.powi(3) + z) / (4.0 * freedom);
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * freedom.powi(2));
    Some(z + first + second)
}

/// The mean of the values and half its interval, which one value does not have. Windows are taken as independent: a pause and other
/// conditions lie between them.
pub fn of_mean(values: &[f64]) -> Option<(f64, Option<f64>)> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    if values.is_empty() {
        return None;
    }
    let half = student(values.len() - 1).map(|t| {
        let squares: f64 = values.iter().map(|it| (it - mean).powi(2)).sum();
        t * (squares / (n - 1.0) / n).sqrt()
    });
    Some((mean, half))
}

/// Wilson's interval of a share, per cent: of none late, too, which has an upper end.
pub fn of_share(part: u64, all: u64) -> Option<(f64, f64)> {
    if all == 0 {
        return None;
    }
    let (n, share, z2) = (all as f64, part as f64 / all as f64, NORMAL.powi(2));
    let middle = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half =
        NORMAL / (1.0 + z2 / n) * (share * (1.0 - share) / n + z2 / (4.0 * n.powi(2))).sqrt();
    let percent = |end: f64| (end * 100.0).clamp(0.0, 100.0);
    Some((percent(middle - half), percent(middle + half)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn students_t_is_that_of_the_tables() {
        assert_eq!(student(0), None);
        for (freedom, t) in [
            (1, 12.706),
            (5, 2.571),
            (6, 2.447),
            (9, 2.262),
            (29, 2.045),
            (120, 1.980),
        ] {
            let found = student(freedom).unwrap();
            assert!((found - t).abs() < 0.02, "{freedom}: {found}");
        }
    }

    #[test]
    fn a_means_interval_is_of_its_windows() {
        assert_eq!(of_mean(&[]), None);
        assert_eq!(of_mean(&[4.0]), Some((4.0, None)));
        // Deviation 1, n = 3: 4.303 / sqrt(3).
        let (mean, half) = of_mean(&[1.0, 2.0, 3.0]).unwrap();
        assert!((mean - 2.0).abs() < 1e-9 && (half.unwrap() - 2.4843).abs() < 1e-3);
    }

    #[test]
    fn a_share_of_none_has_an_upper_end() {
        assert_eq!(of_share(0, 0), None);
        let (low, high) = of_share(0, 600).unwrap();
        assert!(low.abs() < 1e-9 && (high - 0.636).abs() < 0.001, "{high}");
        let (low, high) = of_share(600, 600).unwrap();
        assert!((low - 99.364).abs() < 0.001 && (high - 100.0).abs() < 1e-9);
        // Brown, Cai and DasGupta 2001: 10 of 100.
        let (low, high) = of_share(10, 100).unwrap();
        assert!((low - 5.52).abs() < 0.01 && (high - 17.44).abs() < 0.01);
    }
}
