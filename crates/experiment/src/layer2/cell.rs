//! The conditions: how many streams, and what is beside the relay.

use crate::testbed::beside::Beside;
use std::fmt;

/// Frames per second of each stream, an eighth of a process bus's where the network has 50 Hz: the lab's hosts carry no more
/// (README.md).
pub(super) const FRAMES_PER_S: u32 = 500;

/// A condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub streams: u8,
    pub beside: Beside,
}

const fn cell(streams: u8, beside: Beside) -> Cell {
    Cell { streams, beside }
}

/// What a row's longest gap and p99 are judged in.
pub(super) const BESIDE_NEIGHBOUR: Cell = cell(1, Beside::Neighbour);

/// The conditions, in the order of measuring.
pub(super) const CELLS: [Cell; 5] = [
    cell(1, Beside::Nothing),
    cell(4, Beside::Nothing),
    cell(8, Beside::Nothing),
    cell(1, Beside::Stream),
    BESIDE_NEIGHBOUR,
];

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let streams = match self.streams {
            1 => "one stream".to_owned(),
            many => format!("{many} streams"),
        };
        formatter.pad(&format!("{streams} {}", self.beside))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use steadyvm_load::layer2::MOST_STREAMS;

    #[test]
    fn every_condition_has_a_name_of_its_own_and_streams_that_can_be_sent() {
        let names: BTreeSet<String> = CELLS.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), CELLS.len());
        assert!(CELLS.iter().all(|it| it.streams <= MOST_STREAMS));
        assert_eq!(
            BESIDE_NEIGHBOUR.to_string(),
            "one stream beside a FIFO neighbour"
        );
    }
}
