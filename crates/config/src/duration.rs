//! Times in `steadyvm.toml`: "10ms", "1.5us", "250ns", "2s".
//!
//! Rule: a number with a unit is exact or refused; nothing is rounded. A number without one is a time in JSON alone, where the
//! request says the unit.

use serde::{Deserialize, Deserializer, de};

/// Nanoseconds.
type Time = i64;

/// The sign of a millionth: the micro sign, and the Greek letter.
const MICRO: [char; 2] = ['\u{b5}', '\u{3bc}'];

/// What a time asks a reader for. The reader of this crate refuses a number there; those of other formats take it for a
/// wrapper, and give the value.
pub(crate) const TIME: &str = "steadyvm_config::Written";

const UNITS: [(&str, Time); 4] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];

/// A time as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written(pub Time);

/// A whole number as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count(pub i64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Count;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a whole number, without quotation marks")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Count, E> {
                Ok(Count(value))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Count, E> {
                let wrong = |_| E::invalid_value(de::Unexpected::Unsigned(value), &self);
                i64::try_from(value).map(Count).map_err(wrong)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Written;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a time such as \"10ms\" (ns, us, ms, s)")
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                deserializer: D,
            ) -> Result<Written, D::Error> {
                deserializer.deserialize_any(self)
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Written, E> {
                Ok(Written(value))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Written, E> {
                let wrong = |_| E::invalid_value(de::Unexpected::Unsigned(value), &self);
                Time::try_from(value).map(Written).map_err(wrong)
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Written, E> {
                parse(value)
                    .map(Written)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(value), &self))
            }
        }

        deserializer.deserialize_newtype_struct(TIME, Visitor)
    }
}

/// The time in nanoseconds; `None` if it is no time, too large, or finer than a nanosecond.
pub fn parse(text: &str) -> Option<Time> {
    let text = text.trim();
    let end = text.find(|c: char| c.is_ascii_alphabetic() || MICRO.contains(&c))?;
    let (number, unit) = text.split_at(end);
    let unit = unit.replace(MICRO, "u");
    let (_, scale) = *UNITS.iter().find(|(name, _)| *name == unit)?;
    let number = number.trim();
    let (negative, number) = number
        .strip_prefix('-')
        .map_or((false, number), |positive| (true, positive));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |part: &str| part.chars().all(|c| c.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || number.ends_with('.') {
        return None;
    }
    let mut time = whole.parse::<Time>().ok()?.checked_mul(scale)?;
    let mut place = scale;
    for digit in fraction.bytes() {
        let digit = Time::from(digit - b'0');
        if place % 10 != 0 {
            if digit != 0 {
                return None;
            }
            continue;
        }
        place /= 10;
        time = time.checked_add(digit * place)?;
    }
    Some(if negative { -time } else { time })
}

/// The shortest text of a time for a file, in quotation marks.
pub fn written(time: i128) -> String {
    format!("\"{}\"", show(time).replace(' ', ""))
}

/// The shortest exact way to write a time.
pub fn show(time: i128) -> String {
    for (unit, scale) in UNITS.iter().rev() {
        let scale = i128::from(*scale);
        if time == 0 || time.abs() < scale {
            continue;
        }
        let (whole, rest) = (time / scale, (time % scale).abs());
        let fraction = format!("{rest:0width$}", width = scale.ilog10() as usize);
        let fraction = fraction.trim_end_matches('0');
        return if rest == 0 {
            format!("{whole} {unit}")
        } else {
            format!("{whole}.{fraction} {unit}")
        };
    }
    format!("{time} ns")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_times_are_exact_or_refused() {
        for (text, time) in [
            ("10ms", Some(10_000_000)),
            ("1.5us", Some(1_500)),
            ("2 s", Some(2_000_000_000)),
            ("200\u{b5}s", Some(200_000)),
            ("200 \u{3bc}s", Some(200_000)),
            ("2\u{b5}", None),
            ("-3ns", Some(-3)),
            ("1.50ns", None),
            ("1.0ns", Some(1)),
            ("ms", None),
            ("5", None),
            ("5m", None),
            ("1.ms", None),
            ("9223372036854775807s", None),
        ] {
            assert_eq!(parse(text), time, "{text}");
        }
    }

    #[test]
    fn shown_times_read_back() {
        for time in [
            1,
            999,
            1_000,
            1_500,
            10_000_000,
            2_000_000_001,
            123_456_789_012,
        ] {
            assert_eq!(
                parse(&show(i128::from(time))),
                Some(time),
                "{}",
                show(i128::from(time))
            );
        }
    }
}
