//! The numbers of a host's CPUs, as "2-15,18" or as a list.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::{Deserialize, Deserializer, de};

/// No kernel that runs KVM has a CPU of a higher number (`NR_CPUS`).
const HIGHEST_CPU: u32 = 8191;

/// CPU numbers in ascending order, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuNumbers(pub Vec<u32>);

impl CpuNumbers {
    /// Those of a list as the kernel prints it; none if it is no such list.
    fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| {
            let text = text.trim();
            let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = is_plain.then(|| text.parse::<u32>().ok()).flatten()?;
            (number <= HIGHEST_CPU).then_some(number)
        };
        let mut numbers = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return None;
            }
            numbers.extend(first..=last);
        }
        Some(Self(numbers.into_iter().collect()))
    }
}

/// Ascending numbers as the kernel prints them: "2-15,18".
pub fn ranges(numbers: &[u32]) -> String {
    let mut text = String::new();
    for run in numbers.chunk_by(|one, next| one + 1 == *next) {
        let separator = if text.is_empty() { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = match run {
            [first, .., last] => write!(text, "{separator}{first}-{last}"),
            _ => write!(text, "{separator}{}", run[0]),
        };
    }
    text
}

impl<'de> Deserialize<'de> for CpuNumbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = CpuNumbers;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("numbers of CPUs such as \"2-15,18\" or [2, 3]")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<CpuNumbers, E> {
                CpuNumbers::parse(text)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<CpuNumbers, A::Error> {
                let mut numbers = BTreeSet::new();
                while let Some(number) = list.next_element::<u32>()? {
                    if number > HIGHEST_CPU {
                        let unexpected = de::Unexpected::Unsigned(number.into());
                        return Err(de::Error::invalid_value(unexpected, &self));
                    }
                    numbers.insert(number);
                }
                Ok(CpuNumbers(numbers.into_iter().collect()))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_prints_them() {
        let numbers = |text: &str| CpuNumbers::parse(text).map(|numbers| numbers.0);
        assert_eq!(numbers("2-4,18"), Some(vec![2, 3, 4, 18]));
        assert_eq!(numbers("4, 2-3,3"), Some(vec![2, 3, 4]));
        for wrong in [
            "",
            "3-2",
            "a",
            "-1",
            "1-",
            "1,,2",
            "0-99999999",
            "+1",
            "2-15-17",
        ] {
            assert_eq!(numbers(wrong), None, "{wrong}");
        }
        assert_eq!(ranges(&[2, 3, 4, 18]), "2-4,18");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,24}") {
            let _ = CpuNumbers::parse(&text);
        }
    }
}
