//! `[[vm]]` and `[class.NAME]`, and what runs in a VM.

use std::fmt;

use serde::de::{self, IntoDeserializer};
use serde::{Deserialize, Deserializer, Serialize};

use super::class::ClassNet;
use crate::{Count, InterfaceName, Placed, SchedulerName, Written};

table! {
    section "`[[vm]]` and `[class.NAME]`";
    /// A VM takes what it leaves out from its class. Classes `rt` and `best-effort` are there without being written. A file
    /// that writes one of them changes the keys that it writes; the others keep their values. With `extends` it has those of
    /// the other class instead.
    #[derive(Default, PartialEq)]
    #[serde(expecting = "an object that describes a VM")]
    pub struct Vm {
        /// libvirt's domain, QEMU's `-name`, Proxmox VE's number (`-id`), or that of `steadyvm up`; two of one name are
        /// refused
        name: Option<String> = "needed (VM only)",
        /// where the VM runs, instead of its name: a unit such as `"web.service"`; write `\x2d` in single quotes
        unit: Option<Placed<String>> = "none (VM only)",
        /// the same by a path such as `"/machine.slice/web.scope"`; with `unit` it is refused
        cgroup: Option<Placed<String>> = "none (VM only)",
        /// whose processes may be this VM; root's always may: a name of `/etc/passwd`, or a number; see below
        user: Option<Placed<Users>> = "libvirt's (VM only)",
        /// of `pid` and `start_ticks`, written by `steadyvm hook`: the VM's file counts while that process lives
        process: Option<Holder> = "none (VM only)",
        /// the same
        prepared_by: Option<Holder> = "none (VM only)",
        /// the card that its packets come by, which other VMs may use, too; needs virtual functions (SR-IOV), see below
        nic: Option<String> = "none (VM only)",
        /// its hardware address on that card
        mac: Option<Placed<String>> = "that of its monitor's command line (VM only)",
        /// a class; an unknown one is refused
        class: Option<String> = "none (VM only)",
        /// another class; a circle is refused
        extends: Option<String> = "none (class only)",
        /// false: gets what is left
        rt: Option<bool> = "true; of class `best-effort` false",
        /// inside the VM: `dm`, `edf`, `gedf`, `pedf`
        scheduler: Option<SchedulerName> = "`edf`; `pedf` with more than one VCPU",
        /// `prm`, `mpr`, `dmpr`, `reservation`, `best`
        interface: Option<InterfaceName> = "`prm`; `best` without a period",
        /// of its VCPUs
        period: Option<Period> = "chosen",
        /// in all; checked against the tasks, or taken as given without tasks
        budget: Option<Written> = "computed from `tasks`",
        /// the parallelism; with `pedf` at most
        vcpus: Option<Count> = "computed",
        /// CPUs that its VCPUs may use
        cpus: Option<Vec<u32>> = "all",
        /// what runs in the VM
        tasks: Option<Vec<Placed<Task>>> = "none",
        /// the class's ranks on the receive path
        net: Option<Placed<ClassNet>> = "nothing is set (class only)",
    }
}

table! {
    section "`period` as a range";
    #[derive(Copy, PartialEq)]
    pub struct PeriodRange {
        /// the shortest
        from: Written = "needed",
        /// the longest
        to: Written = "needed",
        /// all of these are tried; the least bandwidth with overheads is taken
        step: Written = "needed",
    }
}

table! {
    section "`tasks`";
    #[derive(PartialEq)]
    #[serde(expecting = "an object with \"c\" and \"t\"")]
    pub struct Task {
        /// for messages and services
        name: Option<String> = "its number",
        /// execution of one job
        c: Written = "needed",
        /// least time between two jobs
        t: Written = "needed",
        /// deadline
        d: Option<Written> = "`t`",
        /// how late a release may be seen
        jitter: Option<Written> = "0" or "j",
        /// how long a job may sleep; only where `server` is `periodic` or `deferrable`
        suspension: Option<Written> = "0" or "s",
        /// per cent of `c` to plan with
        execution_percent: Option<Count> = "100",
    }
}

/// A period, or a range of which the best is taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Period {
    /// This one.
    Fixed(Written),
    /// The best of these.
    Range(PeriodRange),
}

/// A process that a VM's file is held by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// When it began, in the kernel's ticks: another process may get its number.
    pub start_ticks: u64,
}

/// A user of this host, as a file names them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum User {
    /// By number.
    Number(u32),
    /// By name, as `/etc/passwd` has it.
    Name(String),
}

/// One user, or several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a user by name or number, or a list of users")]
pub enum Users {
    /// One.
    One(User),
    /// Several.
    Several(Vec<User>),
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Period;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a period such as \"10ms\", or { from = .., to = .., step = .. }")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Period, E> {
                Ok(Period::Fixed(Written(value)))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Period, E> {
                Written::deserialize(value.into_deserializer()).map(Period::Fixed)
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Period, E> {
                Written::deserialize(value.into_deserializer()).map(Period::Fixed)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Period, A::Error> {
                let deserializer = de::value::MapAccessDeserializer::new(map);
                PeriodRange::deserialize(deserializer).map(Period::Range)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}
