//! `[[vm]]` and `[class.NAME]`, and what runs in a VM.

use std::fmt;

use serde::de::{self, IntoDeserializer};
use serde::{Deserialize, Deserializer, Serialize};

use crate::duration::TIME;
use crate::{
    CardWay, Count, InterfaceName, LARGEST_BATCH, Placed, SchedulerName, TapQdisc, ThreadPriority,
    Written,
};

table! {
    section "`[[vm]]` and `[class.NAME]`";
    /// A VM takes what it leaves out from its class. Classes `rt` and `best-effort` are there without being written. A file
    /// that writes one of them changes the keys that it writes; the others keep their values. With `extends` it has those of
    /// the other class instead.
    ///
    /// A VM that has no tasks, no service, no budget and no period gets no budget: the plan passes it over.
    ///
    /// **Ranks of the receive path**, from `irq` down, are a class's. They are refused unless `irq` >= `napi` >= `vhost` >= `vcpu`.
    /// Their defaults are those of `rt`; other classes have none, but `best-effort` has `napi = "normal"` and
    /// `threaded_napi = true`. A written `rt` or `best-effort` keeps the defaults of what it leaves out: `"normal"` takes a
    /// rank away.
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
        /// with `cgroup`, instead of a VM: threads of a process there that have this name are its VCPUs; see below
        threads: Option<Placed<String>> = "a VM is looked for (VM only)",
        /// whose processes may be this VM; root's always may: a name of `/etc/passwd`, or a number; see below
        user: Option<Placed<Users>> = "libvirt's (VM only)",
        /// of `pid` and `start_ticks`, written by `steadyvm hook`: the VM's file counts while that process lives
        process: Option<Holder> = "none (VM only)",
        /// the same
        prepared_by: Option<Holder> = "none (VM only)",
        /// the card that its packets come by, which other VMs may use, too; needs virtual functions (SR-IOV), or a driver that
        /// redirects by XDP
        nic: Option<String> = "none (VM only)",
        /// its hardware address on that card
        mac: Option<Placed<String>> = "that of its monitor's command line (VM only)",
        /// how that card tells its packets apart: `function` (SR-IOV), or `xdp`, a program
        way: Option<CardWay> = "`function` where the card has any (VM only)",
        /// what receiving by `nic` may cost the host, such as `{ budget = "2ms" }`; see below
        receive: Option<Placed<ReceiveBudget>> = "no bound (VM only)",
        /// a class; an unknown one is refused
        class: Option<String> = "none (VM only)",
        /// interfaces with a class of their own, such as an administration network's
        interfaces: Option<Vec<Placed<VmInterface>>> = "all have the VM's class (VM only)",
        /// another class; a circle is refused
        extends: Option<String> = "none (class only)",
        /// false: gets what is left
        rt: Option<bool> = "true; of class `best-effort` false",
        /// true: its budget is a floor, which may be less than its tasks need; beyond it the VM gets what others leave of their
        /// budgets. Nothing is promised to its tasks; `simulate` says how many are in time. Needs `budget`, `period`, `tasks`, and
        /// of the host `server = "capacity-reclaiming"`
        soft: Option<bool> = "false",
        /// inside the VM: `dm`, `edf`, `gedf`, `pedf`
        scheduler: Option<SchedulerName> = "`edf`; `pedf` with more than one VCPU",
        /// `prm`, `mpr`, `dmpr`, `reservation`, `best`
        interface: Option<InterfaceName> = "`prm`; `best` without a period",
        /// of its VCPUs
        period: Option<Period> = "chosen",
        /// in all; checked against the tasks, or taken as given without tasks. Where no plan is made, of each VCPU if `vcpus` is
        /// left out
        budget: Option<Written> = "computed from `tasks`",
        /// where no plan is made: from a period's start
        deadline: Option<Written> = "the period",
        /// for the schedulers `pfp` and `gfp`; 0 is first
        priority: Option<u32> = "0",
        /// the parallelism; with `pedf` at most
        vcpus: Option<Count> = "computed",
        /// CPUs that its VCPUs may use
        cpus: Option<Vec<u32>> = "all",
        /// instead of `cpus`, the CPU of each VCPU, in their order: for one who has counted on each of them
        vcpu_cpus: Option<Vec<u32>> = "the plan chooses (VM only)",
        /// what runs in the VM
        tasks: Option<Vec<Placed<Task>>> = "none",
        /// interrupt threads
        irq: Option<ThreadPriority> = "80 (class only)",
        /// NAPI threads, where there are any
        napi: Option<ThreadPriority> = "78 (class only)",
        /// whether the card is polled in threads
        threaded_napi: Option<bool> = "only where the kernel has no interrupt threads; since Linux 6.17, where queues have classes, of ranked ones only (class only)",
        /// CPUs for interrupts, NAPI threads and vhost workers
        path_cpus: Option<Vec<usize>> = "as they are (class only)",
        /// vhost workers of the class's VMs, and servers of their sockets; a budget does not bound them
        vhost: Option<ThreadPriority> = "75; as they are for a VM with a budget (class only)",
        /// their VCPUs; VCPU 0 stays normal if there are others
        vcpu: Option<ThreadPriority> = "70 (class only)",
        /// QEMU's IO threads (`-object iothread`); not below `vcpu`
        io: Option<ThreadPriority> = "as they are (class only)",
        /// the monitor's main thread, whose lock a VCPU waits for as it leaves KVM for a device; not below `vcpu`
        main: Option<ThreadPriority> = "as it is (class only)",
        /// `noqueue` or `prio`, of their taps
        tap_qdisc: Option<TapQdisc> = "`noqueue` (class only)",
        /// 1 to 64: packets that their taps handle at once
        #[serde(default, deserialize_with = "batch")]
        tap_batch: Option<u32> = "as it is (class only)",
    }
}

fn batch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let packets = i64::deserialize(deserializer)?;
    let batch = u32::try_from(packets).ok();
    let batch = batch.filter(|batch| (1..=LARGEST_BATCH).contains(batch));
    let refused = || format!("tap_batch {packets} is not one of 1 to {LARGEST_BATCH}");
    batch.map(Some).ok_or_else(|| de::Error::custom(refused()))
}

impl Vm {
    /// The first key of the receive path that it sets, which only a class may.
    pub fn path_key(&self) -> Option<&'static str> {
        let set = [
            ("irq", self.irq.is_some()),
            ("napi", self.napi.is_some()),
            ("threaded_napi", self.threaded_napi.is_some()),
            ("path_cpus", self.path_cpus.is_some()),
            ("vhost", self.vhost.is_some()),
            ("vcpu", self.vcpu.is_some()),
            ("io", self.io.is_some()),
            ("main", self.main.is_some()),
            ("tap_qdisc", self.tap_qdisc.is_some()),
            ("tap_batch", self.tap_batch.is_some()),
        ];
        set.into_iter()
            .find_map(|(key, is_set)| is_set.then_some(key))
    }
}

table! {
    section "`interfaces`";
    /// Exactly one of `mac` and `tap`. The interface's vhost workers and tap get what the class has for them; a worker for which
    /// it has no `vhost` stays normal. Which worker serves which interface is known of QEMU's taps that were there when the VM
    /// started. Of others all workers keep the VM's class, and `apply` says so.
    #[derive(PartialEq)]
    pub struct VmInterface {
        /// hardware address, as the VM has it; one twice is refused
        mac: Option<String> = "none",
        /// its tap on this host, where that keeps its name: `"tap100i1"`
        tap: Option<String> = "none",
        /// a class
        class: String = "needed",
    }
}

table! {
    section "`receive` of a VM";
    /// CPU time that packets to the VM may cost the host, and its vhost workers. One of `budget`, `rate` and `vhost_budget` is needed.
    ///
    /// `budget` and `rate` bound what receives by the VM's `nic`. Where a function brings its packets, its NAPI threads share the
    /// budget evenly, and each has its part from `SCHED_DEADLINE`. Where an XDP program sorts the card's packets (`way`), it takes each
    /// packet's cost as equal, and drops those that are over the budget at the card, before the host works for them.
    ///
    /// `vhost_budget` bounds the VM's vhost workers, which share it evenly and have it from `SCHED_DEADLINE`, with any card and class.
    ///
    /// `SCHED_DEADLINE` goes before all ranks, for so long as the budget says. So the plan counts these budgets with those of VCPUs,
    /// unless `way = "xdp"`, and refuses what does not fit beside them. A thread with such a budget has no `path_cpus`.
    #[derive(Copy, PartialEq)]
    #[serde(expecting = "an object with \"budget\", such as { budget = \"2ms\", period = \"10ms\" }")]
    pub struct ReceiveBudget {
        /// CPU time in each period of what receives by `nic`
        budget: Option<Written> = "by `rate`; without that no bound",
        /// instead of `budget`: packets per second that are to be received, each at the cost of `packet`
        rate: Option<Count> = "none",
        /// NAPI threads of the VM's function; one that has more is not served
        napi_threads: Option<Count> = "1",
        /// CPU time in each period of the VM's vhost workers, and of the servers of its outsourced sockets
        vhost_budget: Option<Written> = "no bound",
        /// such threads; a VM that has more is not served
        workers: Option<Count> = "1",
        /// of the budgets, `"1us"` to `"4s"`, with `SCHED_DEADLINE` `"100us"` at least; of packets one whole budget may come at once
        period: Option<Written> = "`10ms`",
        /// CPU time of one packet, from the card's poll to the guest's memory; not above the budget
        packet: Option<Written> = "as `steadyvm calibrate --receive` measured it; else `5us`",
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
        jitter: Option<Written> = "0",
        /// how long a job may sleep; only where `server` is `periodic` or `deferrable`
        suspension: Option<Written> = "0",
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

            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                deserializer: D,
            ) -> Result<Period, D::Error> {
                deserializer.deserialize_any(self)
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

        deserializer.deserialize_newtype_struct(TIME, Visitor)
    }
}
