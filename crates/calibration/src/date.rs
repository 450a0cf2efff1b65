//! Dates in UTC as people and programs write them (RFC 3339), from and to seconds after 1970.

/// Such as "2026-11-29T12:20:14Z".
///
/// The calendar is counted in years that begin in March (Hinnant, "chrono-compatible low-level date algorithms").
pub fn date(unix_s: u64) -> String {
    let (days, of_day) = (unix_s / 86_400, unix_s % 86_400);
    // From 1 March of the year 0.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The seconds of such a text; none if it is no date of 1970 to 9999 as [`date`] writes it.
pub fn unix_s(text: &str) -> Option<u64> {
    let is_of_form = text.len() == 20
        && (text.bytes().zip("0000-00-00T00:00:00Z".bytes())).all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            mark => byte == mark,
        });
    if !is_of_form {
        return None;
    }
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<u64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let from_march_year = year - u64::from(month <= 2);
    let (era, of_era) = (from_march_year / 400, from_march_year % 400);
    let from_march = (month + 9) % 12;
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    let of_day = number(11..13)? * 3_600 + number(14..16)? * 60 + number(17..19)?;
    let unix_s = days.checked_sub(719_468)? * 86_400 + of_day;
    // 30 February, 24 o'clock.
    (date(unix_s) == text).then_some(unix_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(date(seconds), text);
            assert_eq!(unix_s(text), Some(seconds));
        }
        for text in [
            "",
            "2026-11-29",
            "2025-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-29T24:00:00Z",
            "2026-11-29 12:20:14Z",
            "1969-12-31T23:59:59Z",
            "+026-11-29T12:20:14Z",
            "ä026-11-29T12:20:14",
        ] {
            assert_eq!(unix_s(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn dates_read_back(seconds in 0_u64..253_402_300_800) {
            prop_assert_eq!(unix_s(&date(seconds)), Some(seconds));
        }

        #[test]
        fn no_text_panics(text in ".{0,24}") {
            let _ = unix_s(&text);
        }
    }
}
