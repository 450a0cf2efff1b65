//! What a profile of the receive path asks for. Pure: no machine, no file.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::class::{Class, TapQdisc, ThreadPriority};
use super::demux::DemuxProfile;
use super::parts::{HostServiceProfile, NicProfile, ProcessProfile, Softirqs, VmProfile};
use super::scheduler::SchedulerProfile;
use super::tuned::{self, TunedProfile};
use crate::error::{HostError, at};
use crate::method::{Priorities, Target};
use crate::settings::Machine;
use crate::settings::fair_server::LONGEST_PIECE_NS;

/// The methods' piece.
const FAIR_SERVER_US: u32 = (LONGEST_PIECE_NS / 1000) as u32;

/// A profile of the receive path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// NICs in the order of the file.
    pub nics: Vec<NicProfile>,
    /// VMs in the order of the file.
    pub vms: Vec<VmProfile>,
    /// Services that are processes of the host itself.
    #[serde(default)]
    pub processes: Vec<ProcessProfile>,
    /// Services of the host itself, by their systemd units.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_services: Vec<HostServiceProfile>,
    /// Deferred work.
    pub softirqs: Softirqs,
    /// The longest piece in which the fair server of a CPU gives normal threads their share;
    /// `None`: left as it is.
    #[serde(default)]
    pub fair_server_us: Option<u32>,
    /// Early demultiplexing, if it is asked for.
    #[serde(default)]
    pub demux: Option<DemuxProfile>,
    /// The CPU that serves the NICs, VMs and processes that are named, and nothing else.
    #[serde(default)]
    pub dedicated_cpu: Option<usize>,
    /// Whether RT throttling is switched off.
    #[serde(default)]
    pub rt_throttling_off: bool,
    /// The peer, in place of ranks of the path.
    #[serde(default)]
    pub tuned: Option<TunedProfile>,
    /// Budgets by the `sched_ext` scheduler; none: by `SCHED_DEADLINE`.
    #[serde(default)]
    pub vcpu_scheduler: Option<SchedulerProfile>,
}

impl Profile {
    /// Notes when the processes started that are named by number.
    pub(crate) fn identify_processes(&mut self, machine: &Machine) {
        for process in &mut self.processes {
            process.start_time = machine.start_time(process.pid);
        }
        for vm in &mut self.vms {
            vm.start_time = vm.pid.and_then(|pid| machine.start_time(pid));
        }
    }

    /// The ranks of the path from the RT NICs to the RT VMs and processes: switch `rt`.
    pub fn of_target(target: &Target) -> Self {
        let Priorities {
            irq,
            napi,
            vhost,
            housekeeping,
            vcpu,
        } = target.priorities;
        let fifo = |priority| Some(ThreadPriority::Fifo(priority));
        let rt = Class {
            irq: fifo(irq),
            napi: fifo(napi),
            vhost: fifo(vhost),
            vcpu: fifo(vcpu),
            ..Class::default()
        };
        let nics = target.rt_nics.iter().map(|name| NicProfile {
            name: name.clone(),
            class: rt.clone(),
            leave_napi: true,
            ..NicProfile::default()
        });
        let vms = target.rt_vms.iter().map(|vm| VmProfile {
            name: format!("process {}", vm.pid),
            pid: Some(vm.pid),
            rt_vcpus: vm.rt_vcpus.clone(),
            class: Class {
                irq: rt.irq.filter(|_| !target.keep_vfio),
                ..rt.clone()
            },
            ..VmProfile::default()
        });
        let pids: BTreeSet<u32> = target.rt_processes.iter().copied().collect();
        let processes = pids.into_iter().map(|pid| ProcessProfile {
            pid,
            start_time: None,
            class: rt.clone(),
        });
        let rank = fifo(housekeeping).filter(|_| !target.keep_housekeeping);
        Self {
            nics: nics.collect(),
            vms: vms.collect(),
            processes: processes.collect(),
            softirqs: Softirqs {
                rcu: rank,
                timers: rank,
                device_irq: rank,
                ..Softirqs::default()
            },
            fair_server_us: (!target.keep_fair_server).then_some(FAIR_SERVER_US),
            rt_throttling_off: target.disable_rt_throttling,
            ..Self::default()
        }
    }

    /// The peer's: switch `tuned`. NICs have no part in it, which is what sets it apart from ours.
    pub(crate) fn of_tuned(target: &Target, tuned: TunedProfile) -> Self {
        let class = Class {
            vcpu: Some(ThreadPriority::Fifo(tuned::VCPU_PRIORITY)),
            ..Class::default()
        };
        let mut profile = Self::of_target(target);
        for vm in &mut profile.vms {
            vm.class = class.clone();
        }
        for process in &mut profile.processes {
            process.class = class.clone();
        }
        Self {
            vms: profile.vms,
            processes: profile.processes,
            rt_throttling_off: true,
            tuned: Some(tuned),
            ..Self::default()
        }
    }

    /// Puts the receive path of other NICs below that of those in it: switch `profile`.
    ///
    /// The others' NAPI is polled by threads of its own at normal priority: a threaded NAPI is
    /// never on the poll list that the RT NIC's thread goes through, and gives the softirq lock
    /// up after each poll.
    pub fn put_below(&mut self, other_nics: &[String]) {
        for nic in &mut self.nics {
            nic.leave_napi = false;
            nic.class.tap_qdisc = Some(TapQdisc::Noqueue);
        }
        for vm in &mut self.vms {
            vm.class.tap_qdisc = Some(TapQdisc::Noqueue);
        }
        let class = Class {
            name: "other".into(),
            napi: Some(ThreadPriority::Normal),
            threaded_napi: Some(true),
            ..Class::default()
        };
        self.nics.extend(other_nics.iter().map(|name| NicProfile {
            name: name.clone(),
            class: class.clone(),
            is_other: true,
            ..NicProfile::default()
        }));
    }

    /// Where the path has priorities and nothing is said of the fair server: in short pieces, as in
    /// every method.
    pub fn bound_fair_server(&mut self) {
        if self.highest_of_tenants().is_some() {
            self.fair_server_us = self.fair_server_us.or(Some(FAIR_SERVER_US));
        }
    }

    /// The highest FIFO priority that a tenant keeps busy as it likes: vhost workers, VCPUs and threads of the monitor.
    pub(crate) fn highest_of_tenants(&self) -> Option<u32> {
        let vms = self.vms.iter().map(|vm| &vm.class);
        let ranks = vms.flat_map(|class| [class.vhost, class.vcpu, class.io, class.main]);
        let interfaces = self.vms.iter().flat_map(|vm| &vm.interfaces);
        let of_interfaces = interfaces.map(|interface| interface.class.vhost);
        let processes = self.processes.iter().map(|process| process.class.vcpu);
        ranks
            .chain(of_interfaces)
            .chain(processes)
            .filter_map(|priority| match priority? {
                ThreadPriority::Fifo(priority) => Some(priority),
                ThreadPriority::Normal => None,
            })
            .max()
    }

    fn classes(&self) -> impl Iterator<Item = (&Class, &str)> {
        let nics = self.nics.iter().flat_map(|nic| {
            let queues = nic.queues.values();
            std::iter::once(&nic.class)
                .chain(queues)
                .map(|class| (class, nic.place.as_str()))
        });
        let interfaces = self.vms.iter().flat_map(|vm| &vm.interfaces);
        nics.chain(self.vms.iter().map(|vm| (&vm.class, vm.place.as_str())))
            .chain(interfaces.map(|it| (&it.class, it.place.as_str())))
    }

    /// Refuses what inverts priorities by itself, whatever machine it is for.
    pub(crate) fn check(&self) -> Result<(), HostError> {
        let wrong = |place: &str, what: String, fix: &str| {
            Err(HostError::BadInput {
                what: at(place, &what),
                fix: fix.into(),
            })
        };
        for (class, place) in self.classes() {
            if let Some(what) = class.inversion() {
                let Priorities {
                    irq,
                    napi,
                    vhost,
                    vcpu,
                    ..
                } = Priorities::default();
                let fix = format!(
                    "use irq >= napi >= vhost >= vcpu, and io and main not below vcpu; what class rt leaves \
                     out is irq = {irq}, napi = {napi}, vhost = {vhost} and vcpu = {vcpu}"
                );
                return wrong(place, what, &fix);
            }
        }
        let lowest = self
            .classes()
            .filter_map(|(class, place)| Some((class.lowest_fifo()?, class, place)))
            .min_by_key(|(priority, ..)| *priority);
        let Some((lowest, class, place)) = lowest else {
            return Ok(());
        };
        if let Some(ThreadPriority::Fifo(priority)) = self.softirqs.ksoftirqd
            && priority >= lowest
        {
            let what = format!(
                "[kernel] ksoftirqd = {priority} does not stand below class \"{}\", whose lowest stage \
                 has {lowest}",
                class.name
            );
            return wrong(place, what, "deferred work of the whole host comes last");
        }
        let highest = self.highest_of_tenants();
        for (name, priority) in [
            ("rcu", self.softirqs.rcu),
            ("timers", self.softirqs.timers),
            ("device_irq", self.softirqs.device_irq),
        ] {
            if let Some(ThreadPriority::Fifo(priority)) = priority
                && priority >= lowest
                && highest.is_none_or(|highest| priority <= highest)
            {
                let what = format!(
                    "[kernel] {name} = {priority} stands neither below class \"{}\", whose lowest \
                     stage has {lowest}, nor above all vhost workers and VCPUs",
                    class.name
                );
                let above = highest.map_or(lowest, |highest| highest + 1);
                let fix = format!("use {above} or more: a busy VCPU must not stop them");
                return wrong(place, what, &fix);
            }
        }
        Ok(())
    }
}
