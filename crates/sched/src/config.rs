//! What a file asks of this scheduler without a plan: what enforces VCPU budgets, and which.
//!
//! ```toml
//! [host]
//! enforce = "ext"            # or auto
//! scheduler = "gedf"         # what orders VCPUs, and which a CPU chooses from
//! server = "deferrable"
//!
//! [[vm]]
//! name = "control"
//! budget = "4ms"             # in all, if it has `vcpus`; else of each of its VCPUs
//! period = "10ms"
//! ```

use crate::enforcement::{Enforcement, Reserved, kind};
pub use crate::enforcement::{Priority, Queue};
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
pub use steadyvm_config::Mechanism;
use steadyvm_config::{Count, File, Period, Place, ServerName, Written, show};
use steadyvm_sched_policy::Parameters;

/// What a file asks of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What enforces budgets.
    pub mechanism: Mechanism,
    /// The server: a word of [`steadyvm_sched_policy::Kind::word`].
    pub server: String,
    /// What orders VCPUs with a budget.
    pub order: Priority,
    /// Which VCPUs a CPU chooses from.
    pub queue: Queue,
    /// Budget events are seen at its multiples; 0: at exact times.
    pub quantum_ns: u64,
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
            quantum_ns: 0,
            vm: BTreeMap::new(),
        }
    }
}

/// What each VCPU of a VM gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vm {
    /// CPU time in each period.
    pub budget_ns: u64,
    /// The period.
    pub period_ns: u64,
    /// From a period's start; the period where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<u64>,
    /// For the explicit order, 0 first.
    #[serde(default)]
    pub priority: u32,
    /// CPUs that it may run on; all where none are given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
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

    /// What a file says, with each VM that names a budget and a period. What its other VMs need, only a plan says.
    ///
    /// # Errors
    /// Impossible values, with their place.
    pub fn of(file: &File) -> Result<Self, Error> {
        let host = file.host.as_ref().map(|host| host.value.clone());
        let host = host.unwrap_or_default();
        let mut config = Self {
            mechanism: host.enforce.unwrap_or_default(),
            server: host.server.word().to_owned(),
            order: host.scheduler.into(),
            queue: host.scheduler.into(),
            quantum_ns: time("quantum", host.quantum)
                .map_err(|error| at(file.host.as_ref().map(|host| &host.place), &error))?,
            vm: BTreeMap::new(),
        };
        for table in &file.vm {
            let wrong = |error: &Error| at(Some(&table.place), error);
            let Some((name, vm)) = Vm::of(file, table).map_err(|error| wrong(&error))? else {
                continue;
            };
            (config.check_vm(&name, &vm)).map_err(|error| wrong(&error))?;
            config.vm.insert(name, vm);
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
            .map_err(|error| Error::Input(format!("VM \"{name}\": {error}")))?;
        if vm.period_ns < self.quantum_ns {
            return Err(Error::Input(format!(
                "VM \"{name}\": its period of {} is below the quantum of {}; make quantum smaller",
                show(vm.period_ns.into()),
                show(self.quantum_ns.into())
            )));
        }
        if self.queue == Queue::Partitioned && vm.cpus.len() != 1 {
            return Err(Error::Input(format!(
                "VM \"{name}\": in a partitioned host a VM without a plan needs one CPU, such as cpus = [1]"
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
                "VM \"{name}\": no CPU of cpus = {:?} is online; those of this host are {online:?}",
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
            // A whole CPU is no more than it has, but for what doubles round.
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
            quantum_ns: self.quantum_ns,
            vcpus: Vec::new(),
        }
    }

    /// The CPUs that all VMs' budgets need together, where each VM has so many VCPUs.
    pub fn utilization<'v>(vms: impl IntoIterator<Item = (&'v Vm, usize)>) -> f64 {
        let of =
            |(vm, vcpus): (&Vm, usize)| vm.budget_ns as f64 / vm.period_ns as f64 * vcpus as f64;
        vms.into_iter().map(of).sum()
    }
}

fn at(place: Option<&Place>, error: &Error) -> Error {
    place.map_or_else(
        || Error::Input(error.to_string()),
        |place| Error::Input(format!("{place}: {error}")),
    )
}

fn time(key: &str, time: Written) -> Result<u64, Error> {
    u64::try_from(time.0).map_err(|_| Error::Input(format!("{key} is below 0")))
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

impl Vm {
    /// What each VCPU of a file's VM gets, and the VM's name; none if it names no budget.
    fn of(file: &File, table: &steadyvm_config::Vm) -> Result<Option<(String, Self)>, Error> {
        let budget = file.of_vm(table, |vm| vm.budget);
        let period = file.of_vm(table, |vm| vm.period);
        let (Some(name), Some(budget), Some(Period::Fixed(period))) = (&table.name, budget, period)
        else {
            return Ok(None);
        };
        let Count(vcpus) = file.of_vm(table, |vm| vm.vcpus).unwrap_or(Count(1));
        let vcpus = u64::try_from(vcpus).ok().filter(|&vcpus| vcpus > 0);
        let vcpus = vcpus.ok_or_else(|| Error::Input("vcpus is below 1".to_owned()))?;
        let deadline = file.of_vm(table, |vm| vm.deadline);
        let vm = Self {
            budget_ns: time("budget", budget)? / vcpus,
            period_ns: time("period", period)?,
            deadline_ns: deadline.map(|it| time("deadline", it)).transpose()?,
            priority: file.of_vm(table, |vm| vm.priority).unwrap_or_default(),
            cpus: file.of_vm(table, |vm| vm.cpus.clone()).unwrap_or_default(),
        };
        Ok(Some((name.clone(), vm)))
    }

    /// For the policy.
    ///
    /// # Errors
    /// An unknown server, and what [`Parameters`] refuses.
    pub fn parameters(&self, server: &str) -> Result<Parameters, Error> {
        self.reserved(server, "", 0, 0).parameters()
    }

    /// For one VCPU of a VM.
    pub fn reserved(&self, server: &str, vm: &str, vcpu: u32, tid: u32) -> Reserved {
        Reserved {
            vm: vm.to_owned(),
            vcpu,
            tid,
            server: server.to_owned(),
            budget_ns: self.budget_ns,
            deadline_ns: self.deadline_ns.unwrap_or(self.period_ns),
            period_ns: self.period_ns,
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

    const TWO: &str = "[host]\nenforce = 'ext'\nscheduler = 'gedf'\nserver = 'sporadic'\n\
        [[vm]]\nname = 'a'\nbudget = '4ms'\nperiod = '10ms'\n\
        [[vm]]\nname = 'b'\nbudget = '10us'\nperiod = '100us'\ncpus = [1]\n";

    #[test]
    fn a_file_says_what_each_vm_gets() {
        let config = Config::parse("f", TWO).unwrap();
        assert_eq!(config.mechanism, Mechanism::Ext);
        let parameters = |name: &str| config.vm[name].parameters(&config.server).unwrap();
        assert_eq!(parameters("a").kind(), Kind::Sporadic);
        assert_eq!(parameters("a").budget_ns(), 4_000_000);
        assert_eq!(parameters("b").period_ns(), 100_000);
        let b = [("b".to_owned(), vec![9])].into();
        assert_eq!(
            config.enforcement(&b).vcpus[0].cpu_set(4),
            [1].into_iter().collect()
        );
        let both = config.vm.values().zip([2, 1]);
        assert!((Config::utilization(both) - 0.9).abs() < 1e-9);
    }

    /// A budget is in all, as in a plan; without `vcpus` nobody knows of how many it is.
    #[test]
    fn a_budget_is_dealt_to_the_vcpus_that_the_file_names_and_may_be_a_classs() {
        let text = "[host]\nscheduler = 'gedf'\nserver = 'sporadic'\n[class.c]\nbudget = '8ms'\nperiod = '10ms'\nvcpus = 2\n[class.d]\nextends = 'c'\n\
                    [[vm]]\nname = 'a'\nclass = 'd'\n[[vm]]\nname = 'none'\n\
                    [[vm]]\nname = 'own'\nclass = 'd'\nvcpus = 4\ndeadline = '5ms'\npriority = 3\n";
        let config = Config::parse("f", text).unwrap();
        assert_eq!(config.vm.keys().collect::<Vec<_>>(), ["a", "own"]);
        assert_eq!(config.vm["a"].budget_ns, 4_000_000);
        let own = config.vm["own"].reserved("sporadic", "own", 0, 0);
        let times = (own.budget_ns, own.deadline_ns, own.period_ns);
        assert_eq!(times, (2_000_000, 5_000_000, 10_000_000));
        assert_eq!(own.priority, 3);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_name() {
        for (from, to, says) in [
            (
                "budget = '10us'",
                "budget = '101us'",
                "f line 9 column 1: VM \"b\"",
            ),
            ("budget = '10us'", "budget = '0us'", "VM \"b\""),
            ("budget = '10us'", "budget = '-1us'", "budget is below 0"),
            ("cpus = [1]", "vcpus = 0", "vcpus is below 1"),
            ("'sporadic'", "'pooling'", "expected one of `cbs`"),
            (
                "'sporadic'",
                "'sporadic'\nquantum = '1ms'",
                "below the quantum of 1 ms",
            ),
            ("'gedf'", "'pedf'", "VM \"a\": in a partitioned host"),
            ("'sporadic'", "'sporadic'\nquanta = 1000", "unknown field"),
        ] {
            let error = Config::parse("f", &TWO.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(says), "{to}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn one_word_says_the_order_and_the_queue() {
        for (word, order, queue) in [
            ("pedf", Priority::EarliestDeadline, Queue::Partitioned),
            ("gdm", Priority::DeadlineMonotonic, Queue::Global),
            ("prm", Priority::RateMonotonic, Queue::Partitioned),
            ("gfp", Priority::Explicit, Queue::Global),
        ] {
            let text = format!("[host]\nscheduler = '{word}'\nserver = 'periodic'\n");
            let config = Config::parse("f", &text).unwrap();
            assert_eq!((config.order, config.queue), (order, queue), "{word}");
            assert_eq!(config.server, "periodic");
        }
        assert_eq!(Config::parse("f", "").unwrap().server, "cbs");
    }

    /// A word of the file is the policy's.
    #[test]
    fn the_policy_has_every_server_of_the_file() {
        for kind in Kind::ALL {
            let text = format!("[host]\nserver = '{}'\n", kind.word());
            let config = Config::parse("f", &text).unwrap();
            assert_eq!(super::kind(&config.server).unwrap(), kind);
        }
    }

    #[test]
    fn a_mask_without_cpus_is_refused_and_too_much_is_told() {
        let config = Config::parse("f", TWO).unwrap();
        config.check_cpus(&[0, 1]).unwrap();
        let error = config.check_cpus(&[0, 2]).unwrap_err().to_string();
        assert!(
            error.contains("VM \"b\": no CPU of cpus = [1] is online"),
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
            let text = format!("[[vm]]\nname = 'a'\nbudget = '{budget}ns'\nperiod = '{period}ns'\n");
            let _ = Config::parse("f", &text);
        }
    }
}
