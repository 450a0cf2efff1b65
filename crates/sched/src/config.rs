//! What the section `[sched]` of a file asks of this scheduler: what enforces VCPU budgets, and which.
//!
//! ```toml
//! [sched]
//! mechanism = "ext"          # auto, ext or deadline
//! server = "deferrable"      # of VMs that name none; without it that of [host], or cbs
//! order = "earliest-deadline"
//! queue = "global"           # or partitioned
//! quantum_us = 0             # 0: budgets end at exact times
//!
//! [sched.vm.control]
//! budget_us = 4000
//! period_us = 10000
//! ```

use crate::enforcement::{Enforcement, Reserved, kind};
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use steadyvm_config::{File, Placed, ServerName};
pub use steadyvm_config::{Mechanism, Priority, Queue};
use steadyvm_sched_policy::Parameters;

/// The section `[sched]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What enforces budgets.
    pub mechanism: Mechanism,
    /// The server of VMs that name none: a word of [`steadyvm_sched_policy::Kind::word`].
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
            server: ServerName::default().word().to_owned(),
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
    /// A word of [`steadyvm_sched_policy::Kind::word`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// For the explicit order, 0 first.
    #[serde(default)]
    pub priority: u32,
    /// CPUs that it may run on; all where none are given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
}

/// The server of VCPUs whose VM names none: that of `[sched]`, else that of `[host]`, else the default of `[host]`.
pub fn default_server(file: &File) -> String {
    let own = (file.sched.as_ref()).and_then(|table| table.server.clone());
    own.unwrap_or_else(|| planned_server(file).word().to_owned())
}

/// The server that a file's plan is for.
pub fn planned_server(file: &File) -> ServerName {
    file.host
        .as_ref()
        .map_or_else(ServerName::default, |host| host.server)
}

impl Config {
    /// Reads a file that nobody else reads.
    ///
    /// # Errors
    /// A file that is wrong, and what [`Self::of`] refuses.
    pub fn parse(name: &str, text: &str) -> Result<Self, Error> {
        let file = File::parse(name, text).map_err(|error| Error::Input(error.to_string()))?;
        Self::of(&file)
    }

    /// The section of a file.
    ///
    /// # Errors
    /// Impossible values, with their place.
    pub fn of(file: &File) -> Result<Self, Error> {
        let Some(table) = &file.sched else {
            return Ok(Self::default());
        };
        let config = Self {
            mechanism: table.mechanism,
            server: default_server(file),
            order: table.order.unwrap_or_default(),
            queue: table.queue.unwrap_or_default(),
            quantum_us: table.quantum_us.unwrap_or_default(),
            vm: (table.vm.iter())
                .map(|(name, vm)| (name.clone(), Vm::from(&vm.value)))
                .collect(),
        };
        kind(&config.server).map_err(|error| at(table, &error))?;
        for (name, vm) in &table.vm {
            let checked = config.check_vm(name, &config.vm[name]);
            checked.map_err(|error| at(vm, &error))?;
        }
        Ok(config)
    }

    /// Refuses what no host can do: see [`Vm::parameters`].
    pub fn check(&self) -> Result<(), Error> {
        kind(&self.server)?;
        let mut vms = self.vm.iter();
        vms.try_for_each(|(name, vm)| self.check_vm(name, vm))
    }

    fn check_vm(&self, name: &str, vm: &Vm) -> Result<(), Error> {
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
        Ok(())
    }

    /// Refuses VMs none of whose CPUs is one of these.
    ///
    /// # Errors
    /// The first such VM.
    pub fn check_cpus(&self, online: &[u32]) -> Result<(), Error> {
        let none =
            |vm: &&Vm| !vm.cpus.is_empty() && !vm.cpus.iter().any(|cpu| online.contains(cpu));
        match self.vm.iter().find(|(_, vm)| none(vm)) {
            None => Ok(()),
            Some((name, vm)) => Err(Error::Input(format!(
                "[sched.vm.{name}]: no CPU of cpus = {:?} is online; those of this host are {online:?}",
                vm.cpus
            ))),
        }
    }

    /// What is more than these CPUs have, in words: all budgets together, or those of VMs that share a mask. `vcpus`: of each
    /// VM.
    pub fn beyond(&self, online: &[u32], vcpus: impl Fn(&str) -> usize) -> Option<String> {
        let of = |vm: &Vm| -> BTreeSet<u32> {
            let all = online.iter().copied();
            all.filter(|cpu| vm.cpus.is_empty() || vm.cpus.contains(cpu))
                .collect()
        };
        let mut masks: BTreeSet<BTreeSet<u32>> = self.vm.values().map(of).collect();
        masks.insert(online.iter().copied().collect());
        // The widest mask last: a narrow one says more.
        let mut masks: Vec<_> = masks.into_iter().collect();
        masks.sort_by_key(BTreeSet::len);
        masks.into_iter().find_map(|mask| {
            let inside = self.vm.iter().filter(|(_, vm)| of(vm).is_subset(&mask));
            let needed = Self::utilization(inside.map(|(name, vm)| (vm, vcpus(name))));
            // A whole CPU is no more than it has; budgets are multiples of a microsecond.
            (needed > mask.len() as f64 + 1e-9).then(|| {
                format!(
                    "the budgets of VMs on CPUs {mask:?} add up to {needed:.2} CPUs, and these are {}",
                    mask.len()
                )
            })
        })
    }

    /// It with the threads of each VM, in order; of equal priorities, the earlier in the order of names comes first.
    pub fn enforcement(&self, threads: &BTreeMap<String, Vec<u32>>) -> Enforcement {
        let mut vcpus = Vec::new();
        for (name, vm) in &self.vm {
            for (number, &tid) in threads.get(name).into_iter().flatten().enumerate() {
                vcpus.push(vm.reserved(&self.server, name, number as u32, tid));
            }
        }
        Enforcement {
            vcpus,
            ..self.host()
        }
    }

    /// The host's policy, and no VCPU.
    pub fn host(&self) -> Enforcement {
        Enforcement {
            order: self.order,
            queue: self.queue,
            quantum_ns: self.quantum_us.saturating_mul(1000),
            vcpus: Vec::new(),
        }
    }

    /// The CPUs that all VMs' budgets need together, where each VM has so many VCPUs.
    pub fn utilization<'v>(vms: impl IntoIterator<Item = (&'v Vm, usize)>) -> f64 {
        let of =
            |(vm, vcpus): (&Vm, usize)| vm.budget_us as f64 / vm.period_us as f64 * vcpus as f64;
        vms.into_iter().map(of).sum()
    }
}

fn at<T>(value: &Placed<T>, error: &Error) -> Error {
    Error::Input(format!("{}: {error}", value.place))
}

/// A list of CPUs as the kernel writes it: `0-3,8`.
pub(crate) fn cpu_list(text: &str) -> Option<Vec<u32>> {
    let ranges = text.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    });
    let ranges = ranges.collect::<Option<Vec<_>>>()?;
    // More CPUs than any host has are no list of CPUs.
    let all: Vec<u32> = ranges.into_iter().flatten().take(1 << 16).collect();
    (!all.is_empty()).then_some(all)
}

impl From<&steadyvm_config::Reserved> for Vm {
    fn from(table: &steadyvm_config::Reserved) -> Self {
        Self {
            budget_us: table.budget_us,
            period_us: table.period_us,
            deadline_us: table.deadline_us,
            server: table.server.clone(),
            priority: table.priority,
            cpus: table.cpus.clone(),
        }
    }
}

impl Vm {
    /// For the policy.
    ///
    /// # Errors
    /// An unknown server, and what [`Parameters`] refuses.
    pub fn parameters(&self, server: &str) -> Result<Parameters, Error> {
        self.reserved(server, "", 0, 0).parameters()
    }

    /// For one VCPU of a VM; `server`: where this names none.
    pub fn reserved(&self, server: &str, vm: &str, vcpu: u32, tid: u32) -> Reserved {
        let ns = |us: u64| us.saturating_mul(1000);
        Reserved {
            vm: vm.to_owned(),
            vcpu,
            tid,
            server: self.server.clone().unwrap_or_else(|| server.to_owned()),
            budget_ns: ns(self.budget_us),
            deadline_ns: ns(self.deadline_us.unwrap_or(self.period_us)),
            period_ns: ns(self.period_us),
            priority: self.priority,
            cpus: self.cpus.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use steadyvm_sched_policy::Kind;

    const TWO: &str = "[host]\nscheduler = 'gedf'\n[sched]\nmechanism = 'ext'\nserver = 'sporadic'\n\
        [sched.vm.a]\nbudget_us = 4000\nperiod_us = 10000\n\
        [sched.vm.b]\nbudget_us = 10\nperiod_us = 100\nserver = 'polling'\ncpus = [1]\n";

    #[test]
    fn a_file_says_what_each_vm_gets() {
        let config = Config::parse("f", TWO).unwrap();
        assert_eq!(config.mechanism, Mechanism::Ext);
        let parameters = |name: &str| config.vm[name].parameters(&config.server).unwrap();
        assert_eq!(parameters("a").kind(), Kind::Sporadic);
        assert_eq!(parameters("a").budget_ns(), 4_000_000);
        assert_eq!(parameters("b").kind(), Kind::Polling);
        let b = [("b".to_owned(), vec![9])].into();
        assert_eq!(
            config.enforcement(&b).vcpus[0].cpu_set(4),
            [1].into_iter().collect()
        );
        let both = config.vm.values().zip([2, 1]);
        assert!((Config::utilization(both) - 0.9).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_name() {
        for (from, to, says) in [
            (
                "budget_us = 10\n",
                "budget_us = 101\n",
                "f line 9 column 1: [sched.vm.b]",
            ),
            ("budget_us = 10\n", "budget_us = 0\n", "[sched.vm.b]"),
            ("'polling'", "'pooling'", "choose one of: deferrable"),
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
            let error = Config::parse("f", &TWO.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(says), "{to}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    /// Whoever reads the file: `apply` and `sched ext` once had a default each.
    #[test]
    fn the_server_is_that_of_sched_else_of_host_else_cbs() {
        let server = |text: &str| Config::parse("f", text).unwrap().server;
        assert_eq!(server("[sched]\n"), "cbs");
        let host = "[host]\nscheduler = 'gedf'\nserver = 'periodic'\n";
        assert_eq!(server(&format!("{host}[sched]\n")), "periodic");
        let own = format!("{host}[sched]\nserver = 'polling'\n");
        assert_eq!(server(&own), "polling");
    }

    #[test]
    fn a_mask_without_cpus_is_refused_and_too_much_is_told() {
        let config = Config::parse("f", TWO).unwrap();
        config.check_cpus(&[0, 1]).unwrap();
        let error = config.check_cpus(&[0, 2]).unwrap_err().to_string();
        assert!(
            error.contains("[sched.vm.b]: no CPU of cpus = [1] is online"),
            "{error}"
        );
        // a: 0.4 each, anywhere; b: 0.1 each on CPU 1.
        let with = |a: usize, b: usize| {
            config.beyond(&[0, 1], move |name| if name == "a" { a } else { b })
        };
        assert_eq!(with(4, 4), None);
        assert_eq!(with(4, 3), None);
        let all = with(4, 5).unwrap();
        assert!(all.contains("CPUs {0, 1} add up to 2.10 CPUs"), "{all}");
        let one = with(0, 11).unwrap();
        assert!(one.contains("CPUs {1} add up to 1.10 CPUs"), "{one}");
    }

    #[test]
    fn lists_of_cpus_are_the_kernels() {
        assert_eq!(cpu_list("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(cpu_list("3\n"), Some(vec![3]));
        for text in ["", "\n", "a", "1-", "-"] {
            assert_eq!(cpu_list(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*", budget in any::<u64>(), period in any::<u64>()) {
            let _ = (Config::parse("f", &text), cpu_list(&text));
            let text = format!("[sched.vm.a]\nbudget_us = {budget}\nperiod_us = {period}\n");
            let _ = Config::parse("f", &text);
        }
    }
}
