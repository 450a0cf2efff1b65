//! The rules of one CPU.

use super::{Candidate, Dispatch, FairServer, VcpuServer, starts::Starts};

/// The rules of one CPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub dispatch: Dispatch,
    pub server: VcpuServer,
    /// Of each CPU, what VCPUs may have together.
    pub usable_percent: u8,
    pub fair_server: Option<FairServer>,
    /// What VCPUs pay after each other.
    pub starts: Starts,
    /// The promise to a VCPU holds whatever wakes the others.
    pub isolated: bool,
}

impl Rules {
    /// The rules of a CPU with these: guests can be believed where all of them have promised something.
    pub fn of<'c>(self, mut members: impl Iterator<Item = &'c Candidate>) -> Self {
        let isolated = self.isolated || !members.all(|member| member.reserved);
        Self { isolated, ..self }
    }
}
