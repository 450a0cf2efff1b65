//! The analysis' own word on a host: [`steadyvm_analysis::host::admit`], as Nova's filter asks it, remembered by what is asked.
//!
//! A host of a kind with the same numbers of VMs by flavour has the same answer, whoever asks and in whichever run: hosts of one
//! kind share it. Of a day of many hosts few questions are new.

use std::collections::HashMap;

use steadyvm_analysis::{
    Work,
    host::{Host, HostScheduler, Vcpu, VcpuServer, admit, overhead::Overheads},
};

use super::{claim::Needs, scenario::Scenario};

/// Answers that are kept: some hundred MiB.
const MOST_KEPT: usize = 2_000_000;

/// The real-time VMs of a host: how many of each flavour, and of which kind the host is.
type Question = Vec<u16>;

/// Asks the analysis.
#[derive(Debug)]
pub struct Judge<'s> {
    scenario: &'s Scenario,
    /// By kind of host, then flavour.
    claims: &'s [Vec<Needs>],
    known: HashMap<Question, bool>,
    question: Question,
    /// Questions, and those that the analysis had to answer.
    pub asked: u64,
    /// Those that the analysis had to answer.
    pub computed: u64,
}

impl<'s> Judge<'s> {
    /// Of these hosts and flavours.
    pub fn new(scenario: &'s Scenario, claims: &'s [Vec<Needs>]) -> Self {
        Self {
            scenario,
            claims,
            known: HashMap::new(),
            question: Question::new(),
            asked: 0,
            computed: 0,
        }
    }

    /// Whether a host of `kind` holds `counts` VMs by flavour, and one of `more`.
    pub fn holds(&mut self, kind: usize, counts: &[u16], more: Option<u16>) -> bool {
        self.asked += 1;
        self.question.clear();
        self.question.extend_from_slice(counts);
        if let Some(more) = more {
            let count = &mut self.question[usize::from(more)];
            *count = count.saturating_add(1);
        }
        self.question.push(kind as u16);
        if let Some(&answer) = self.known.get(&self.question) {
            return answer;
        }
        self.computed += 1;
        let answer = self.compute(kind);
        if self.known.len() == MOST_KEPT {
            self.known.clear();
        }
        self.known.insert(self.question.clone(), answer);
        answer
    }

    fn compute(&self, kind: usize) -> bool {
        let counts = &self.question[..self.question.len() - 1];
        let mut vcpus = Vec::new();
        let mut vm = 0;
        for (&count, claim) in counts.iter().zip(&self.claims[kind]) {
            for _ in 0..count {
                match claim {
                    Needs::Rest => {}
                    Needs::TooMuch => return false,
                    Needs::Claim(claim) => {
                        let Some(vcpu) = claim.vcpu(vm) else {
                            return false;
                        };
                        vcpus.extend(std::iter::repeat_n(vcpu, claim.vcpus as usize));
                        vm += 1;
                    }
                }
            }
        }
        admits(self.scenario.kinds[kind].cpus, &vcpus)
    }
}

/// Whether so many CPUs hold these VCPUs, under the scheduler and the server that Nova's filter asks about. The answer is the same
/// in whatever order VMs came: the packing of the analysis tries the order that it is given.
pub fn admits(cpus: u32, vcpus: &[Vcpu]) -> bool {
    let mut siblings: HashMap<usize, usize> = HashMap::new();
    for vcpu in vcpus {
        *siblings.entry(vcpu.vm()).or_default() += 1;
    }
    let mut vcpus = vcpus.to_vec();
    vcpus.sort_by_key(|it| (it.budget(), it.period(), siblings[&it.vm()], it.vm()));
    let pedf = HostScheduler::PartitionedEarliestDeadline;
    Host::new(
        cpus,
        pedf,
        VcpuServer::ConstantBandwidth,
        Overheads::default(),
    )
    .is_ok_and(|host| admit(&host, &vcpus, &mut Work::default()).is_feasible())
}
