//! Sets of CPU numbers, in the two text forms the kernel uses.

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The largest CPU number this code accepts, so that a malformed list cannot ask for
/// gigabytes. Linux's `NR_CPUS` ends at 8192 on the architectures that run KVM.
pub const MAX_CPU: usize = 8191;

/// A set of CPUs.
///
/// Parses and prints the kernel's list form (`0-3,8`); [`CpuSet::from_mask`] and
/// [`CpuSet::to_mask`] handle the mask form (`ff,ffffffff`).
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet(BTreeSet<usize>);

/// A text that is neither a CPU list nor a CPU mask.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {form} of CPUs numbered 0 to {MAX_CPU}")]
pub struct CpuSetError {
    text: String,
    form: &'static str,
}

impl CpuSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The set with one CPU.
    pub fn single(cpu: usize) -> Self {
        Self(BTreeSet::from([cpu]))
    }

    /// All CPUs from 0 to `count - 1`.
    pub fn first(count: usize) -> Self {
        (0..count).collect()
    }

    /// Reads the kernel's mask form: hexadecimal words of 32 bits, the highest first,
    /// separated by commas.
    pub fn from_mask(text: &str) -> Result<Self, CpuSetError> {
        let error = || CpuSetError {
            text: shorten(text),
            form: "mask",
        };
        let digits: Vec<&str> = text.trim().split(',').collect();
        if digits.len() > (MAX_CPU + 1) / 32 {
            return Err(error());
        }
        let mut set = BTreeSet::new();
        let words = digits.len();
        for (index, word) in digits.iter().enumerate() {
            // A mask without commas may be longer than one word.
            if word.is_empty() || (words > 1 && word.len() > 8) || word.len() > 2048 {
                return Err(error());
            }
            let base = (words - 1 - index) * 32;
            for (place, digit) in word.chars().rev().enumerate() {
                let value = digit.to_digit(16).ok_or_else(error)?;
                for bit in 0..4 {
                    if value & (1 << bit) != 0 {
                        set.insert(base + place * 4 + bit);
                    }
                }
            }
        }
        if set.last().is_some_and(|&cpu| cpu > MAX_CPU) {
            return Err(error());
        }
        Ok(Self(set))
    }

    /// Writes the kernel's mask form.
    pub fn to_mask(&self) -> String {
        let words = self.0.last().map_or(1, |&last| last / 32 + 1);
        let mut values = vec![0_u32; words];
        for &cpu in &self.0 {
            values[cpu / 32] |= 1 << (cpu % 32);
        }
        let mut text = format!("{:x}", values[words - 1]);
        for value in values.iter().rev().skip(1) {
            let _ = write!(text, ",{value:08x}");
        }
        text
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.contains(&cpu)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many CPUs are in the set.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The highest CPU in the set.
    pub fn last(&self) -> Option<usize> {
        self.0.last().copied()
    }

    /// The set without one CPU.
    #[must_use]
    pub fn without(&self, cpu: usize) -> Self {
        Self(
            self.0
                .iter()
                .copied()
                .filter(|&other| other != cpu)
                .collect(),
        )
    }

    /// Whether every CPU of this set is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    /// The CPUs in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().copied()
    }
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        Self(cpus.into_iter().filter(|&cpu| cpu <= MAX_CPU).collect())
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        let error = || CpuSetError {
            text: shorten(text),
            form: "list",
        };
        let number = |part: &str| -> Result<usize, CpuSetError> {
            if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(error());
            }
            part.parse()
                .ok()
                .filter(|&cpu| cpu <= MAX_CPU)
                .ok_or_else(error)
        };
        let mut set = BTreeSet::new();
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Ok(Self(set));
        }
        for part in trimmed.split(',') {
            match part.split_once('-') {
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if first > last {
                        return Err(error());
                    }
                    set.extend(first..=last);
                }
                None => {
                    set.insert(number(part)?);
                }
            }
        }
        Ok(Self(set))
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.peek() == Some(&(last + 1)) {
                last += 1;
                cpus.next();
            }
            write!(formatter, "{separator}{first}")?;
            if last > first {
                write!(formatter, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl From<CpuSet> for String {
    fn from(set: CpuSet) -> Self {
        set.to_string()
    }
}

impl TryFrom<String> for CpuSet {
    type Error = CpuSetError;

    fn try_from(text: String) -> Result<Self, CpuSetError> {
        text.parse()
    }
}

/// Error messages quote at most this much of a malformed text.
fn shorten(text: &str) -> String {
    text.trim().chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_the_kernels_forms() {
        let set: CpuSet = "0-2,5\n".parse().unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 1, 2, 5]);
        assert_eq!(set.to_string(), "0-2,5");
        assert_eq!(
            CpuSet::from_mask("00000001,00000003\n")
                .unwrap()
                .to_string(),
            "0-1,32"
        );
        assert_eq!(CpuSet::single(33).to_mask(), "2,00000000");
        assert!("\n".parse::<CpuSet>().unwrap().is_empty());
    }

    #[test]
    fn refuses_malformed_lists() {
        for text in ["3-1", "a", "1,,2", "-1", "0-99999999", "1-", "+1"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text}");
        }
        for text in ["", "xyz", "1,,2", "123456789,0"] {
            assert!(CpuSet::from_mask(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn both_forms_keep_every_set(cpus in prop::collection::btree_set(0..=MAX_CPU, 0..40)) {
            let set: CpuSet = cpus.into_iter().collect();
            prop_assert_eq!(&set.to_string().parse::<CpuSet>().unwrap(), &set);
            prop_assert_eq!(&CpuSet::from_mask(&set.to_mask()).unwrap(), &set);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*", digits in "[0-9a-f,-]{0,40}") {
            let _ = text.parse::<CpuSet>();
            let _ = CpuSet::from_mask(&text);
            let _ = digits.parse::<CpuSet>();
            let _ = CpuSet::from_mask(&digits);
        }
    }
}
