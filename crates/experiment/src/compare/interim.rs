//! The tables of a comparison before its end. Pure.

use super::{RunData, assemble, table};
use crate::engine::rounds::share;
use steadyvm_stats::bootstrap::BootstrapOptions;

/// How long a comparison is: its requests per method and phase, and its rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Counted requests per method and phase, over all rounds.
    pub samples: u64,
    /// Rounds.
    pub rounds: u64,
}

/// Whether a table is due after so many rounds: after the first, and whenever they have doubled, for
/// figures change little in between. After the last comes the whole table.
pub fn is_due(done: u64, extent: Extent) -> bool {
    done < extent.rounds && done.is_power_of_two()
}

/// The table of the rounds done, between two lines that say that it is not the last one.
pub fn render(data: &RunData, done: u64, extent: Extent) -> String {
    let Extent { samples, rounds } = extent;
    let counted: u64 = (0..done).map(|round| share(samples, rounds, round)).sum();
    let results = assemble(data, BootstrapOptions::default());
    format!(
        "interim: round {done} of {rounds}, n = {counted} of {samples} per method and phase; the whole table follows\n\n\
         {}\ninterim: the figures above will change\n",
        table::render(&results)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_due_after_the_first_round_and_then_ever_more_rarely_but_not_after_the_last() {
        let due = |rounds| {
            let extent = Extent {
                samples: 100,
                rounds,
            };
            let due: Vec<u64> = (1..=rounds).filter(|&it| is_due(it, extent)).collect();
            due
        };
        assert_eq!(due(1), [0; 0]);
        assert_eq!(due(2), [1]);
        assert_eq!(due(3), [1, 2]);
        assert_eq!(due(8), [1, 2, 4]);
        assert_eq!(due(10), [1, 2, 4, 8]);
    }
}
