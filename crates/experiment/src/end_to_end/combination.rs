//! What is compared: who schedules the VCPUs, and how packets are received.

use crate::testbed::Mechanism;
use crate::testbed::Setting;
use crate::testbed::{Endpoints, Interference};
use std::fmt;
use steadyvm_host::Method;

/// How a host handles packets: what it is booted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// As the kernel does.
    Stock,
    /// Method `rt-levels`, and one packet of another VM at a time.
    Levels,
}

impl Path {
    /// In the order shown.
    pub const ALL: [Self; 2] = [Self::Stock, Self::Levels];

    /// Its host's setting.
    pub fn setting(self) -> Setting {
        Setting {
            method: match self {
                Self::Stock => Method::Vanilla,
                Self::Levels => Method::RtLevels,
            },
            has_batches: self == Self::Levels,
            endpoints: Endpoints::Vms,
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Stock => "stock path",
            Self::Levels => "levels",
        })
    }
}

/// Who schedules the VCPUs of T1, in the order shown; the first one knows no budget.
const MECHANISMS: [Mechanism; 3] = [Mechanism::Fair, Mechanism::Deadline, Mechanism::Ext];

/// What is measured on each host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Who schedules.
    pub mechanism: Mechanism,
    /// How many VMs send.
    pub level: Interference,
}

impl Cell {
    /// All of them, by mechanism: one is switched to once a round.
    pub fn all() -> Vec<Self> {
        let of = |mechanism| Interference::ALL.map(|level| Self { mechanism, level });
        MECHANISMS.into_iter().flat_map(of).collect()
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}: {}",
            self.mechanism.title(),
            self.level.title()
        )
    }
}

/// A row of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Combination {
    /// Who schedules.
    pub mechanism: Mechanism,
    /// How packets are received.
    pub path: Path,
}

impl Combination {
    /// In the order shown; the first is all stock.
    pub fn all() -> Vec<Self> {
        let of = |mechanism| Path::ALL.map(|path| Self { mechanism, path });
        MECHANISMS.into_iter().flat_map(of).collect()
    }

    /// Whether VCPUs have budgets and packets have levels.
    pub fn has_both(self) -> bool {
        self.mechanism.has_budgets() && self.path == Path::Levels
    }

    /// Where it is measured: its host's number in [`Path::ALL`], and its cell's in [`Cell::all`].
    pub fn place(self, level: Interference) -> Option<(usize, usize)> {
        let mechanism = self.mechanism;
        let host = Path::ALL.iter().position(|path| *path == self.path)?;
        let cells = Cell::all();
        let wanted = Cell { mechanism, level };
        let cell = cells.iter().position(|cell| *cell == wanted)?;
        Some((host, cell))
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, {}", self.mechanism.title(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_is_measured_once_at_every_level_and_the_first_is_stock() {
        let mut places: Vec<(usize, usize)> = Combination::all()
            .into_iter()
            .flat_map(|it| Interference::ALL.map(|level| it.place(level).unwrap()))
            .collect();
        places.sort_unstable();
        let all =
            (0..Path::ALL.len()).flat_map(|host| (0..Cell::all().len()).map(move |it| (host, it)));
        assert_eq!(places, all.collect::<Vec<_>>());
        let first = Combination::all()[0];
        assert_eq!(first.to_string(), "stock fair, stock path");
        assert!(!first.mechanism.has_budgets());
    }

    #[test]
    fn levels_have_batches_and_the_stock_path_nothing() {
        assert_eq!(Path::Stock.setting().method, Method::Vanilla);
        assert!(!Path::Stock.setting().has_batches);
        let levels = Path::Levels.setting();
        assert!(levels.method.has_levels() && levels.has_batches);
    }
}
