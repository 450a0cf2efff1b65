//! What is measured: who schedules, and what else computes.

use super::quantum::{Asked, Quantum};
use super::work;
use crate::testbed::Mechanism;
use std::fmt;

/// What else wants CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// So many normal threads that compute; 0: nothing.
    Computing(usize),
    /// One thread at FIFO 40 that takes 95 of every 100 ms of CPU 1, beside four normal ones.
    Fifo,
}

impl Beside {
    /// How many normal threads compute.
    pub fn computing(self) -> usize {
        match self {
            Self::Computing(count) => count,
            Self::Fifo => 4,
        }
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Computing(0) => formatter.write_str("alone"),
            Self::Computing(count) => write!(formatter, "beside {count}"),
            Self::Fifo => formatter.write_str("beside 4 and a FIFO"),
        }
    }
}

/// A table or figure of the experiment, which can be measured without the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Table 4.2: a VCPU's share.
    Share,
    /// Tables 4.3, 2.2 and 2.1: deadline misses of domains, and what decisions cost.
    Domains,
    /// `NetRT` inside a planned budget.
    NetRt,
    /// CPU time lost to scheduling.
    Work,
    /// Figure 2.4: the quantum.
    Quantum,
}

impl Part {
    /// In the order shown.
    pub const ALL: [Self; 5] = [
        Self::Share,
        Self::Domains,
        Self::NetRt,
        Self::Work,
        Self::Quantum,
    ];
}

/// So many that a task of section 4.3.1 gets less than its 14 % from a scheduler that shares evenly: on two CPUs, one in nine.
const CROWD: usize = 16;

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Table 4.2: the share of one VCPU, a thread of the host, that wants all it can get.
    Share(Beside),
    /// The same of a real VM's VCPU.
    VmShare(Beside),
    /// Tables 4.3 and 2.2: three domains of periodic tasks.
    Domains {
        /// What computes beside them.
        beside: Beside,
        /// Whether domain 2 asks for three times its budget.
        overloaded: bool,
    },
    /// `NetRT` in the VM under its planned budget.
    NetRt(Beside),
    /// What so many tasks that compute get done: [`super::work`].
    Work(usize),
    /// Figure 2.4, of a scheduler that has a quantum.
    Quantum {
        /// When it looks.
        quantum: Quantum,
        /// What the RT VCPU's task asks for.
        asked: Asked,
    },
}

impl Condition {
    /// Those of every mechanism, in the order of measuring.
    pub const ALL: [Self; 14] = [
        Self::Share(Beside::Computing(0)),
        Self::Share(Beside::Computing(1)),
        Self::Share(Beside::Computing(4)),
        Self::Share(Beside::Fifo),
        Self::VmShare(Beside::Computing(0)),
        Self::VmShare(Beside::Computing(4)),
        Self::domains(0, false),
        Self::domains(2, false),
        Self::domains(4, false),
        Self::domains(CROWD, false),
        Self::domains(4, true),
        Self::NetRt(Beside::Computing(0)),
        Self::NetRt(Beside::Computing(4)),
        Self::Work(work::TOGETHER),
    ];

    /// Those of one.
    fn of(mechanism: Mechanism) -> Vec<Self> {
        let mut all = Self::ALL.to_vec();
        if mechanism == Mechanism::Fair {
            all.push(Self::Work(work::ALONE));
        }
        if mechanism == Mechanism::Ext {
            all.extend(Quantum::ALL.into_iter().flat_map(Self::with_quantum));
        }
        all
    }

    /// The table or figure that it is measured for.
    pub fn part(self) -> Part {
        match self {
            Self::Share(_) | Self::VmShare(_) => Part::Share,
            Self::Domains { .. } => Part::Domains,
            Self::NetRt(_) => Part::NetRt,
            Self::Work(_) => Part::Work,
            Self::Quantum { .. } => Part::Quantum,
        }
    }

    /// Those of a part, in the order of measuring.
    pub fn of_part(part: Part) -> impl Iterator<Item = Self> {
        let quanta = Quantum::ALL.into_iter().flat_map(Self::with_quantum);
        let all = Self::ALL.into_iter().chain(quanta);
        all.filter(move |it| it.part() == part)
    }

    fn with_quantum(quantum: Quantum) -> [Self; 5] {
        Asked::ALL.map(|asked| Self::Quantum { quantum, asked })
    }

    /// Its name in the table of its part.
    pub fn short(self) -> String {
        match self {
            Self::Share(beside)
            | Self::NetRt(beside)
            | Self::Domains {
                beside,
                overloaded: false,
            } => beside.to_string(),
            Self::VmShare(beside) => format!("VM {beside}"),
            Self::Domains { beside, .. } => format!("{beside}, overload"),
            Self::Work(_) | Self::Quantum { .. } => self.to_string(),
        }
    }

    /// Whether the VM takes part. Where it does not, it stands still: a VCPU at FIFO 70 that waits for another one, which gets no CPU
    /// as a normal thread, spins until it does.
    pub fn uses_vm(self) -> bool {
        matches!(self, Self::VmShare(_) | Self::NetRt(_))
    }

    const fn domains(computing: usize, overloaded: bool) -> Self {
        Self::Domains {
            beside: Beside::Computing(computing),
            overloaded,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(beside) => write!(formatter, "a VCPU {beside}"),
            Self::VmShare(beside) => write!(formatter, "a VM {beside}"),
            Self::Domains { beside, overloaded } => {
                let overloaded = if *overloaded { ", one overloaded" } else { "" };
                write!(formatter, "domains {beside}{overloaded}")
            }
            Self::NetRt(beside) => write!(formatter, "NetRT {beside}"),
            Self::Work(tasks) => write!(formatter, "work of {tasks} tasks"),
            Self::Quantum { quantum, asked } => {
                write!(formatter, "quantum {}, ", quantum.title())?;
                match asked {
                    Asked::Percent(percent) => write!(formatter, "{percent} % asked"),
                    Asked::All => formatter.write_str("all asked"),
                }
            }
        }
    }
}

/// A cell of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Its row.
    pub mechanism: Mechanism,
    /// Its column.
    pub condition: Condition,
}

impl Cell {
    /// Those of the parts, by mechanism: one is switched to once a round.
    pub fn of(parts: &[Part]) -> Vec<Self> {
        let of = |mechanism| {
            let conditions = Condition::of(mechanism).into_iter();
            conditions.map(move |condition| Self {
                mechanism,
                condition,
            })
        };
        let all = Mechanism::ALL.into_iter().flat_map(of);
        all.filter(|cell| parts.contains(&cell.condition.part()))
            .collect()
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.mechanism.title(), self.condition)
    }
}
