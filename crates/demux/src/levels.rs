//! From the priority of a process to the level of its packets.

use serde::{Deserialize, Serialize};

/// How many levels there can be: `LEVELS` of bpf/demux.bpf.c.
pub const LEVELS: usize = 4;

/// Priorities of processes: 0 (not real-time) to 99.
pub const PRIORITIES: usize = 100;

/// The levels, from the lowest: each begins at a priority of the process that has the port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u32>", into = "Vec<u32>")]
pub struct Levels(Vec<u32>);

/// Levels that make no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LevelsError {
    /// Too few or too many.
    #[error("there can be 1 to {LEVELS} levels, not {0}")]
    Count(usize),
    /// A process would have no level.
    #[error("the lowest level begins at priority {0}, not at 0, so some processes have no level")]
    Lowest(u32),
    /// Not in ascending order, or the same twice.
    #[error("a level that begins at priority {1} cannot follow one that begins at {0}")]
    Order(u32, u32),
    /// No process can have it.
    #[error("a level begins at priority {0}, but 99 is the highest")]
    Highest(u32),
}

impl Levels {
    /// Levels that begin at these priorities.
    ///
    /// # Errors
    /// What makes no sense.
    pub fn new(from: Vec<u32>) -> Result<Self, LevelsError> {
        if from.is_empty() || from.len() > LEVELS {
            return Err(LevelsError::Count(from.len()));
        }
        if from[0] != 0 {
            return Err(LevelsError::Lowest(from[0]));
        }
        if let Some(pair) = from.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(LevelsError::Order(pair[0], pair[1]));
        }
        match from.last() {
            Some(&last) if last as usize >= PRIORITIES => Err(LevelsError::Highest(last)),
            _ => Ok(Self(from)),
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The level of a priority: the highest that begins at or below it.
    pub fn of(&self, priority: u32) -> usize {
        self.0
            .iter()
            .rposition(|&from| from <= priority)
            .unwrap_or(0)
    }

    /// The level of protocols without a process, which the kernel serves itself: the highest
    /// (NISP, section III.D).
    pub fn of_kernel(&self) -> usize {
        self.count() - 1
    }

    /// The level of every priority, as the BPF program looks it up.
    pub(crate) fn table(&self) -> [u8; PRIORITIES] {
        std::array::from_fn(|priority| self.of(priority as u32) as u8)
    }
}

impl TryFrom<Vec<u32>> for Levels {
    type Error = LevelsError;

    fn try_from(from: Vec<u32>) -> Result<Self, LevelsError> {
        Self::new(from)
    }
}

impl From<Levels> for Vec<u32> {
    fn from(levels: Levels) -> Self {
        levels.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_belongs_to_the_highest_level_that_begins_at_or_below_it() {
        let levels = Levels::new(vec![0, 1, 50]).unwrap();
        let found: Vec<usize> = [0, 1, 49, 50, 99]
            .into_iter()
            .map(|p| levels.of(p))
            .collect();
        assert_eq!(found, [0, 1, 1, 2, 2]);
        assert_eq!(levels.of_kernel(), 2);
        for priority in 0..PRIORITIES {
            assert_eq!(
                usize::from(levels.table()[priority]),
                levels.of(priority as u32)
            );
        }
    }

    #[test]
    fn levels_that_make_no_sense_are_refused() {
        assert_eq!(Levels::new(vec![]), Err(LevelsError::Count(0)));
        assert_eq!(Levels::new(vec![0, 1, 2, 3, 4]), Err(LevelsError::Count(5)));
        assert_eq!(Levels::new(vec![1]), Err(LevelsError::Lowest(1)));
        assert_eq!(Levels::new(vec![0, 5, 5]), Err(LevelsError::Order(5, 5)));
        assert_eq!(Levels::new(vec![0, 100]), Err(LevelsError::Highest(100)));
    }
}
