//! libvirt's hook for QEMU: `HOOK DOMAIN OPERATION SUB-OPERATION EXTRA`, with the domain's XML on standard input.
//!
//! libvirt waits for it, so it calls no libvirt. What it says on standard output would be taken for XML.

use std::io::Read;

use steadyvm_fault::At;

use super::domain::{Domain, may_be_real_time};
use super::interface::{PREFIX, interface_of, shown};
use super::keeper::{Keeper, Vm, Wish};
use crate::Urgency;
use crate::error::Result;

/// What flavors had once that let users ask for budgets by scheduler hints. VMs made by them are still there.
const HINTS: &str = "rt:hints";

/// No domain's XML is longer.
const LARGEST_XML: u64 = 16 << 20;

/// What libvirt is doing with a domain, of which this hook does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Before QEMU is started. A failure refuses the start.
    Prepare,
    /// QEMU runs.
    Started,
    /// libvirt has been started anew, and finds QEMU running.
    Reconnect,
    /// QEMU has ended.
    Stopped,
    /// All of the domain is given back.
    Release,
}

impl Operation {
    /// The operation of this word; none of others, at which there is nothing to do.
    pub fn of(word: &str) -> Option<Self> {
        Some(match word {
            "prepare" => Self::Prepare,
            "started" => Self::Started,
            "reconnect" => Self::Reconnect,
            "stopped" => Self::Stopped,
            "release" => Self::Release,
            _ => return None,
        })
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Started => "started",
            Self::Reconnect => "reconnect",
            Self::Stopped => "stopped",
            Self::Release => "release",
        }
    }
}

/// Does what there is to do.
///
/// # Errors
/// What was not done. At [`Operation::Prepare`]: why this VM may not start here.
pub fn run(
    operation: Operation,
    xml: impl Read,
    keeper: &Keeper,
    it_asks: &dyn Fn(),
) -> Result<()> {
    let (input, mut xml) = (xml, String::new());
    let read = input.take(LARGEST_XML).read_to_string(&mut xml);
    if read.is_err() || !may_be_real_time(&xml) {
        return match operation {
            Operation::Prepare | Operation::Reconnect | Operation::Stopped => Ok(()),
            // A file may rank a VM that has no budget.
            Operation::Started | Operation::Release => keeper.apply(None),
        };
    }
    it_asks();
    let domain = Domain::parse(&xml)?;
    let vm = Vm::Libvirt {
        uuid: domain.uuid.clone(),
        name: domain.name.clone(),
    };
    match operation {
        Operation::Prepare => match wish(keeper, &domain)? {
            Some(wish) => keeper.prepare(&vm, &wish),
            None => Ok(()),
        },
        Operation::Started => keeper.started(&vm, wish(keeper, &domain)?.as_ref()),
        Operation::Reconnect => match wish(keeper, &domain)? {
            // After an upgrade, a VM that runs may have no file yet.
            Some(wish) => keeper.started(&vm, Some(&wish)),
            None => Ok(()),
        },
        Operation::Stopped => keeper.forget(&vm),
        Operation::Release => {
            keeper.forget(&vm)?;
            keeper.apply(None)
        }
    }
}

/// What a domain asks for; none if it asks for nothing.
fn wish(keeper: &Keeper, domain: &Domain) -> Result<Option<Wish>> {
    let Some(vcpus) = &domain.vcpus else {
        return Ok(None);
    };
    let mut own = domain.specs.keys().filter(|key| key.starts_with(PREFIX));
    if own.all(|key| key == HINTS) {
        keeper.say(
            Urgency::Warning,
            &format!(
                "VM {} may have had a budget from scheduler hints, which Nova hands to no host: it runs without one",
                shown(&domain.name)
            ),
        );
        return Ok(None);
    }
    let interface =
        interface_of(&domain.specs, vcpus.count).doing(format!("VM {}", shown(&domain.name)))?;
    let Some(interface) = interface else {
        return Ok(None);
    };
    let cpus = vcpus.cpus.clone();
    Ok(Some(Wish { interface, cpus }))
}
