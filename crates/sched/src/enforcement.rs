//! What a loader enforces, VCPU by VCPU: the form in which a plan comes to it.

use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use steadyvm_config::HostName;
use steadyvm_sched_policy::{CpuSet, Host, Kind, Order, Parameters};

/// What orders VCPUs that have a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// By absolute deadline: EDF.
    #[default]
    EarliestDeadline,
    /// By relative deadline: DM.
    DeadlineMonotonic,
    /// By period: RM.
    RateMonotonic,
    /// By `priority`, 0 first.
    Explicit,
}

/// Which VCPUs a CPU chooses from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// All that may run on it.
    #[default]
    Global,
    /// Those whose first CPU it is.
    Partitioned,
}

impl From<HostName> for Priority {
    fn from(scheduler: HostName) -> Self {
        match scheduler {
            HostName::Pedf | HostName::Gedf => Self::EarliestDeadline,
            HostName::Pdm | HostName::Gdm => Self::DeadlineMonotonic,
            HostName::Prm | HostName::Grm => Self::RateMonotonic,
            HostName::Pfp | HostName::Gfp => Self::Explicit,
        }
    }
}

impl From<HostName> for Queue {
    fn from(scheduler: HostName) -> Self {
        if scheduler.is_partitioned() {
            Self::Partitioned
        } else {
            Self::Global
        }
    }
}

/// All of it: what is not named has no budget.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enforcement {
    /// What orders VCPUs with a budget.
    pub order: Priority,
    /// Which VCPUs a CPU chooses from.
    pub queue: Queue,
    /// Budget events are seen at its multiples; 0: at exact times.
    pub quantum_ns: u64,
    /// VCPUs with a budget.
    pub vcpus: Vec<Reserved>,
}

/// A VCPU and its budget.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reserved {
    /// The VM's name.
    pub vm: String,
    /// The VCPU's number.
    pub vcpu: u32,
    /// Its thread.
    pub tid: u32,
    /// The server: a word of [`Kind::word`].
    pub server: String,
    /// CPU time in each period.
    pub budget_ns: u64,
    /// From a period's start.
    pub deadline_ns: u64,
    /// The period.
    pub period_ns: u64,
    /// For the explicit order, 0 first; else of VCPUs that come at the same time.
    #[serde(default)]
    pub priority: u32,
    /// CPUs that it may run on; all where none are given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
}

impl Enforcement {
    /// Refuses what no host can do.
    ///
    /// # Errors
    /// The first VCPU that breaks a rule, and which.
    pub fn check(&self) -> Result<(), Error> {
        let mut seen = BTreeSet::new();
        for vcpu in &self.vcpus {
            let refuse = |why: String| Error::Input(format!("{}: {why}", vcpu.place()));
            vcpu.parameters()
                .map_err(|error| refuse(error.to_string()))?;
            if vcpu.period_ns < self.quantum_ns {
                return Err(refuse(format!(
                    "its period of {} ns is below the quantum of {} ns; make the quantum smaller",
                    vcpu.period_ns, self.quantum_ns
                )));
            }
            if self.queue == Queue::Partitioned && vcpu.cpus.len() != 1 {
                return Err(refuse(
                    "in a partitioned host a VCPU needs one CPU, such as cpus = [1]".into(),
                ));
            }
            if !seen.insert(vcpu.tid) {
                return Err(refuse(format!(
                    "thread {} has another budget already",
                    vcpu.tid
                )));
            }
        }
        Ok(())
    }

    /// The host's policy.
    pub fn host(&self) -> Host {
        let order = match self.order {
            Priority::EarliestDeadline => Order::EarliestDeadline,
            Priority::DeadlineMonotonic => Order::DeadlineMonotonic,
            Priority::RateMonotonic => Order::RateMonotonic,
            Priority::Explicit => Order::Explicit,
        };
        Host::new(order, self.queue == Queue::Partitioned, self.quantum_ns)
    }
}

impl Reserved {
    /// Where it is, for messages.
    pub(crate) fn place(&self) -> String {
        format!("VCPU {} of VM {}", self.vcpu, self.vm)
    }

    /// For the policy.
    ///
    /// # Errors
    /// An unknown server, and what [`Parameters`] refuses.
    pub fn parameters(&self) -> Result<Parameters, Error> {
        let parameters = Parameters::new(kind(&self.server)?, self.budget_ns, self.period_ns)?;
        let parameters = parameters.with_deadline(self.deadline_ns)?;
        Ok(parameters.with_priority(self.priority))
    }

    /// Its CPUs, of those that the host has.
    pub(crate) fn cpu_set(&self, host_cpus: u32) -> CpuSet {
        if self.cpus.is_empty() {
            CpuSet::first(host_cpus)
        } else {
            self.cpus.iter().copied().collect()
        }
    }
}

/// A server that the scheduler can be.
pub(crate) fn kind(word: &str) -> Result<Kind, Error> {
    let found = Kind::ALL.into_iter().find(|kind| kind.word() == word);
    found.ok_or_else(|| {
        let words: Vec<&str> = Kind::ALL.into_iter().map(Kind::word).collect();
        Error::Input(format!(
            "`{word}` is no server; choose one of: {}",
            words.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Reserved {
        Reserved {
            vm: "web".into(),
            vcpu: 1,
            tid: 7,
            server: "sporadic".into(),
            budget_ns: 4_000_000,
            deadline_ns: 5_000_000,
            period_ns: 10_000_000,
            priority: 0,
            cpus: vec![1],
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_vcpu() {
        type Change = dyn Fn(&mut Enforcement);
        let good = Enforcement {
            queue: Queue::Partitioned,
            vcpus: vec![one()],
            ..Enforcement::default()
        };
        good.check().unwrap();
        let bad: [(&Change, &str); 5] = [
            (&|it| it.vcpus[0].server = "cfs".into(), "choose one of"),
            (&|it| it.vcpus[0].budget_ns = 10_000_001, "budget"),
            (&|it| it.vcpus[0].cpus.clear(), "needs one CPU"),
            (&|it| it.quantum_ns = 10_000_001, "below the quantum"),
            (&|it| it.vcpus.push(one()), "another budget"),
        ];
        for (change, says) in bad {
            let mut enforcement = good.clone();
            change(&mut enforcement);
            let said = enforcement.check().unwrap_err().to_string();
            assert!(
                said.contains("VCPU 1 of VM web") && said.contains(says),
                "{said}"
            );
        }
    }

    #[test]
    fn it_survives_the_socket() {
        let all = Enforcement {
            vcpus: vec![one()],
            ..Enforcement::default()
        };
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Enforcement>(&text).unwrap(), all);
    }
}
