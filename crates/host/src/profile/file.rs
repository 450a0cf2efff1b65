//! The network part of steadyvm.toml. What is for the plan of VCPUs is left to `steadyvm plan`.
//!
//! ```toml
//! [net]                       # the host's network stack
//! budget_packets = 64
//!
//! [kernel]                    # threads of its kernel; rcu, timers and device_irq stand above VCPUs unless set
//! fair_server = "1ms"
//!
//! [class.rt]                  # what the VMs, NICs and queues of class rt get
//! irq = 80                    # FIFO priority, or "normal"
//! vhost = 75
//!
//! [[nic]]
//! name = "eth1"
//! class = "rt"
//! ```
//!
//! Rule: a class's ranks are its own, then those of the class it extends. Classes "rt" and "best-effort"
//! are there without being written ([`Class::built_in`]); a file that writes one of them, and not what it extends,
//! extends that. An unknown field is an error. Every field: docs/reference/steadyvm.toml.md.

use std::collections::BTreeMap;

use steadyvm_config::{File, Kernel, Net, Nic, Placed, Vm, Written, written};

use super::class::{HIGHEST_PRIORITY, ThreadPriority};
use super::classes::{Classes, class, must_have_class};
use super::demux::DemuxProfile;
use super::fields::{
    address_of, cgroup_is_wrong, checked, thread_name_is_wrong, unit_is_wrong, users, wrong,
};
use super::host_service;
use super::interfaces;
use super::parts::{NicProfile, Softirqs, VmProfile};
use super::receive;
use super::whole::Profile;
use crate::error::HostError;
use crate::printable::printable;

/// Reads a file, and its network part. `name` is the file's, for messages.
///
/// # Errors
/// What is wrong, with its line and column.
pub fn parse(name: &str, text: &str) -> Result<Profile, HostError> {
    asking(name, &File::parse(name, text)?)
}

/// The network part of a file, which must have one. `name` is the file's, for messages.
///
/// # Errors
/// What is wrong, with its line and column.
pub fn asking(name: &str, file: &File) -> Result<Profile, HostError> {
    let profile = of(file)?;
    let asked = Profile {
        vms: profile.vms.iter().filter(|vm| vm.asks()).cloned().collect(),
        ..profile.clone()
    };
    if asked == Profile::default() {
        return Err(HostError::BadInput {
            what: format!("{name} line 1 column 1: nothing in it is for the network"),
            fix: "add [net], [kernel], a [[nic]] with a class, a [[host_service]], or ranks to the class of a VM"
                .into(),
        });
    }
    Ok(profile)
}

/// The network part of a file, also of one that says nothing of the network.
///
/// # Errors
/// What is wrong, with its line and column.
pub fn of(file: &File) -> Result<Profile, HostError> {
    let classes = &file.class;
    let mut profile = Profile {
        softirqs: softirqs(&file.net, &file.kernel)?,
        fair_server_us: time_us(
            "[kernel] fair_server",
            file.kernel.fair_server.as_ref(),
            FAIR_SERVER_US,
        )?,
        demux: demux(&file.net)?,
        ..Profile::default()
    };
    for nic in &file.nic {
        let read = nic_profile(nic, classes)?;
        if profile.nics.iter().any(|other| other.name == read.name) {
            let what = format!("NIC \"{}\" is there twice", read.name);
            return Err(wrong(&nic.place, &what, "give each NIC one [[nic]]"));
        }
        profile.nics.push(read);
    }
    for vm in &file.vm {
        profile.vms.extend(vm_profile(vm, classes)?);
    }
    for service in &file.host_service {
        let read = host_service::read(service, classes)?;
        let mut others = profile.host_services.iter();
        if others.any(|other| other.unit == read.unit) {
            let what = format!("host service \"{}\" is there twice", printable(&read.unit));
            let fix = "give each unit one [[host_service]]";
            return Err(wrong(&service.place, &what, fix));
        }
        profile.host_services.push(read);
    }
    // A VCPU that computes without end must not stop the threads that all of the host depends on.
    let above = profile.highest_of_tenants().map(|highest| highest + 1);
    let above = above
        .filter(|above| *above <= HIGHEST_PRIORITY)
        .map(ThreadPriority::Fifo);
    let softirqs = &mut profile.softirqs;
    softirqs.rcu = softirqs.rcu.or(above);
    softirqs.timers = softirqs.timers.or(above);
    softirqs.device_irq = softirqs.device_irq.or(above);
    profile.check()?;
    Ok(profile)
}

fn value<T: Copy>(placed: Option<&Placed<T>>) -> Option<T> {
    placed.map(|placed| placed.value)
}

fn nic_profile(table: &Placed<Nic>, classes: &Classes) -> Result<NicProfile, HostError> {
    let at = &table.place;
    let nic = &table.value;
    let mut queues = BTreeMap::new();
    for wanted in &nic.queues {
        let (queue, at) = (wanted.queue, &wanted.place);
        let class = must_have_class(&wanted.class, at, classes)?;
        if queues.insert(queue, class).is_some() {
            let what = format!("NIC \"{}\": queue {queue} is there twice", nic.name);
            return Err(wrong(at, &what, "give each queue one class"));
        }
    }
    let steer = nic.steer.iter().map(|rule| {
        super::flows::rule(rule).map_err(|what| {
            let what = format!("NIC \"{}\": {what}", nic.name);
            wrong(&rule.place, &what, "steadyvm.toml(5) has all keys")
        })
    });
    Ok(NicProfile {
        name: nic.name.clone(),
        class: must_have_class(&nic.class, at, classes)?,
        queues,
        steer: steer.collect::<Result<_, _>>()?,
        place: at.to_string(),
        ..NicProfile::default()
    })
}

/// A VM whose class has settings for the network, or that says where it runs; others are the plan's alone.
fn vm_profile(table: &Placed<Vm>, classes: &Classes) -> Result<Option<VmProfile>, HostError> {
    let at = &table.place;
    let Vm {
        name,
        class: class_name,
        unit,
        cgroup,
        threads,
        user,
        nic,
        mac,
        way,
        interfaces,
        ..
    } = &table.value;
    // Terminals obey them, and no monitor is told such a name.
    if let Some(name) = name.as_ref().filter(|name| name.contains(char::is_control)) {
        let what = format!(
            "the VM's name \"{}\" has control characters",
            printable(name)
        );
        return Err(wrong(
            at,
            &what,
            "name it by its unit or cgroup, and call it something else",
        ));
    }
    if let Some(key) = table.path_key() {
        let what = format!("a VM has {key} from its class");
        return Err(wrong(at, &what, "move it to [class.NAME]"));
    }
    let class = match class_name {
        Some(name) => class(name, at, classes)?,
        None => None,
    };
    let asks = unit.is_some()
        || cgroup.is_some()
        || threads.is_some()
        || user.is_some()
        || nic.is_some()
        || interfaces.is_some()
        || table.receive.is_some();
    if class.is_none() && !asks {
        return Ok(None);
    }
    let Some(name) = name else {
        let fix = "give it one: the plan and warnings call it so";
        return Err(wrong(at, "this VM has no name", fix));
    };
    if let (Some(_), Some(cgroup)) = (unit, cgroup) {
        let what = format!("VM \"{name}\" has both a unit and a cgroup");
        return Err(wrong(&cgroup.place, &what, "keep one"));
    }
    if let Some(threads) = threads {
        check_threads(name, threads, &table.value)?;
    }
    let receive = receive::budgets(name, table)?;
    Ok(Some(VmProfile {
        name: name.clone(),
        class: class.unwrap_or_default(),
        unit: checked(name, unit.as_ref(), unit_is_wrong)?,
        cgroup: checked(name, cgroup.as_ref(), cgroup_is_wrong)?,
        threads: checked(name, threads.as_ref(), thread_name_is_wrong)?,
        users: users(&format!("VM \"{name}\""), user.as_ref())?,
        nic: nic.clone(),
        way: *way,
        receive: receive.packets,
        poll_budgets: receive.polls,
        vhost_budgets: receive.vhost,
        mac: mac.as_ref().map(|mac| address_of(name, mac)).transpose()?,
        interfaces: interfaces::read(name, interfaces.as_deref().unwrap_or_default(), classes)?,
        place: at.to_string(),
        ..VmProfile::default()
    }))
}

/// A program without a VM is found in its cgroup, and is there for its budget: it has no cards, and its threads get no ranks.
fn check_threads(name: &str, threads: &Placed<String>, vm: &Vm) -> Result<(), HostError> {
    let fault = if vm.cgroup.is_none() {
        Some((
            "has threads and no cgroup",
            "add `cgroup`, in which they run",
        ))
    } else if vm.budget.is_none() && vm.tasks.is_none() {
        Some((
            "has threads and nothing to give them",
            "add a budget and a period, or tasks",
        ))
    } else if vm.nic.is_some() || vm.interfaces.is_some() {
        Some((
            "has threads, and so no VM whose cards could be told",
            "leave out nic and interfaces",
        ))
    } else {
        None
    };
    fault.map_or(Ok(()), |(what, fix)| {
        Err(wrong(&threads.place, &format!("VM \"{name}\" {what}"), fix))
    })
}

fn demux(net: &Net) -> Result<Option<DemuxProfile>, HostError> {
    let Some(table) = &net.demux else {
        return Ok(None);
    };
    let levels_from = value(net.levels_from.as_ref());
    super::demux::read(table, levels_from)
        .map(Some)
        .map_err(|(place, what)| wrong(&place, &what, "steadyvm.toml(5) has all keys"))
}

/// Pieces of the fair server, in microseconds.
const FAIR_SERVER_US: (u32, u32) = (500, 50_000);

/// The kernel counts in ticks; less than one is none at all.
const BUDGET_US: (u32, u32) = (1_000, 1_000_000);

/// A time in whole microseconds.
fn time_us(
    key: &str,
    time: Option<&Placed<Written>>,
    (least, most): (u32, u32),
) -> Result<Option<u32>, HostError> {
    let Some(time) = time else { return Ok(None) };
    let Written(ns) = time.value;
    let us = u32::try_from(ns / 1_000).ok();
    let us = us.filter(|us| (least..=most).contains(us) && ns % 1_000 == 0);
    us.map(Some).ok_or_else(|| {
        let us = |us: u32| written(i128::from(us) * 1_000);
        let what = format!("{key} = {} is out of range", written(ns.into()));
        let fix = format!("use {} to {}, whole microseconds", us(least), us(most));
        wrong(&time.place, &what, &fix)
    })
}

fn softirqs(net: &Net, kernel: &Kernel) -> Result<Softirqs, HostError> {
    let limits = [
        ("budget_packets", &net.budget_packets, 1, 65_536),
        ("levels_from", &net.levels_from, 1, HIGHEST_PRIORITY),
    ];
    for (name, value, least, most) in limits {
        if let Some(value) = value
            && !(least..=most).contains(&value.value)
        {
            let what = format!("[net] {name} = {} is out of range", value.value);
            return Err(wrong(
                &value.place,
                &what,
                &format!("use {least} to {most}"),
            ));
        }
    }
    if let (Some(ksoftirqd), Some(levels_from)) = (&kernel.ksoftirqd, &net.levels_from)
        && let ThreadPriority::Fifo(own) = ksoftirqd.value
        && own >= levels_from.value
    {
        let what = format!(
            "[kernel] ksoftirqd = {own} does not stand below [net] levels_from = {}: what urgent threads leave to it would \
             be as urgent",
            levels_from.value
        );
        return Err(wrong(
            &ksoftirqd.place,
            &what,
            "use a ksoftirqd below levels_from",
        ));
    }
    Ok(Softirqs {
        budget_packets: value(net.budget_packets.as_ref()),
        budget_us: time_us("[net] budget_time", net.budget_time.as_ref(), BUDGET_US)?,
        ksoftirqd: value(kernel.ksoftirqd.as_ref()),
        rcu: kernel.rcu,
        timers: kernel.timers,
        device_irq: kernel.device_irq,
        levels_from: value(net.levels_from.as_ref()),
    })
}
