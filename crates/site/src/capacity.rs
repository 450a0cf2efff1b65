//! What this host has to sell to real-time VMs, as `apply --strict` and the hook would hold it.

use std::path::Path;

use serde::Serialize;
use steadyvm_host::{HostError, Machine};

use crate::drop_ins::DropIn;
use crate::error::Result;
use crate::site::Site;
use crate::source::Source;

/// What a host has to sell.
#[derive(Debug, Serialize)]
pub struct Capacity {
    /// Version of this shape.
    pub schema_version: u32,
    /// The kernel.
    pub kernel_release: String,
    /// Whether it is one of `PREEMPT_RT`.
    pub preempt_rt: bool,
    /// What keeps budgets.
    pub mechanism: &'static str,
    /// Who schedules VCPUs.
    pub scheduler: &'static str,
    /// The CPUs that real-time VMs may have.
    pub cpus: Vec<u32>,
    /// What they may have of each, in millionths.
    pub cpu_ppm: u32,
    /// The largest share of one VCPU, in millionths of a CPU.
    pub vcpu_ppm: u32,
    /// What VMs have of it.
    pub held: Vec<Held>,
    /// The network cards of the file.
    pub cards: Vec<Card>,
}

/// A network card, and what its traffic is.
#[derive(Debug, Serialize)]
pub struct Card {
    /// The interface.
    pub name: String,
    /// Its class.
    pub class: String,
}

/// A VM that has a budget by the file, or what receives for one.
#[derive(Debug, Serialize)]
pub struct Held {
    /// Its name; of what receives for a VM `receive of NAME`, which no cloud calls a VM.
    pub vm: String,
    /// How many VCPUs it has, or threads that receive.
    pub vcpus: u32,
    /// The budget of one of these.
    pub budget_ns: i64,
    /// In every period of so long.
    pub period_ns: i64,
    /// Where the plan puts them: a CPU for each where each stays on one.
    pub cpus: Vec<u32>,
}

/// The capacity of this host by a file.
///
/// # Errors
/// A file that is wrong or says nothing of the host's CPUs, a machine that cannot be read.
pub fn of(file: &Path) -> Result<Capacity> {
    of_site(file, &Site::read(&Source::of(file))?)
}

/// The same with the VMs of one file more, of that text, which would stand beside the owner's.
///
/// # Errors
/// As [`of`]; a host that cannot hold these VMs.
pub fn with(file: &Path, more: &Path, text: &str) -> Result<Capacity> {
    of_site(
        file,
        &Site::admit(file, DropIn::to_come(more.to_owned(), text))?,
    )
}

fn of_site(file: &Path, site: &Site) -> Result<Capacity> {
    let machine = Machine::real();
    let Some((hosts, mechanism, percent)) = site.offers() else {
        let place = file.display();
        return Err(HostError::BadInput {
            what: format!(
                "{place} does not say which CPUs real-time VMs have, and who keeps their budgets"
            ),
            fix: "add [host] with enforce = \"auto\": steadyvm.toml(5)".into(),
        }
        .into());
    };
    let held = site
        .planned_vms()
        .iter()
        .filter(|vm| vm.rt && !vm.vcpus.is_empty());
    let held = held.map(|vm| Held {
        vm: vm.name.clone(),
        vcpus: vm.vcpus.len() as u32,
        budget_ns: vm.vcpus.iter().map(|vcpu| vcpu.budget).max().unwrap_or(0),
        period_ns: vm.vcpus.iter().map(|vcpu| vcpu.period).max().unwrap_or(0),
        cpus: (vm.vcpus.iter())
            .flat_map(|vcpu| vcpu.cpus.iter().copied())
            .collect(),
    });
    let receive = site.planned_vms().iter().flat_map(|vm| {
        vm.receive.iter().map(|server| Held {
            vm: format!("receive of {}", vm.name),
            vcpus: 1,
            budget_ns: server.budget,
            period_ns: server.period,
            cpus: server.cpus.clone(),
        })
    });
    let cards = site.cards().map(|(name, class)| Card {
        name: name.to_owned(),
        class: class.to_owned(),
    });
    let cpu_ppm = u32::from(percent) * 10_000;
    Ok(Capacity {
        schema_version: 1,
        kernel_release: machine.kernel_release().unwrap_or_default(),
        preempt_rt: machine.preempt_rt().0,
        mechanism,
        scheduler: hosts.scheduler,
        cpus: hosts.cpus,
        cpu_ppm,
        vcpu_ppm: cpu_ppm,
        held: held.chain(receive).collect(),
        cards: cards.collect(),
    })
}
