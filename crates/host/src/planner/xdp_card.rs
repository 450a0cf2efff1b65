//! A VM's packets on a shared card without virtual functions. Reads, never writes.
//!
//! An XDP program on the card hands each packet to the VM's address to the VM's tap, before the host makes a buffer of it, and
//! all others to normal threads. The card's polls are short then, and have the rank of the VM's class. What the VM sends, and
//! what has no address of its own (broadcast, multicast), goes by the bridge as before.

use super::step::Step;
use super::vms::Running;
use crate::address::{Address, format_address};
use crate::error::{HostError, at};
use crate::settings::{
    Change, ChangeOf, Device, Machine, PacketBudget, Program, SettingKind, Way, XdpAddress,
    XdpBudget, XdpProgram,
};

/// What a VM's way by a program takes.
pub(super) struct ByProgram {
    /// The card's program, which its VMs share.
    pub program: Step,
    /// Where packets to the VM go, and what they may cost. Until the card has its program there is none: what follows is planned
    /// again.
    pub address: Vec<Step>,
}

/// Plans one VM's way by the program of its card to its tap.
pub(super) fn plan(
    machine: &Machine,
    running: &Running<'_>,
    card: &str,
    (tap, address): (&str, Address),
    own: &[Step],
) -> Result<ByProgram, HostError> {
    // A kernel that does not tell has no thread for other packets that is worth it, either.
    if !machine.links.redirects_by_xdp(card).unwrap_or(false) {
        let what = format!(
            "{card} has no virtual functions (SR-IOV), and its driver does not redirect by XDP"
        );
        return Err(HostError::Unsupported {
            missing: at(&running.profile.place, &what),
            fix: "give the VM a card of its own ([[nic]] with its class), or leave `nic` out"
                .into(),
        });
    }
    let device = Device::find(machine, card);
    let setting = XdpProgram {
        card: device.clone(),
    };
    let found = setting.read(machine)?;
    let made = own.iter().any(
        |step| matches!(&step.change, Change::XdpProgram(made) if made.setting.card.is(&device)),
    );
    let change = ChangeOf {
        setting,
        old: if made { Program::Absent } else { found },
        new: Program::Whole,
    };
    let why =
        "so that each VM's packets are told apart before the host handles them; the card restarts";
    let program = Step::required(change, why);
    if found != Program::Whole {
        let address = Vec::new();
        return Ok(ByProgram { program, address });
    }
    let budget = running.profile.receive.map(|budget| {
        let setting = XdpBudget {
            card: device.clone(),
            address,
        };
        limited(machine, setting, budget)
    });
    let setting = XdpAddress {
        card: device,
        address,
    };
    let change = ChangeOf {
        old: setting.read(machine)?,
        setting,
        new: Way::Tap(Device::find(machine, tap)),
    };
    let why = format!(
        "so that packets to {} pass by those to others",
        format_address(address)
    );
    let mut address = vec![Step::required(change, &why)];
    address.extend(budget.transpose()?);
    Ok(ByProgram { program, address })
}

/// Once the program looks for the address: with this it forgets what it kept for it.
fn limited(machine: &Machine, setting: XdpBudget, budget: PacketBudget) -> Result<Step, HostError> {
    let change = ChangeOf {
        old: setting.read(machine)?,
        setting,
        new: Some(budget),
    };
    let why = "so that what others send to this VM costs the host no more CPU time than that";
    Ok(Step::required(change, why))
}
