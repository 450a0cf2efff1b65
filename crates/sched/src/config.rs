//! The section `[sched]` of a file: what enforces VCPU budgets, and which.
//!
//! ```toml
//! [sched]
//! mechanism = "ext"          # auto, ext or deadline
//! server = "deferrable"      # of VMs that name none
//! order = "earliest-deadline"
//! queue = "global"           # or partitioned
//! quantum_us = 0             # 0: budgets end at exact times
//!
//! [sched.vm.control]
//! budget_us = 4000
//! period_us = 10000
//! ```

use crate::scheduler::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use steadyvm_sched_policy::{CpuSet, Host, Kind, Order, Parameters};

/// What enforces budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// The best that the kernel has.
    #[default]
    Auto,
    /// `sched_ext`.
    Ext,
    /// `SCHED_DEADLINE`.
    Deadline,
}

/// [`Order`], as files say it.
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

/// The section `[sched]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What enforces budgets.
    pub mechanism: Mechanism,
    /// The server of VMs that name none: a word of [`Kind::word`].
    pub server: String,
    /// What orders VCPUs with a budget.
    pub order: Priority,
    /// Which VCPUs a CPU chooses from.
    pub queue: Queue,
    /// Budget events are seen at its multiples, in microseconds; 0: at exact times.
    pub quantum_us: u64,
    /// VMs, by name.
    pub vm: BTreeMap<String, Vm>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mechanism: Mechanism::default(),
            server: Kind::Deferrable.word().to_owned(),
            order: Priority::default(),
            queue: Queue::default(),
            quantum_us: 0,
            vm: BTreeMap::new(),
        }
    }
}

/// What each VCPU of a VM gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vm {
    /// CPU time in each period, in microseconds.
    pub budget_us: u64,
    /// The period, in microseconds.
    pub period_us: u64,
    /// From a period's start, in microseconds; the period where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_us: Option<u64>,
    /// A word of [`Kind::word`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// For the explicit order, 0 first.
    #[serde(default)]
    pub priority: u32,
    /// CPUs that it may run on; all where none are given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    sched: Config,
}

impl Config {
    /// Reads the section of a file; other sections are others'.
    ///
    /// # Errors
    /// No TOML, unknown or impossible values.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let file: File = toml::from_str(text).map_err(|error| Error::Input(error.to_string()))?;
        file.sched.check()?;
        Ok(file.sched)
    }

    /// Refuses what no host can do: see [`Vm::parameters`].
    pub fn check(&self) -> Result<(), Error> {
        kind(&self.server)?;
        for (name, vm) in &self.vm {
            vm.parameters(&self.server)
                .map_err(|error| Error::Input(format!("[sched.vm.{name}]: {error}")))?;
            if vm.period_us < self.quantum_us {
                return Err(Error::Input(format!(
                    "[sched.vm.{name}]: its period of {} us is below the quantum of {} us; make quantum_us smaller",
                    vm.period_us, self.quantum_us
                )));
            }
            if self.queue == Queue::Partitioned && vm.cpus.len() != 1 {
                return Err(Error::Input(format!(
                    "[sched.vm.{name}]: in a partitioned host a VM needs one CPU, such as cpus = [1]"
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
        Host::new(
            order,
            self.queue == Queue::Partitioned,
            self.quantum_us * 1000,
        )
    }

    /// The CPUs that all VMs' budgets need together, where each VM has so many VCPUs.
    pub fn utilization<'v>(vms: impl IntoIterator<Item = (&'v Vm, usize)>) -> f64 {
        let of =
            |(vm, vcpus): (&Vm, usize)| vm.budget_us as f64 / vm.period_us as f64 * vcpus as f64;
        vms.into_iter().map(of).sum()
    }
}

fn kind(word: &str) -> Result<Kind, Error> {
    let found = Kind::ALL.into_iter().find(|kind| kind.word() == word);
    found.ok_or_else(|| {
        let words: Vec<&str> = Kind::ALL.into_iter().map(Kind::word).collect();
        Error::Input(format!(
            "`{word}` is no server; choose one of: {}",
            words.join(", ")
        ))
    })
}

impl Vm {
    /// For the policy.
    ///
    /// # Errors
    /// An unknown server, and what [`Parameters`] refuses.
    pub fn parameters(&self, server: &str) -> Result<Parameters, Error> {
        let kind = kind(self.server.as_deref().unwrap_or(server))?;
        if kind.idles() {
            return Err(Error::Input(format!(
                "the scheduler cannot idle budgets away yet, which a {} server does; choose deferrable, polling, sporadic \
                 or cbs",
                kind.word()
            )));
        }
        let ns = |us: u64| us.saturating_mul(1000);
        let mut parameters = Parameters::new(kind, ns(self.budget_us), ns(self.period_us))?;
        if let Some(deadline_us) = self.deadline_us {
            parameters = parameters.with_deadline(ns(deadline_us))?;
        }
        Ok(parameters.with_priority(self.priority))
    }

    /// Its CPUs, of those that the host has.
    pub fn cpu_set(&self, host_cpus: u32) -> CpuSet {
        if self.cpus.is_empty() {
            CpuSet::first(host_cpus)
        } else {
            self.cpus.iter().copied().collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TWO: &str = "[host]\nmethod = 'rt'\n[sched]\nmechanism = 'ext'\nserver = 'sporadic'\n\
        [sched.vm.a]\nbudget_us = 4000\nperiod_us = 10000\n\
        [sched.vm.b]\nbudget_us = 10\nperiod_us = 100\nserver = 'polling'\ncpus = [1]\n";

    #[test]
    fn a_file_says_what_each_vm_gets() {
        let config = Config::parse(TWO).unwrap();
        assert_eq!(config.mechanism, Mechanism::Ext);
        let parameters = |name: &str| config.vm[name].parameters(&config.server).unwrap();
        assert_eq!(parameters("a").kind(), Kind::Sporadic);
        assert_eq!(parameters("a").budget_ns(), 4_000_000);
        assert_eq!(parameters("b").kind(), Kind::Polling);
        assert_eq!(config.vm["b"].cpu_set(4), [1].into_iter().collect());
        let both = config.vm.values().zip([2, 1]);
        assert!((Config::utilization(both) - 0.9).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_name() {
        for (from, to, says) in [
            ("budget_us = 10\n", "budget_us = 101\n", "[sched.vm.b]"),
            ("budget_us = 10\n", "budget_us = 0\n", "[sched.vm.b]"),
            ("'polling'", "'pooling'", "choose one of: deferrable"),
            ("'polling'", "'periodic'", "cannot idle budgets away yet"),
            (
                "'sporadic'",
                "'sporadic'\nquantum_us = 1000",
                "below the quantum",
            ),
            (
                "'sporadic'",
                "'sporadic'\nqueue = 'partitioned'",
                "[sched.vm.a]: in a partitioned host",
            ),
            ("'sporadic'", "'sporadic'\nquantum = 1000", "unknown field"),
        ] {
            let error = Config::parse(&TWO.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(says), "{to}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*", budget in any::<u64>(), period in any::<u64>()) {
            let _ = Config::parse(&text);
            let text = format!("[sched.vm.a]\nbudget_us = {budget}\nperiod_us = {period}\n");
            let _ = Config::parse(&text);
        }
    }
}
