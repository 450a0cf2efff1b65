//! Figures of the dissertation "Real-Time Virtualization: From Single-Core to Multi-Core, to the Cloud" (Xi, 2014), simulated.
//!
//! Each has a Markdown page: what is asked and found, a picture, what differs from the paper, n, the seed, the paper's figures
//! beside ours.

mod enhanced;
mod multicore;
mod shares;
mod theory;
mod verdict;

use steadyvm_report::Answer;

/// An experiment.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// The figures it stands for.
    pub figures: &'static str,
    run: fn(u64) -> Found,
}

/// What came of one.
#[derive(Debug)]
pub struct Found {
    /// What its page begins with.
    pub answer: Answer,
    /// What was simulated.
    pub introduction: String,
    /// Every figure, as Markdown.
    pub tables: String,
}

impl Experiment {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self {
            name: "multicore",
            figures: "Figures 3.4 (RT-Xen's curves), 3.5 to 3.9",
            run: multicore::run,
        },
        Self {
            name: "shares",
            figures: "Figure 2.5",
            run: shares::run,
        },
        Self {
            name: "periodic-servers",
            figures: "Figures 2.7 to 2.9",
            run: enhanced::run,
        },
        Self {
            name: "theory",
            figures: "Table 2.4; the analysis of sections 4.3.2 and 4.3.3",
            run: theory::run,
        },
    ];

    /// The experiment of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|experiment| experiment.name == name)
    }

    /// Runs it.
    pub fn run(&self, seed: u64) -> Found {
        (self.run)(seed)
    }
}
